// A task of your own: at each blank, name the last letter.  a__b_c -> -aa-b-
#include "examples/whence/tasks/task.h"

using namespace whence;
using namespace whence::tasks;

namespace {

constexpr std::int64_t blank = 0;  // then the letters 1 ... n

class LastLetter final : public DrawnTask {
 public:
  struct Options {
    std::int64_t tokens = 32, letters = 8;
  };
  static void declare(Fields& line, Options& options) {
    line.integer("tokens", &options.tokens, {2, 4096}, {"of a sequence", "tokens"})
        .integer("letters", &options.letters, {2, 26}, {"to choose from"});
  }

  LastLetter(const Options& options, const Fields& /*line*/) : options_(options) {
    training_ = {{}, "last_letter.train", 50};
    tests_ = {{{"in distribution", "as in training: half of it blanks"}, "last_letter.in_distribution", 50},
        {{"sparse", "nine of ten are blanks"}, "last_letter.sparse", 90}};
  }

  TransformerOptions model() const override {
    return {.vocabulary = options_.letters + 1,
        .length = options_.tokens,
        .dim = 32,
        .layers = 1,
        .heads = 2,
        .scheme = "levelling"};
  }
  Recipe recipe() const override { return {.steps = 1000, .batch = 16, .learning_rate = 3e-3}; }
  std::vector<Guess> guesses() const override {
    return {{"always the first letter", [](const Row& row) { return Tokens(row.inputs.size(), 1); }}};
  }
  std::string text(std::int64_t token) const override {
    return std::string(1, token == blank ? '_' : static_cast<char>('a' + token - 1));
  }
  std::vector<std::pair<std::string, std::string>> description() const override {
    return {{"task", "last_letter"}, {"tokens", std::to_string(options_.tokens)},
        {"letters", std::to_string(options_.letters)}};
  }

 private:
  // Returns a letter, then random letters and blanks; set.value: percent of blanks.
  Row row(const DrawnSet& set, const Stream& stream) const override {
    Draw draw(stream);
    Row row;
    std::int64_t last = 0;
    for (std::int64_t t = 0; t < options_.tokens; ++t) {
      const bool is_blank = t > 0 && draw.below(100) < set.value;
      if (!is_blank) last = draw.between(1, options_.letters);
      row.inputs.push_back(is_blank ? blank : last);
      row.targets.push_back(is_blank ? last : no_target);
    }
    row.graded = row.targets;
    return row;
  }

  Options options_;
};

const RegisterTask registered{{.name = "last_letter",
    .title = "which letter was the last",
    .declare = declared<LastLetter>,
    .mini = "steps=300",
    .rule = "Letters and blanks. The answer at each blank is the last letter before it."}};

}  // namespace
