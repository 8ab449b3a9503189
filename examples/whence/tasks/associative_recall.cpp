// Associative recall (Bietti et al. 2023; Zheng et al. 2024, arXiv:2410.04798, appendix A): the last token has been
// seen before; what came after it then?
//   k f a m c a  ->  m
// The tokens before the last are different from each other. The trigger is any of them that has one behind it, or
// always the first: the papers' proofs lose nothing by it, but a model that learns then need only look at place two.
#include <algorithm>
#include <numeric>

#include "examples/whence/tasks/task.h"
#include "tensor/error.h"
#include "tensor/random.h"

namespace whence::tasks {
namespace {

struct Options {
  std::int64_t length = 64, vocabulary = 512;
  std::string trigger = "anywhere";
};

struct Set {
  TestSet text;
  std::int64_t length;
};

class AssociativeRecall final : public Task {
 public:
  explicit AssociativeRecall(const Options& options) : options_(options) {
    sets_ = {{{"in distribution", "as in training"}, options.length}};
    for (const std::int64_t longer : {2 * options.length, 4 * options.length})
      if (longer <= options.vocabulary + 1)
        sets_.push_back({{to_text("length ", longer), "longer than any trained on"}, longer});
  }

  TransformerOptions model() const override {
    return {.vocabulary = options_.vocabulary,
        .length = sets_.back().length,  // as schemes with one row per position need it
        .dim = 64,
        .layers = 1,
        .heads = 1,
        .scheme = "cdape(none, kernel=3)"};
  }

  Batch training_batch(std::uint64_t seed, std::int64_t step, index_t sequences) const override {
    return batch("associative_recall.train", options_.length, seed, (step - 1) * sequences, sequences);
  }
  std::vector<TestSet> test_sets() const override {
    std::vector<TestSet> texts;
    for (const Set& set : sets_) texts.push_back(set.text);
    return texts;
  }
  Batch test_batch(std::size_t set, std::uint64_t seed, std::int64_t first, index_t sequences) const override {
    return batch(to_text("associative_recall.test", sets_.at(set).length), sets_[set].length, seed, first, sequences);
  }

  std::vector<Guess> guesses() const override {
    return {{"the second token", [](const Batch& batch) { return everywhere(batch, 1); }},
        {"the token before the trigger", [](const Batch& batch) { return everywhere(batch, batch.positions - 2); }}};
  }
  std::string text(std::int64_t token) const override { return to_text(token, " "); }
  Recipe recipe() const override { return {.steps = 3000, .batch = 32, .learning_rate = 1e-3, .weight_decay = 0}; }
  std::vector<std::pair<std::string, std::string>> description() const override {
    return {{"task", "associative_recall"}, {"length", std::to_string(options_.length)},
        {"vocabulary", std::to_string(options_.vocabulary)}, {"trigger", options_.trigger}};
  }

 private:
  static Tokens everywhere(const Batch& batch, index_t place) {
    Tokens guessed;
    for (std::size_t i = 0; i < batch.inputs.size(); ++i) {
      const std::size_t row = i / static_cast<std::size_t>(batch.positions) * static_cast<std::size_t>(batch.positions);
      guessed.push_back(batch.inputs[row + static_cast<std::size_t>(place)]);
    }
    return guessed;
  }

  // x_1 ... x_{N-1} different, x_N = x_s, target x_{s+1}.
  Row row(const Stream& stream, std::int64_t length) const {
    Tokens tokens(static_cast<std::size_t>(options_.vocabulary));
    std::iota(tokens.begin(), tokens.end(), 0);
    const auto n = static_cast<std::size_t>(length);
    for (std::size_t k = 0; k + 1 < n; ++k)  // the first N - 1 of a random permutation
      std::swap(tokens[k], tokens[k + stream.below(k, static_cast<std::uint32_t>(tokens.size() - k))]);
    tokens.resize(n);
    const std::size_t seen = options_.trigger == "first" ? 0 : stream.below(n, static_cast<std::uint32_t>(n - 2));
    tokens[n - 1] = tokens[seen];
    Row row{tokens, Tokens(n, no_target), {}};
    row.targets.back() = tokens[seen + 1];
    row.graded = row.targets;
    return row;
  }

  Batch batch(const std::string& purpose, std::int64_t length, std::uint64_t seed, std::int64_t first,
      index_t sequences) const {
    std::vector<Row> rows;
    for (index_t k = 0; k < sequences; ++k)
      rows.push_back(row(Stream(seed, purpose, static_cast<std::uint64_t>(first + k)), length));
    return batch_of(rows);
  }

  Options options_;
  std::vector<Set> sets_;
};

std::function<std::unique_ptr<Task>()> declare(CommandLine& line) {
  using Count = Range<std::int64_t>;
  const auto options = std::make_shared<Options>();
  line.heading("Task")
      .integer("length", &options->length, Count{3, 1 << 20},
          {"of a sequence, the trigger included; tests go to 4 times that", "tokens"})
      .integer("vocabulary", &options->vocabulary, Count{2, 1 << 20},
          {"at least --length - 1; longer tests need more", "tokens"})
      .choice("trigger", &options->trigger, {"anywhere", "first"}, {"where the last token was seen before"});
  return [options, &line]() -> std::unique_ptr<Task> {
    if (options->vocabulary < options->length - 1)
      line.refuse("vocabulary", "at least --length - 1", "all tokens before the last differ");
    return std::make_unique<AssociativeRecall>(*options);
  };
}

const RegisterTask registered{{.name = "associative_recall",
    .title = "the last token was seen before: name the one behind it",
    .paper = "Zheng et al. 2024, arXiv:2410.04798, appendix A",
    .declare = declare,
    .mini = "length=16 vocabulary=64 steps=1500"}};

}  // namespace
}  // namespace whence::tasks
