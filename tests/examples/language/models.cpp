// Language models in use: perplexity over lengths and Delta-P against plain sums, sampling against brute force, saving.
#include <algorithm>
#include <cmath>

#include "examples/whence/language/language_model.h"
#include "examples/whence/language/sampling.h"
#include "examples/whence/language/saved_model.h"
#include "examples/whence/machine/models.h"
#include "examples/whence/run/run_files.h"
#include "examples/whence/run/run_record.h"
#include "nn/io/checkpoint.h"
#include "nn/io/files.h"
#include "tests/support/programs.h"
#include "tests/support/schemes.h"

using namespace whence;
using namespace whence::language;
using namespace whence::test;

namespace {

// Makes a tokeniser of these and the token 0, which no text here has.
TokeniserPointer listed(const std::string& tokens) {
  return tokeniser_from_json(
      R"({"format": "whence tokeniser", "version": 1, "kind": "tokens", "vocabulary": 5, "tokens": ["", )" + tokens +
          "]}",
      "here");
}

// A corpus of `length` tokens, 1 to 4, all for training.
struct Letters {
  Scratch scratch{"letters"};
  TokeniserPointer tokeniser;
  std::unique_ptr<Corpus> corpus;

  explicit Letters(std::size_t length) {
    std::string text;
    for (std::size_t i = 0; i < length; ++i) text += {"1234"[i < 4 ? i : Stream(1, "letters").below(i, 4)], ' '};
    write_file(scratch / "text", text);
    tokeniser = listed(R"("a", "b", "c", "d")");
    corpus = std::make_unique<Corpus>(CorpusOptions{.data = scratch / "text", .validation_share = 0}, *tokeniser);
  }
};

// Returns exp of the mean of -log p over the last `last` targets of windows of `length` that end at the given targets.
double plain_perplexity(
    const Transformer& model, const Corpus& corpus, const std::vector<index_t>& ends, index_t length, index_t last) {
  double total = 0;
  for (const index_t end : ends) {
    const TokenIds ids = corpus.slice(Part::training, end - length, length + 1);
    const Tensor probabilities = softmax(model(Tensor::of({ids.begin(), ids.end() - 1}, {1, length}, DType::i64)));
    for (index_t t = length - last; t < length; ++t)
      total -= std::log(probabilities.at({0, t, ids[static_cast<std::size_t>(t + 1)]}));
  }
  return std::exp(total / static_cast<double>(static_cast<index_t>(ends.size()) * last));
}

std::vector<double> random_logits(std::size_t count, std::uint64_t seed) {
  const Stream stream(seed, "logits");
  std::vector<double> logits(count);
  for (std::size_t v = 0; v < count; ++v) logits[v] = std::round(4 * stream.normal(v)) / 2;  // with ties
  return logits;
}

// Takes the best remaining token, by the definitions, until there are k tokens or the share is reached.
std::vector<double> brute_force(const std::vector<double>& logits, const SamplingOptions& options) {
  const std::size_t count = logits.size();
  std::vector<double> p(count);
  double total = 0;
  for (std::size_t v = 0; v < count; ++v) total += p[v] = std::exp(logits[v] / options.temperature);
  for (double& each : p) each /= total;
  std::vector<std::size_t> ranked;
  while (ranked.size() < count) {
    std::size_t best = count;
    for (std::size_t v = 0; v < count; ++v)
      if (std::find(ranked.begin(), ranked.end(), v) == ranked.end() && (best == count || p[v] > p[best])) best = v;
    ranked.push_back(best);
  }
  if (options.top_k > 0) ranked.resize(std::min(count, static_cast<std::size_t>(options.top_k)));
  double left = 0;
  for (const std::size_t v : ranked) left += p[v];
  std::vector<double> kept(count);
  double sum = 0, chosen = 0;
  for (const std::size_t v : ranked) {
    if (options.top_p < 1 && sum >= options.top_p) break;
    sum += p[v] / left;
    chosen += kept[v] = p[v];
  }
  for (double& each : kept) each /= chosen;
  return kept;
}

// Returns the logits of the token after the text, without a cache.
std::vector<double> last_logits(const Transformer& model, const TokenIds& text) {
  const auto length = std::ssize(text);
  return slice(model(Tensor::of({text.begin(), text.end()}, {1, length}, DType::i64)), 1, length - 1, length)
      .to_vector();
}

// Generates the same text without a cache: the model reads the whole text for each token.
TokenIds plain_generation(const Transformer& model, TokenIds text, const GenerationOptions& options) {
  TokenIds made;
  for (index_t i = 0; i < options.tokens; ++i) {
    const std::vector<double> row = last_logits(model, text);
    const double uniform = Stream(options.seed, "sampling", static_cast<std::uint64_t>(i)).uniform53(0);
    made.push_back(draw(next_token_distribution(row, options.sampling), uniform));
    text.push_back(made.back());
  }
  return made;
}

}  // namespace

TEST_CASE("perplexity over lengths and Delta-P are what a plain sum gives, over the same targets at every length") {
  const Letters text(400);
  const auto model = random_decoder(small("alibi"));
  const LengthOptions options{.train_length = 8, .multiples = {1, 2, 4}, .last = 5, .windows = 7, .tokens_at_once = 40};
  const auto scores = perplexity_by_length(*model, *text.corpus, options, Part::training);
  REQUIRE(scores.size() == 3);
  std::vector<index_t> ends;  // from 32, where the longest window just fits, to the last token, in seven places
  for (index_t w = 0; w < 7; ++w) ends.push_back(32 + (399 - 32) * w / 6);
  for (const LengthScore& score : scores) {
    CHECK(score.windows == 7);
    CHECK(score.last == 5);
    CHECK(score.perplexity ==
          doctest::Approx(plain_perplexity(*model, *text.corpus, ends, score.length, 5)).epsilon(1e-12));
    CHECK(score.standard_error > 0);
    if (score.length == 8) {
      CHECK(score.deltas.empty());
      continue;
    }
    REQUIRE(score.deltas.size() == 2);
    for (const DeltaP& delta : score.deltas) {
      CHECK(delta.full ==
            doctest::Approx(plain_perplexity(*model, *text.corpus, ends, score.length, delta.last)).epsilon(1e-12));
      CHECK(delta.truncated ==
            doctest::Approx(plain_perplexity(*model, *text.corpus, ends, 8, delta.last)).epsilon(1e-12));
      CHECK(delta.value() == delta.truncated - delta.full);
    }
    CHECK(score.deltas[0].last == 5);
    CHECK(score.deltas[1].last == 8);
  }
}

TEST_CASE("a scheme without longer positions says so in the table; text too short for a length is refused before") {
  const Letters text(200);
  const auto model = random_decoder(small("absolute"));
  const auto scores = perplexity_by_length(
      *model, *text.corpus, {.train_length = 9, .multiples = {1, 2}, .last = 4, .windows = 3}, Part::training);
  CHECK(std::isfinite(scores[0].perplexity));
  CHECK(std::isnan(scores[1].perplexity));
  CHECK(has(scores[1].refused, "absolute"));
  CHECK(length_table(scores).rows()[1] == std::vector<std::string>{"18", "2", "-", "-", "-", "-", scores[1].refused});
  const std::string reason = error_text([&] {
    (void)perplexity_by_length(*model, *text.corpus, {.train_length = 9, .multiples = {1, 8, 64}}, Part::training);
  });
  CHECK(has(reason, "length 576: 200 tokens"));
  CHECK(
      has(error_text([&] { (void)perplexity_by_length(*model, *text.corpus, {.train_length = 9}, Part::validation); }),
          "no length fits"));
}

TEST_CASE("temperature, top-k and top-p are what their definitions say, with ties and alone or together") {
  int cut = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const std::vector<double> logits = random_logits(12, seed);
    for (const double temperature : {0.5, 1.0, 3.0}) {
      for (const index_t top_k : {0, 1, 4, 12, 50}) {
        for (const double top_p : {1.0, 0.9, 0.5, 0.01}) {
          const SamplingOptions options{temperature, top_k, top_p};
          const auto ours = next_token_distribution(logits, options), theirs = brute_force(logits, options);
          for (std::size_t v = 0; v < 12; ++v) CHECK(std::abs(ours[v] - theirs[v]) < 1e-12);
          cut += std::count(ours.begin(), ours.end(), 0.0) > 0;
        }
      }
    }
  }
  CHECK(cut > 1000);
  const auto greedy = next_token_distribution({1, 3, 3, 2}, {.temperature = 0});
  CHECK(greedy == std::vector<double>{0, 1, 0, 0});
  CHECK(next_token_distribution({1e6, -1e6, 0}, {}) == std::vector<double>{1, 0, 0});  // no overflow
  for (const auto& bad : {std::vector<double>{1, NAN}, {}})
    CHECK_THROWS_AS((void)next_token_distribution(bad, {}), NotFinite);
}

TEST_CASE("drawing follows the distribution exactly, and never takes what was cut") {
  const std::vector<double> distribution{0, 0.25, 0, 0.5, 0.25, 0};
  std::vector<int> counts(6);
  for (int i = 0; i < 4000; ++i) ++counts[static_cast<std::size_t>(draw(distribution, i / 4000.0))];
  CHECK(counts == std::vector<int>{0, 1000, 0, 2000, 1000, 0});
  CHECK(draw({0.3, 0.3, 0.4 - 1e-9, 0}, 1 - 1e-12) == 2);  // a sum rounded below 1
}

TEST_CASE("text with a cache is the text of full passes; the same seed the same text; temperature 0 the best token") {
  for (const std::string scheme : {"none", "rope", "alibi", "cope(p_max=4)", "dape(kerple)"}) {
    CAPTURE(scheme);
    const auto model = random_decoder(small(scheme));
    const TokenIds prompt{1, 3, 2};
    GenerationOptions options{.sampling = {1.3, 4, 0.95}, .tokens = 20, .seed = 5};
    const TokenIds text = generate(*model, prompt, options);
    CHECK(text == plain_generation(*model, prompt, options));
    CHECK(text == generate(*model, prompt, options));
    options.seed = 6;
    CHECK(text != generate(*model, prompt, options));
    options.sampling = {.temperature = 0};
    const TokenIds greedy = generate(*model, prompt, options);
    TokenIds so_far = prompt;
    for (const TokenId token : greedy) {
      const std::vector<double> row = last_logits(*model, so_far);
      CHECK(token == std::ranges::max_element(row) - row.begin());
      so_far.push_back(token);
    }
  }
}

TEST_CASE("a limited context goes on from its later half; a stop token and the caller end the text") {
  const auto model = random_decoder(small("absolute"));  // knows 9 positions
  const TokenIds prompt{1, 2, 3};
  GenerationOptions options{.sampling = {}, .tokens = 25, .seed = 1};
  CHECK_THROWS_WITH_AS((void)generate(*model, prompt, options), doctest::Contains("absolute"), InputError);
  options.context = 9;
  const TokenIds text = generate(*model, prompt, options);
  CHECK(text.size() == 25);
  // Up to the ninth position nothing is forgotten; the tenth token follows the last four.
  GenerationOptions within = options;
  within.tokens = 7;
  CHECK(TokenIds(text.begin(), text.begin() + 7) == plain_generation(*model, prompt, within));
  TokenIds all = prompt;
  all.insert(all.end(), text.begin(), text.begin() + 7);
  const std::vector<double> row = last_logits(*model, {all.end() - 4, all.end()});
  CHECK(text[7] == draw(next_token_distribution(row, {}), Stream(1, "sampling", 7).uniform53(0)));
  CHECK(generate(*model, TokenIds(30, 1), options).size() == 25);  // a prompt longer than the context

  GenerationOptions few = options;
  few.named = 2;
  CHECK(std::ranges::all_of(generate(*model, prompt, few), [](TokenId token) { return token < 2; }));
  CHECK(std::ranges::any_of(text, [](TokenId token) { return token >= 2; }));

  options.stop = text[2];
  const TokenIds stopped = generate(*model, prompt, options);
  CHECK(stopped.size() <= 2);
  CHECK(std::equal(stopped.begin(), stopped.end(), text.begin()));
  options.stop = -1;
  int given = 0;
  CHECK(generate(*model, prompt, options, [&](TokenId) { return ++given < 5; }).size() == 5);
  CHECK(has(error_text([&] { (void)generate(*model, {}, options); }), "empty prompt"));
}

TEST_CASE("the options of every named model as facts of a run, there and back; others are refused by name") {
  const TokeniserPointer tokeniser = byte_tokeniser();
  for (const NamedModel& named : named_models()) {
    const Facts facts = language_facts(named.options, *tokeniser);
    const TransformerOptions back = model_of(facts, "here");
    CHECK(language_facts(back, *tokeniser) == facts);
    CHECK((back.activation == named.options.activation && back.norm_place == named.options.norm_place));
    CHECK((back.tied == named.options.tied && back.dropout == named.options.dropout));
  }
  const auto with = [&](const std::string& name, const std::string& value) {
    Facts facts = language_facts(small("rope"), *tokeniser);
    const auto found = std::ranges::find(facts, name, &Facts::value_type::first);
    if (found == facts.end())
      facts.emplace_back(name, value);
    else if (value.empty())
      facts.erase(found);
    else
      found->second = value;
    return error_text([&] { (void)model_of(facts, "here"); });
  };
  CHECK(with("model.dim", "16").empty());
  for (const auto& [name, value] : std::vector<std::pair<std::string, std::string>>{{"activation", "gloo"},
           {"dim", "8x"}, {"dim", "4611686018427387904"}, {"hidden", "-8"}, {"tied", "yes"}, {"window", "3"}})
    CHECK_MESSAGE(has(with("model." + name, value), "model." + name + ": \"" + value + "\""), name);
  CHECK(has(with("model.scheme", ""), "model.scheme: none"));
}

TEST_CASE("a saved model is the model; another tokeniser, a missing file and foreign weights are refused by name") {
  const Letters text(50);
  const Scratch scratch("saved");
  const auto model = random_decoder(small("cope(p_max=4)"), DType::f32);
  const auto save = [&](const Tokeniser& tokeniser) {
    RunRecord record{"train", "0", "lm", {}, {}, "", language_facts(model->options(), tokeniser)};
    write_file(scratch / "run.json", text_of(record));
    tokeniser.save(scratch / tokeniser_file);
  };
  const auto load = [&](const std::string& executor = {}) {
    return load_language_model(scratch.folder.string(), executor);
  };
  const auto refusal = [&] { return error_text([&] { (void)load(); }); };
  save_weights(scratch / "weights.safetensors", model->parameters());
  save(*text.tokeniser);
  const SavedModel saved = load();
  const Tensor tokens = random_tokens(2, 9, 5);
  CHECK(same_bits((*saved.model)(tokens), (*model)(tokens)));
  CHECK(saved.tokeniser->hash() == text.tokeniser->hash());
  CHECK(load("reference").model->options().executor == "reference");

  listed(R"("a", "b", "c", "e")")->save(scratch / tokeniser_file);
  CHECK(has(refusal(), "tokeniser: another"));
  save(*byte_tokeniser());
  CHECK(has(refusal(), "has 256 tokens"));
  save(*text.tokeniser);
  save_weights(scratch / "weights.safetensors", random_decoder(small("rope"), DType::f32)->parameters());
  CHECK(has(refusal(), "weights.safetensors"));
  std::filesystem::remove(scratch / "run.json");
  CHECK(has(refusal(), "run.json: cannot"));
}
