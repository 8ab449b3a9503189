// Associative recall (Bietti et al. 2023; Zheng et al. 2024, arXiv:2410.04798, appendix A): the last token has been
// seen before; name the token that came after it.
//   k f a m c a  ->  m
// The tokens before the last are different from each other. The trigger is any of them that has a successor, or always
// the first: the papers' proofs lose nothing by that, but then a model need only learn to look at position two.
#include <numeric>

#include "examples/whence/tasks/task.h"
#include "tensor/error.h"

namespace whence::tasks {
namespace {

class AssociativeRecall final : public DrawnTask {
 public:
  struct Options {
    std::int64_t length = 64, vocabulary = 512;
    std::string trigger = "anywhere";
  };
  static void declare(Fields& line, Options& options) {
    using Count = Range<std::int64_t>;
    line.integer("length", &options.length, Count{3, 1 << 20},
            {"sequence length with the trigger; tests go to 4 times that", "tokens"})
        .integer("vocabulary", &options.vocabulary, Count{2, 1 << 20},
            {"at least --length - 1; longer tests need more", "tokens"})
        .choice("trigger", &options.trigger, {"anywhere", "first"}, {"place where the last token was seen before"});
  }

  AssociativeRecall(const Options& options, const Fields& line) : options_(options) {
    if (options.vocabulary < options.length - 1)
      line.refuse("vocabulary", "at least --length - 1", "all tokens before the last differ");
    training_ = {{}, "associative_recall.train", options.length};
    for (const std::int64_t times : {1, 2, 4}) {
      const std::int64_t length = times * options.length;
      if (times > 1 && length > options.vocabulary + 1) continue;
      const TestSet about = times == 1 ? TestSet{"in distribution", "as in training"}
                                       : TestSet{to_text("length ", length), "longer than any trained on"};
      tests_.push_back({about, to_text("associative_recall.test", length), length});
    }
  }

  TransformerOptions model() const override {
    return {.vocabulary = options_.vocabulary,
        .length = tests_.back().value,  // enough for schemes with one row per position
        .dim = 64,
        .layers = 1,
        .heads = 1,
        .scheme = "cdape(none, kernel=3)"};
  }
  std::vector<Guess> guesses() const override {
    return {{"the second token", [](const Row& row) { return Tokens(row.inputs.size(), row.inputs[1]); }},
        {"the token before the trigger",
            [](const Row& row) { return Tokens(row.inputs.size(), row.inputs[row.inputs.size() - 2]); }}};
  }
  std::string text(std::int64_t token) const override { return to_text(token, " "); }
  Recipe recipe() const override { return {.steps = 3000, .batch = 32, .learning_rate = 1e-3, .weight_decay = 0}; }
  std::vector<std::pair<std::string, std::string>> description() const override {
    return {{"task", "associative_recall"}, {"length", std::to_string(options_.length)},
        {"vocabulary", std::to_string(options_.vocabulary)}, {"trigger", options_.trigger}};
  }

 private:
  // x_1 ... x_{N-1} different, x_N = x_s, target x_{s+1}.
  Row row(const DrawnSet& set, const Stream& stream) const override {
    Tokens tokens(static_cast<std::size_t>(options_.vocabulary));
    std::iota(tokens.begin(), tokens.end(), 0);
    const auto n = static_cast<std::size_t>(set.value);
    for (std::size_t k = 0; k + 1 < n; ++k)  // the first N - 1 of a random permutation
      std::swap(tokens[k], tokens[k + stream.below(k, static_cast<std::uint32_t>(tokens.size() - k))]);
    tokens.resize(n);
    const std::size_t seen = options_.trigger == "first" ? 0 : stream.below(n, static_cast<std::uint32_t>(n - 2));
    tokens[n - 1] = tokens[seen];
    Tokens targets(n, no_target);
    targets.back() = tokens[seen + 1];
    return {tokens, targets, targets};
  }

  Options options_;
};

const RegisterTask registered{{.name = "associative_recall",
    .title = "the last token was seen before: name the one after it",
    .paper = "Zheng et al. 2024, arXiv:2410.04798, appendix A",
    .declare = declared<AssociativeRecall>,
    .mini = "length=16 vocabulary=64 steps=1500",
    .rule = "The last token was seen before; the answer is the token after it."}};

}  // namespace
}  // namespace whence::tasks
