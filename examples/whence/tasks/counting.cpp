// Counting (Golovneva et al. 2024, section 5.3): run a program of three kinds of operations and print a variable.
//   a = 0 ; pass; a ++; pass; a ++; print a  ->  2
// Each operation is set (weight 1), increment (7) or pass (50); values end at 10. Their number is uniform on 3 ... 512.
// As in the authors' code, only the last 512 tokens of a sequence are kept. This may lose the set that decides the
// answer; --block 0 keeps all. A training set of fixed size has a new order in every epoch.
#include <array>
#include <map>
#include <numeric>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/machine/models.h"
#include "examples/whence/tasks/task.h"
#include "tensor/error.h"

namespace whence::tasks {
namespace {

constexpr std::int64_t largest_value = 10;
constexpr std::array token_texts = {"<pad>", "<sta>", "pass;", "=", ";", "++;", "print"};
// The values are zero ... zero + 10.
enum Word : std::int64_t { pad, start, pass, assign, end, increment, print, zero };
constexpr std::int64_t first_variable = zero + largest_value + 1;

// The variables that are set so far, and the text.
struct Program {
  std::map<std::int64_t, std::int64_t> values;
  Tokens tokens;

  // Draws one operation. An increment without a variable, or beyond the largest value, is drawn again as a whole.
  void operate(Draw& draws, std::int64_t variables, std::int64_t pass_weight) {
    constexpr std::int64_t set_weight = 1, increment_weight = 7;
    while (true) {
      const std::int64_t kind = draws.below(set_weight + increment_weight + pass_weight);
      if (kind >= set_weight + increment_weight) return tokens.push_back(pass);
      if (kind < set_weight) {
        const std::int64_t variable = draws.below(variables);
        values[variable] = 0;
        return add({first_variable + variable, assign, zero, end});
      }
      if (values.empty()) continue;
      auto& [variable, value] = any(draws);
      if (value < largest_value) return ++value, add({first_variable + variable, increment});
    }
  }

  // Appends the question, with its answer as the last token. REQUIRES: a variable is set.
  void ask(Draw& draws) {
    const auto& [variable, value] = any(draws);
    add({print, first_variable + variable, zero + value});
  }

 private:
  std::pair<const std::int64_t, std::int64_t>& any(Draw& draws) {
    return *std::next(values.begin(), draws.below(static_cast<std::int64_t>(values.size())));
  }
  void add(const Tokens& more) { tokens.insert(tokens.end(), more.begin(), more.end()); }
};

// Counts visible tokens: the value since the last visible set, or else the number of visible increments.
std::int64_t count_of_what_is_left(const Tokens& inputs) {
  const std::int64_t asked = inputs.back();
  std::int64_t value = 0;
  for (std::size_t i = 0; i + 1 < inputs.size(); ++i) {
    if (inputs[i] != asked) continue;
    if (inputs[i + 1] == assign) value = 0;
    if (inputs[i + 1] == increment) ++value;
  }
  return zero + value;
}

class Counting final : public DrawnTask {
 public:
  struct Options {
    std::int64_t variables = 1, operations = 512, pass_weight = 50, block = 512, training_set = 10000;
  };
  static void declare(Fields& line, Options& options) {
    using Count = Range<std::int64_t>;
    line.integer(
            "variables", &options.variables, Count{1, 26}, {"number that programs may set; the paper has 1, 3 and 5"})
        .integer("operations", &options.operations, Count{3, 1 << 20}, {"largest number in a program"})
        .integer("pass-weight", &options.pass_weight, Count{1, 1 << 20},
            {"weight of pass; set has 1, increment 7; tests double it, and take a fifth"})
        .integer("block", &options.block, Count{0, 1 << 24}, {"last ones to keep; 0: all", "tokens"})
        .integer("training-set", &options.training_set, Count{0, 1 << 30},
            {"size of the training set; 0: never the same twice", "sequences"});
  }

  Counting(const Options& options, const Fields& line) : options_(options) {
    if (options.block == 1 || options.block == 2)
      line.refuse("block", "0, or 3 and more", "the question and its answer are 3 tokens");
    training_ = {{}, "counting.train", options.pass_weight};
    tests_ = {{{"in distribution", "as in training"}, "counting.in_distribution", options.pass_weight}};
    for (const std::int64_t weight : {2 * options.pass_weight, options.pass_weight / 5})
      tests_.push_back({{to_text("pass weight ", weight), to_text("in place of ", options.pass_weight)},
          to_text("counting.pass", weight), weight});
  }

  TransformerOptions model() const override {
    TransformerOptions model = named_model("ram");
    model.vocabulary = first_variable + options_.variables;
    model.length = options_.block ? options_.block : 4 * options_.operations + 3;
    model.scheme = to_text("cope(p_max=", model.length, ", z_scale=head)");
    return model;
  }

  Batch training_batch(std::uint64_t seed, std::int64_t step, index_t sequences) const override {
    if (options_.training_set == 0) return DrawnTask::training_batch(seed, step, sequences);
    std::vector<Row> rows;
    Tokens order;
    std::int64_t epoch_of_order = -1;
    for (std::int64_t k = (step - 1) * sequences; k < step * sequences; ++k) {
      const std::int64_t epoch = k / options_.training_set;
      if (epoch != epoch_of_order) order = order_of(epoch_of_order = epoch, seed);
      const std::int64_t number = order[static_cast<std::size_t>(k % options_.training_set)];
      rows.push_back(row(training_, Stream(seed, training_.purpose, static_cast<std::uint64_t>(number))));
    }
    return batch_of(rows);
  }

  std::vector<Guess> guesses() const override {
    return {{"always 10", [](const Row& row) { return Tokens(row.inputs.size(), zero + largest_value); }},
        {"always 0", [](const Row& row) { return Tokens(row.inputs.size(), zero); }}};
  }
  std::string text(std::int64_t token) const override {
    if (token < zero) return to_text(token_texts[static_cast<std::size_t>(token)], " ");
    if (token < first_variable) return to_text(token - zero, " ");
    return {static_cast<char>('a' + token - first_variable), ' '};
  }
  Recipe recipe() const override {  // 100 epochs of 10 000 sequences
    return {.steps = 15625, .batch = 64, .learning_rate = 7e-5, .warm_up = 0, .decay = "constant", .weight_decay = 0};
  }
  std::vector<std::string> notes(std::uint64_t seed) const override;
  std::vector<std::pair<std::string, std::string>> description() const override {
    return {{"task", "counting"}, {"variables", std::to_string(options_.variables)},
        {"operations", std::to_string(options_.operations)}, {"pass-weight", std::to_string(options_.pass_weight)},
        {"block", std::to_string(options_.block)}, {"training-set", std::to_string(options_.training_set)}};
  }

 private:
  // Returns an epoch's order, a random permutation (Fisher and Yates).
  Tokens order_of(std::int64_t epoch, std::uint64_t seed) const {
    Tokens order(static_cast<std::size_t>(options_.training_set));
    std::iota(order.begin(), order.end(), 0);
    const Stream stream(seed, "counting.order", static_cast<std::uint64_t>(epoch));
    for (std::size_t left = order.size(); left > 1; --left)
      std::swap(order[left - 1], order[stream.below(left, static_cast<std::uint32_t>(left))]);
    return order;
  }

  // Draws context, question and answer. A program that sets nothing is drawn again, with its length.
  Tokens sample(const DrawnSet& set, const Stream& stream) const {
    Draw draws(stream);
    while (true) {
      Program program;
      const std::int64_t operations = 3 + draws.below(options_.operations - 2);
      for (std::int64_t k = 0; k < operations; ++k) program.operate(draws, options_.variables, set.value);
      if (program.values.empty()) continue;
      program.ask(draws);
      return program.tokens;
    }
  }

  Row row(const DrawnSet& set, const Stream& stream) const override {
    Tokens inputs = sample(set, stream);
    const auto block = static_cast<std::size_t>(options_.block);
    if (block > 0 && inputs.size() > block)
      inputs.erase(inputs.begin(), inputs.end() - static_cast<std::ptrdiff_t>(block));
    const std::int64_t answer = inputs.back();
    inputs.pop_back();
    Tokens targets(inputs.size(), no_target);
    targets.back() = answer;
    return {inputs, targets, targets};
  }

  Options options_;
};

// Reports how many sequences of each test set the block cuts, and how often counting the rest gives a wrong answer. No
// model can be expected to do much better.
std::vector<std::string> Counting::notes(std::uint64_t seed) const {
  if (options_.block == 0) return {};
  constexpr std::int64_t count = 1000;
  std::vector<std::string> notes;
  for (const DrawnSet& set : tests_) {
    std::int64_t cut = 0, wrong = 0;
    for (std::int64_t k = 0; k < count; ++k) {
      const Stream stream(seed, set.purpose, static_cast<std::uint64_t>(k));
      cut += static_cast<std::int64_t>(sample(set, stream).size()) > options_.block;
      const Row visible = row(set, stream);
      wrong += count_of_what_is_left(visible.inputs) != visible.targets.back();
    }
    notes.push_back(to_text(set.about.name, ": the block of ", options_.block, " tokens cuts ",
        fixed(0.1 * static_cast<double>(cut), 1), " % of the sequences; counting what is left errs on ",
        fixed(0.1 * static_cast<double>(wrong), 1), " %"));
  }
  return notes;
}

const RegisterTask registered{{.name = "counting",
    .title = "run a program of counters and print one",
    .paper = "Golovneva et al. 2024, arXiv:2405.18719, section 5.3",
    .declare = declared<Counting>,
    .mini = "operations=32 block=128 dim=64 layers=2 heads=4 steps=3000 batch=32 lr=1e-3",
    .rule = "A program sets variables to 0, counts them up and passes; print asks for the value of one."}};

}  // namespace
}  // namespace whence::tasks
