// A text as a study, `train lm`: the next token of text files, evaluated beyond the training length.
#include <algorithm>
#include <cmath>
#include <iostream>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/language/corpus.h"
#include "examples/whence/language/language_model.h"
#include "examples/whence/language/saved_model.h"
#include "examples/whence/machine/models.h"
#include "examples/whence/report/table.h"
#include "examples/whence/study/study.h"
#include "nn/io/files.h"

namespace whence {
namespace {

using namespace whence::language;

// Prints a score, and adds it to a result as fields whose names begin with `prefix`.
void say(const char* part, const LanguageScore& score, const std::string& prefix, Json& record) {
  const bool words = std::isfinite(score.perplexity_per_word);  // false for a text without blanks
  const auto shown = [](double perplexity) { return perplexity < 1e6 ? fixed(perplexity, 3) : digits(perplexity); };
  std::cout << part << ": " << fixed(score.loss, 4) << " nats per token, perplexity " << shown(score.perplexity)
            << " per token, " << shown(score.perplexity_per_byte) << " per byte"
            << (words ? ", " + shown(score.perplexity_per_word) + " per word" : "") << "; "
            << fixed(score.bits_per_byte, 4) << " bits per byte, " << score.tokens << " tokens\n";
  record.add(prefix + "perplexity", score.perplexity).add(prefix + "bits_per_byte", score.bits_per_byte);
  record.add(prefix + "perplexity_per_byte", score.perplexity_per_byte);
  if (words) record.add(prefix + "perplexity_per_word", score.perplexity_per_word);
}

std::string lines_of(
    const std::string& scheme, const std::vector<LengthScore>& scores, index_t train_length, double bytes_per_token) {
  std::string lines;
  for (const LengthScore& at : scores) {
    Json line{{"scheme", scheme}, {"length", std::int64_t{at.length}}, {"perplexity", at.perplexity},
        {"windows", std::int64_t{at.windows}}, {"bits_per_byte", std::log2(at.perplexity) / bytes_per_token}};
    for (const DeltaP& delta : at.deltas)
      if (delta.last == train_length) line.add("delta_p", delta.value());
    lines += line.line() + '\n';
  }
  return lines;
}

// Returns a line of a text or a length: graded targets and their cost, for each window. The windows are the same for
// every scheme, so that two can be compared on them.
std::string line_of_windows(
    const std::string& name, const std::vector<std::int64_t>& graded, const std::vector<double>& nats) {
  return Json{{"test_set", name}, {"graded", graded}, {"nats", nats}}.line() + '\n';
}

struct TextOptions {
  CorpusOptions corpus;
  std::string tokeniser = "bytes", model;
  std::int64_t length = 128, batch = 16, evaluate_to = 16, last = 256, evaluation_windows = 20, validation_windows = 64;
};

class TextStudy final : public Study {
 public:
  explicit TextStudy(TextOptions options)
      : options_(std::move(options)), tokeniser_(tokeniser_of(options_)), corpus_(options_.corpus, *tokeniser_) {
    for (const Part part : {Part::training, Part::validation}) corpus_.require_window(part, options_.length);
    if (!options_.corpus.test_data.empty()) corpus_.require_window(Part::test, 1);
  }

  static TokeniserPointer tokeniser_of(const TextOptions& options) {
    const std::string& data = options.corpus.data;
    if (is_token_file(data)) return tokeniser_from_json(TextFile(data).list, data);
    return options.tokeniser == "bytes" ? byte_tokeniser() : load_tokeniser(options.tokeniser);
  }

  std::string summary(std::uint64_t) const override {
    if (options_.corpus.test_data.empty() || scored_part() == Part::test) return corpus_.summary();
    return corpus_.summary() + to_text("note: the test text has no window of ", options_.length,
                                   " tokens and the one after it: perplexity by length is of validation text\n");
  }

  TrainingBatch batch(std::uint64_t seed, std::int64_t part) const override {
    return lm_batch(corpus_, {options_.length, options_.batch}, seed, part);
  }

  Validation validate(const Transformer& model, std::uint64_t) const override {
    const LanguageScore found =
        score(model, corpus_, Part::validation, {options_.length, options_.batch}, options_.validation_windows);
    return {found.loss, {{"perplexity", found.perplexity}, {"bits_per_byte", found.bits_per_byte}}};
  }

  PlannedPass largest_pass(std::uint64_t) const override {
    const index_t longest = options_.length * multiples().back();
    return {.model = {},
        .sequences = std::max<index_t>(1, LengthOptions().tokens_at_once / longest),
        .length = longest,
        .remedy = "a smaller --evaluate-to"};
  }

  std::vector<std::string> test(
      const Transformer& model, const TrainingResult&, const TrainingOptions& training) const override {
    tokeniser_->save((training.folder / tokeniser_file).string());
    const WindowOptions windows{options_.length, options_.batch};
    const LanguageScore own = score(model, corpus_, Part::validation, windows, options_.validation_windows);
    Json result{{"scheme", model.scheme()}, {"validation_loss", own.loss}};
    say("validation", own, "", result);
    std::string questions = line_of_windows("validation", own.graded, own.nats);
    if (corpus_.size(Part::test).tokens > 0) {
      const LanguageScore test = score(model, corpus_, Part::test, windows, 0);
      result.add("test_loss", test.loss);
      say("test", test, "test_", result);
      questions += line_of_windows("test", test.graded, test.nats);
    }
    const LengthOptions lengths{.train_length = options_.length,
        .multiples = multiples(),
        .last = options_.last,
        .windows = options_.evaluation_windows,
        .quiet = training.quiet};
    const std::vector<LengthScore> scores = perplexity_by_length(model, corpus_, lengths, scored_part());
    std::cout << length_table(scores).text() << '\n' << delta_table(scores).text();
    for (const LengthScore& at : scores)
      if (at.refused.empty())
        questions +=
            line_of_windows(to_text("length ", at.length), std::vector<std::int64_t>(at.nats.size(), at.last), at.nats);
    write_file((training.folder / "questions.jsonl").string(), questions);  // results last: a run with results is done
    write_file((training.folder / "results.jsonl").string(),
        result.line() + '\n' +
            lines_of(model.scheme(), scores, options_.length, corpus_.bytes_per_token(scored_part())));
    return {tokeniser_file, "results.jsonl", "questions.jsonl"};
  }

  Json tests() const override { return {{"measure", "perplexity"}, {"test_sets", Json::List()}}; }

  Facts facts(const TrainingOptions& training) const override {
    Facts facts = corpus_.description();
    facts.insert(facts.end(), {{"model", options_.model}, {"length", std::to_string(options_.length)},
                                  {"batch", std::to_string(options_.batch)}});
    if (training.validate_every > 0)
      facts.emplace_back("validation-windows", std::to_string(options_.validation_windows));
    return facts;
  }

  Facts record_facts(const Transformer& model, std::uint64_t) const override {
    Facts facts = language_facts(model.options(), *tokeniser_);
    for (const std::string& file : options_.corpus.more) facts.emplace_back("file", file);
    return facts;
  }

  std::string data(std::uint64_t /*seed*/) const override { return corpus_.hash(); }

 private:
  // Returns the test's text if it has room for a window.
  Part scored_part() const { return corpus_.size(Part::test).tokens > options_.length ? Part::test : Part::validation; }

  // Returns the lengths worth a pass: 1, 2, 4, ... as long as the text has room for them.
  std::vector<index_t> multiples() const {
    std::vector<index_t> multiples;
    for (index_t multiple = 1; multiple <= options_.evaluate_to; multiple *= 2) {
      if (multiple > 1 && multiple * options_.length + 1 > corpus_.size(scored_part()).tokens) break;
      multiples.push_back(multiple);
    }
    return multiples;
  }

  TextOptions options_;
  TokeniserPointer tokeniser_;
  Corpus corpus_;
};

class TextStudyOptions final : public StudyOptions {
 public:
  std::string name() const override { return text_study; }
  std::string title() const override { return "the next token of text, scored beyond the training length"; }
  std::string mini() const override { return "dim=128 layers=2 length=128 steps=1000"; }
  void declare(Fields& fields) override {
    using Count = Range<std::int64_t>;
    std::vector<std::string> names;
    for (const NamedModel& model : named_models())
      if (model.options.causal) names.push_back(model.name);
    fields.heading("Text");
    language::declare(fields, options_.corpus);
    fields.text("tokeniser", &options_.tokeniser,
        {"bytes, or a tokeniser.json of kind tokens for a text of token numbers; a token file has its own"});
    fields.heading("Windows")
        .integer("length", &options_.length, Count{1, 1 << 20}, {"training length", "tokens"})
        .integer("batch", &options_.batch, Count{1, 65536}, {"batch size; times --accumulate per step", "windows"})
        .integer("validation-windows", &options_.validation_windows, Count{1, 1 << 20}, {"per validation", "windows"});
    fields.heading("Evaluation")
        .integer("evaluate-to", &options_.evaluate_to, Count{1, 64},
            {"perplexity at 1, 2, 4 ... this many times the length"})
        .integer("last", &options_.last, Count{1, 1 << 20}, {"last ones of each window count", "tokens"})
        .integer("evaluation-windows", &options_.evaluation_windows, Count{1, 1 << 20}, {"per length", "windows"});
    fields.heading("Model").choice("model", &options_.model, names,
        {"one of `models`, in place of the sizes below; vocabulary and length are the text's"});
    fields.example("whence train lm --data austen.txt --scheme 'cdape(kerple, kernel=3)' --out runs/austen",
        "bytes, windows of 128");
    fields.example(
        "whence train lm --data books.jsonl --field body --test-data emma.txt", "a document a line, and a test");
    fields.example("whence train lm --data src --include '*.cpp,*.h' --exclude 'tests/*'", "a source tree");
    fields.example("whence train lm --data austen.txt --weights-of runs/rope --scheme none --lr 1e-4 --out runs/drope",
        "positions dropped after training with them (DroPE)");
    fields.example("whence train lm --data austen.safetensors --length 256 --evaluate-to 8",
        "a token file, which examples/experiments/tokens.py makes of a text and any tokenizer.json");
  }

  TrainingOptions training() const override {
    return {.steps = 2000, .learning_rate = 1e-3, .warm_up = 100, .decay = "cosine"};
  }

  void settle(const Fields& fields, const TrainingOptions&) override {
    check(fields, options_.corpus);
    for (const char* size : {"dim", "layers", "heads", "kv-heads"})
      fields.refuse_unless(size, options_.model.empty(), "beside --model, which has its sizes");
    fields.refuse_unless("tokeniser", !is_token_file(options_.corpus.data), "beside a token file, which has its own");
    vocabulary_ = TextStudy::tokeniser_of(options_)->vocabulary();
  }

  TransformerOptions model() const override {
    TransformerOptions model = options_.model.empty()
                                   ? TransformerOptions{.dim = 256, .layers = 4, .heads = 4, .scheme = "rope"}
                                   : named_model(options_.model);
    model.vocabulary = vocabulary_;
    model.length = options_.length;
    return model;
  }

  std::unique_ptr<Study> make(const Fields& fields, const TrainingOptions& training) const override {
    refuse_inside_text(fields, options_.corpus, training.folder);
    return std::make_unique<TextStudy>(options_);
  }

 private:
  TextOptions options_;
  index_t vocabulary_ = 256;  // the tokeniser's, once settled
};

}  // namespace

std::unique_ptr<StudyOptions> text_study_options() { return std::make_unique<TextStudyOptions>(); }

}  // namespace whence
