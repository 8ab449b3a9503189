// Choices by log-likelihood against PyTorch (examples/whence/verify/choices.py), what is cut and refused, and the command.
#include <doctest/doctest.h>
#include <algorithm>
#include <cmath>
#include <map>

#include "examples/whence/language/choices.h"
#include "nn/io/files.h"
#include "tensor/raw.h"
#include "tests/support/json.h"
#include "tests/support/programs.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::language;
using namespace whence::test;

namespace {

// The script's model: each weight by the formula 0.6 sin(0.7 i + phase), no biases.
std::unique_ptr<Transformer> model_of_script() {
  auto model = std::make_unique<Transformer>(TransformerOptions{
      .vocabulary = 256, .length = 16, .dim = 8, .layers = 1, .heads = 2, .scheme = "absolute", .bias = false});
  model->initialise(0);
  model->to(DType::f64);
  const std::map<std::string, double> phases{{"embedding.weight", 1}, {"position.table", 2},
      {"blocks.0.attention.query.weight", 3}, {"blocks.0.attention.key.weight", 4},
      {"blocks.0.attention.value.weight", 5}, {"blocks.0.attention.output.weight", 6}, {"blocks.0.mlp.in.weight", 7},
      {"blocks.0.mlp.out.weight", 8}, {"blocks.0.norm1.weight", 9}, {"blocks.0.norm2.weight", 10}, {"norm.weight", 11}};
  std::size_t set = 0;
  for (const Module::Parameter& parameter : model->parameters()) {
    const auto phase = phases.find(parameter.path);
    if (phase == phases.end()) continue;
    std::vector<double> numbers;
    for (index_t i = 0; i < parameter.tensor.numel(); ++i)
      numbers.push_back(0.6 * std::sin(0.7 * static_cast<double>(i) + phase->second));
    raw::copy_into(Tensor::of(numbers, parameter.tensor.shape(), DType::f64), parameter.tensor);
    ++set;
  }
  REQUIRE(set == phases.size());
  return model;
}

std::string refusal(const Scratch& scratch, const std::string& line) {
  write_file(scratch / "q.jsonl", "\n" + line);
  return error_text([&] { (void)read_questions(scratch / "q.jsonl"); });
}

}  // namespace

TEST_CASE("choices: log-likelihoods and answers are PyTorch's") {
  struct Case {
    const char* context;
    std::vector<std::string> choices;
    std::vector<double> expected;
    std::size_t by_sum, per_character, per_byte;
    bool cut;
  };
  const std::vector<Case> cases{
      {"The sky is", {"blue", "square"}, {-26.651924221048, -38.956388335227}, 0, 1, 1, false},
      {"Q: one and one?  ", {"two", "three hundred", "a"}, {-34.220420381000, -89.729572169080, -22.568954129048}, 2, 1,
          1, true},
      {"a context that is longer than the model reads, by far", {"indeed", "no"}, {-38.981130411374, -17.059562633195},
          1, 0, 0, true},
      {"caf\u00e9", {"cr\u00e8me", "th\u00e9"}, {-39.674656601760, -27.820527819476}, 1, 0, 0, false}};
  const auto model = model_of_script();
  const TokeniserPointer tokeniser = byte_tokeniser();
  for (const Case& each : cases) {
    CAPTURE(each.context);
    const Question question{"", each.context, each.choices, 0};
    const auto scores = score_choices(*model, *tokeniser, question, {.length = 16});
    REQUIRE(scores.size() == each.expected.size());
    for (std::size_t k = 0; k < scores.size(); ++k) {
      CHECK(std::fabs(scores[k].log_probability - each.expected[k]) < 1e-9);
      CHECK(scores[k].bytes == static_cast<std::int64_t>(each.choices[k].size()));
    }
    CHECK(best_by_sum(scores) == each.by_sum);
    CHECK(best_per_character(scores) == each.per_character);
    CHECK(best_per_byte(scores) == each.per_byte);
    CHECK(scores[0].cut == each.cut);
  }
}

TEST_CASE("choices: per character and per byte are different answers where characters take several bytes") {
  const auto scores = score_choices(
      *model_of_script(), *byte_tokeniser(), {"", "night", {"\u591c\u665a", "na\u00efve", "dark"}, 0}, {.length = 16});
  const std::int64_t characters[] = {2, 5, 4}, bytes[] = {6, 6, 4};
  std::vector<double> per_character, per_byte;
  for (std::size_t k = 0; k < 3; ++k) {
    CHECK((scores[k].characters == characters[k] && scores[k].bytes == bytes[k]));
    per_character.push_back(scores[k].log_probability / static_cast<double>(characters[k]));
    per_byte.push_back(scores[k].log_probability / static_cast<double>(bytes[k]));
  }
  const auto best = [](const std::vector<double>& values) {
    return static_cast<std::size_t>(std::ranges::max_element(values) - values.begin());
  };
  CHECK(best_per_character(scores) == best(per_character));
  CHECK(best_per_byte(scores) == best(per_byte));
  ChoiceScore cjk{.log_probability = -49.5, .characters = 4, .bytes = 12},
      ascii{.log_probability = -21.7, .characters = 4, .bytes = 4};
  CHECK((best_per_character({cjk, ascii}) == 1 && best_per_byte({cjk, ascii}) == 0));
}

TEST_CASE("choices: logits that are not finite are no answer") {
  const auto model = model_of_script();
  model->parameters()[0].tensor.data<double>()[0] = std::nan("");
  CHECK_THROWS_WITH_AS((void)score_choices(*model, *byte_tokeniser(), {"here", "ab", {"c", "d"}, 0}, {.length = 16}),
      doctest::Contains("here: choice 0: log p is nan; finite logits required"), NotFinite);
}

TEST_CASE("choices: a cloze is greedy where each token is the most probable; what cannot be read is refused") {
  const auto model = model_of_script();
  const TokeniserPointer tokeniser = byte_tokeniser();
  double largest = -1e9, of_greedy = 0;
  int greedy = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string choice(1, static_cast<char>(byte));
    const auto scores = score_choices(*model, *tokeniser, {"", "ab", {choice}, 0}, {.length = 16, .blank = false});
    CHECK(scores[0].tokens == 1);
    largest = std::max(largest, scores[0].log_probability);
    if (scores[0].greedy) ++greedy, of_greedy = scores[0].log_probability;
  }
  CHECK(greedy == 1);
  CHECK(of_greedy == largest);
  const Question longer{"q.jsonl: line 2", "a context of many bytes", {"yes", "no"}, 0};
  CHECK_THROWS_WITH_AS((void)score_choices(*model, *tokeniser, longer, {.length = 16, .refuse = true}),
      doctest::Contains("q.jsonl: line 2: choice 0: 26 tokens to read given; at most 16 required"), InputError);
  CHECK_THROWS_AS((void)score_choices(*model, *tokeniser, longer, {.length = 3}), InputError);
  CHECK_NOTHROW((void)score_choices(*model, *tokeniser, longer, {.length = 4}));
  CHECK_THROWS_WITH_AS((void)score_choices(*model, *tokeniser, {"here", " ", {"a", "b"}, 0}, {.length = 16}),
      doctest::Contains("here: an empty context"), InputError);

  const Scratch scratch("choices");
  for (const auto& [line, message] : std::vector<std::pair<std::string, std::string>>{
           {R"({"context": "a", "choices": [], "answer": 0})", "fewer than two texts"},
           {R"({"context": "a", "choices": ["b"], "answer": 0})", "fewer than two texts"},
           {R"({"context": "a", "choices": ["b", ""], "answer": 0})", "an empty choice"},
           {R"({"context": "a", "choices": ["b", 3], "answer": 0})", "a list of texts required"},
           {R"({"context": "a", "choices": ["b", "c"], "answer": 2})", "answer 2 given; a choice's number, 0 to 1"},
           {R"({"context": "a", "choices": ["b", "c"], "answer": "c"})",
               "field 'answer' is a text; a whole number required"},
           {R"({"context": "a", "choices": ["b", "c"]})", "no field 'answer'"},
           {R"({"context": "a", "answer": ""})", "an empty choice"}, {R"({"answer": "b"})", "no field 'context'"}}) {
    const std::string found = refusal(scratch, line);
    CHECK_MESSAGE(has(found, "q.jsonl: line 2: "), found);
    CHECK_MESSAGE(has(found, message), found);
  }
}

TEST_CASE("score: a trained model prefers what its text says") {
  const Scratch scratch("score");
  std::string text;
  for (int k = 0; k < 300; ++k) text += k % 3 == 0 ? "the cat sat on the mat.\n" : "a dog ran to the sea.\n";
  write_file(scratch / "text.txt", text);
  const std::string out = scratch / "run", questions = scratch / "q.jsonl";
  (void)done(
      "train lm --dim 32 --layers 1 --heads 2 --length 24 --steps 150 --lr 3e-3 --warm-up 5 --evaluate-to 1 --quiet "
      "--data " +
      scratch / "text.txt" + " --out " + out);
  write_file(questions, R"({"context": "the cat sat on", "choices": ["xyz qqq.", "the mat."], "answer": 1}
{"context": "the cat sat on the mat.\na dog ran", "choices": ["to the sea.", "on xyz."], "answer": 0}
{"context": "a dog ran to the", "answer": "sea."}
)");
  const Outcome scored = done("score " + out + " --data " + questions + " --out " + scratch / "lines.jsonl");
  CHECK(scored.out.starts_with("note: 2 of 5 texts"));
  CHECK(has(scored.out, "accuracy %, sum of log p"));
  CHECK(has(scored.err, "score 3/3 100 %"));
  CHECK_FALSE(has(scored.err, "tokens/s"));  // what is counted are questions
  const auto found = json_lines(text_of(scratch / "lines.jsonl"));
  REQUIRE(found.size() == 3);
  CHECK((found[0].at("by_sum") == 1 && found[1].at("by_sum") == 0));
  CHECK((found[1].at("per_character") == 0 && found[1].at("choices")[0].at("characters") == 11));
  CHECK(has(scored.out, "accuracy %, log p per character"));
  CHECK(found[1].at("choices")[0].at("cut") == true);
  CHECK(found[2].at("choices")[0].at("greedy") == true);
}
