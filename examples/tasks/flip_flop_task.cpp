// Flip-flop among the other tasks: the generator, the metric and the guesses of flip_flop.h behind the interface of
// task.h.
#include "examples/tasks/flip_flop.h"
#include "examples/tasks/task.h"
#include "tensor/error.h"

namespace whence::tasks {
namespace {

struct Options {
  std::int64_t length = 512;
  std::string targets = "reads", answers = "vocabulary";
};

constexpr FlipFlopSet test_sets_of_flip_flop[] = {in_distribution_set, sparse_set, dense_set};

class FlipFlopTask final : public Task {
 public:
  explicit FlipFlopTask(const Options& options) : options_(options) {
    check({static_cast<int>(options.length), training_set.p_ignore});
  }

  TransformerOptions model() const override {
    return {.vocabulary = flip_flop_vocabulary,
        .length = options_.length,
        .dim = 256,
        .layers = 4,
        .heads = 4,
        .scheme = "cope"};
  }

  Batch training_batch(std::uint64_t seed, std::int64_t step, index_t sequences) const override {
    return batch(training_set, seed, (step - 1) * sequences, sequences,
        options_.targets == "all" ? Targets::all : Targets::clean);
  }
  std::vector<TestSet> test_sets() const override {
    std::vector<TestSet> sets;
    for (const FlipFlopSet& set : test_sets_of_flip_flop) {
      sets.push_back(
          {std::string(set.name), to_text("an instruction is to be ignored with probability ", set.p_ignore)});
    }
    return sets;
  }
  Batch test_batch(std::size_t set, std::uint64_t seed, std::int64_t first, index_t sequences) const override {
    if (set >= std::size(test_sets_of_flip_flop))
      throw Error(to_text("flip_flop: test set ", set, " given; 0 to 2 required"));
    return batch(test_sets_of_flip_flop[set], seed, first, sequences, Targets::clean);
  }

  std::vector<Guess> guesses() const override {
    std::vector<Guess> guesses;
    for (const Baseline baseline : baselines) {
      guesses.push_back({std::string(name(baseline)), [baseline](const Batch& batch) {
                           return predict(baseline, {batch.sequences, batch.positions, batch.inputs, batch.targets});
                         }});
    }
    return guesses;
  }
  Tokens answers(const Tensor& logits) const override {
    return most_probable(logits, options_.answers == "bits" ? zero_token : 0);
  }
  std::string text(std::int64_t token) const override { return tasks::text(std::span(&token, 1)); }
  // Liu et al. add the warm-up and the weight decay; the CoPE paper states the rest.
  Recipe recipe() const override { return {}; }
  std::vector<PaperFigure> paper_figures(std::size_t set) const override {
    if (options_.length != 512 || set > 1) return {};
    if (set == 0) return {{"absolute", 6.8, 6.9}, {"rope", 1.8, 3.1}, {"cope", 0.03, 0.06}};
    return {{"absolute", 21.7, 7.9}, {"rope", 20.3, 2.9}, {"cope", 4.9, 4.4}};
  }
  std::vector<std::pair<std::string, std::string>> description() const override {
    return {{"task", "flip_flop"}, {"length", std::to_string(options_.length)}, {"targets", options_.targets}};
  }

 private:
  // The metric looks at reads alone, wherever the loss is taken.
  Batch batch(
      const FlipFlopSet& set, std::uint64_t seed, std::int64_t first, index_t sequences, Targets targets) const {
    FlipFlopBatch made = flip_flop_batch(set, static_cast<int>(options_.length), seed,
        static_cast<std::uint64_t>(first), static_cast<int>(sequences), targets);
    Tokens graded = made.targets;
    for (std::size_t i = 0; i < graded.size(); ++i) {
      if (made.inputs[i] != read_token) graded[i] = no_target;
    }
    return {made.sequences, made.positions, std::move(made.inputs), std::move(made.targets), std::move(graded)};
  }

  Options options_;
};

std::function<std::unique_ptr<Task>()> declare(CommandLine& line) {
  const auto options = std::make_shared<Options>();
  line.heading("Task")
      .integer("length", &options->length, Range<std::int64_t>{4, 65536}, {"of a string, an even number", "tokens"})
      .choice(
          "targets", &options->targets, {"reads", "all"}, {"where the loss is taken: at reads, or at all positions"})
      .choice("answers", &options->answers, {"vocabulary", "bits"}, {"what a prediction may be in the tests"});
  return [options]() -> std::unique_ptr<Task> { return std::make_unique<FlipFlopTask>(*options); };
}

const RegisterTask registered{{.name = "flip_flop",
    .title = "remember one bit among distractors",
    .paper = "Liu et al. 2023, arXiv:2306.00946; Golovneva et al. 2024, arXiv:2405.18719, section 5.1",
    .declare = declare,
    .mini = "length=64 dim=64 layers=2 heads=4 steps=1500 lr=1e-3"}};

}  // namespace
}  // namespace whence::tasks
