// Counting (Golovneva et al. 2024, section 5.3): run a program of three kinds of operations and print a variable.
//   a = 0 ; pass; a ++; pass; a ++; print a  ->  2
// Each operation is set (weight 1), increment (7) or pass (50); values end at 10. Their number is uniform on 3 ... 512.
// As in the authors' code, of a longer sequence only the last 512 tokens are kept, which may lose the set that the
// answer rests on; --block 0 keeps all. A training set of fixed size is gone through in a new order every epoch.
#include <algorithm>
#include <array>
#include <numeric>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/tasks/paper_figures.h"
#include "examples/whence/tasks/task.h"
#include "nn/models.h"
#include "tensor/error.h"
#include "tensor/random.h"

namespace whence::tasks {
namespace {

constexpr std::int64_t largest_value = 10;
constexpr std::array words = {"<pad>", "<sta>", "pass;", "=", ";", "++;", "print"};
// zero ... zero + 10 are the values.
enum Word : std::int64_t { pad, start, pass, equals, end, increment, print, zero };
constexpr std::int64_t first_variable = zero + largest_value + 1;

struct Options {
  std::int64_t variables = 1, operations = 512, pass_weight = 50, block = 512, training_set = 10000;
};

struct Set {
  TestSet text;
  std::string purpose;  // of the random stream
  std::int64_t pass_weight;
};

// The program's variables and its text so far.
class Program {
 public:
  explicit Program(std::int64_t variables) : values_(static_cast<std::size_t>(variables), unset) {}

  // One operation. Increments of nothing and beyond the largest value are drawn again, as a whole.
  void operate(Draw& draws, std::int64_t pass_weight) {
    constexpr std::int64_t set_weight = 1, increment_weight = 7;
    while (true) {
      const std::int64_t kind = draws.below(set_weight + increment_weight + pass_weight);
      if (kind < set_weight) return set(draws.below(static_cast<std::int64_t>(values_.size())));
      if (kind >= set_weight + increment_weight) return tokens_.push_back(pass);
      const std::vector<std::int64_t> known = set_variables();
      if (known.empty()) continue;
      const std::int64_t variable =
          known[static_cast<std::size_t>(draws.below(static_cast<std::int64_t>(known.size())))];
      if (values_[static_cast<std::size_t>(variable)] < largest_value) return count(variable);
    }
  }

  // The question, and its answer as the last token. REQUIRES: a variable is set.
  Tokens ask(Draw& draws) {
    const std::vector<std::int64_t> known = set_variables();
    const std::int64_t variable = known[static_cast<std::size_t>(draws.below(static_cast<std::int64_t>(known.size())))];
    tokens_.insert(
        tokens_.end(), {print, first_variable + variable, zero + values_[static_cast<std::size_t>(variable)]});
    return tokens_;
  }

  std::vector<std::int64_t> set_variables() const {
    std::vector<std::int64_t> known;
    for (std::size_t variable = 0; variable < values_.size(); ++variable)
      if (values_[variable] != unset) known.push_back(static_cast<std::int64_t>(variable));
    return known;
  }

 private:
  static constexpr std::int64_t unset = -1;
  void set(std::int64_t variable) {
    values_[static_cast<std::size_t>(variable)] = 0;
    tokens_.insert(tokens_.end(), {first_variable + variable, equals, zero, end});
  }
  void count(std::int64_t variable) {
    ++values_[static_cast<std::size_t>(variable)];
    tokens_.insert(tokens_.end(), {first_variable + variable, increment});
  }

  std::vector<std::int64_t> values_;
  Tokens tokens_;
};

// Context, question, answer. A program that sets nothing is drawn again, its length included.
Tokens sample(const Options& options, std::int64_t pass_weight, const Stream& stream) {
  Draw draws(stream);
  while (true) {
    Program program(options.variables);
    const std::int64_t operations = 3 + draws.below(options.operations - 2);
    for (std::int64_t k = 0; k < operations; ++k) program.operate(draws, pass_weight);
    if (!program.set_variables().empty()) return program.ask(draws);
  }
}

// The answer from counting visible tokens: the value since the last visible set, or else
// the number of visible increments.
std::int64_t count_of_what_is_left(const Tokens& inputs) {
  const std::int64_t asked = inputs.back();
  std::int64_t value = 0;
  for (std::size_t i = 0; i + 1 < inputs.size(); ++i) {
    if (inputs[i] != asked) continue;
    if (inputs[i + 1] == equals) value = 0;
    if (inputs[i + 1] == increment) ++value;
  }
  return zero + value;
}

class Counting final : public Task {
 public:
  explicit Counting(const Options& options) : options_(options) {
    sets_ = {{{"in distribution", "as in training"}, "counting.in_distribution", options.pass_weight}};
    for (const std::int64_t weight : {2 * options.pass_weight, options.pass_weight / 5}) {
      sets_.push_back({{to_text("pass weight ", weight), to_text("in place of ", options.pass_weight)},
          to_text("counting.pass", weight), weight});
    }
  }

  TransformerOptions model() const override {
    TransformerOptions model = named_model("ram");
    model.vocabulary = first_variable + options_.variables;
    model.length = options_.block ? options_.block : 4 * options_.operations + 3;
    model.scheme = to_text("cope(p_max=", model.length, ", z_scale=head)");
    return model;
  }

  Batch training_batch(std::uint64_t seed, std::int64_t step, index_t sequences) const override {
    const std::int64_t first = (step - 1) * sequences;
    std::vector<Row> rows;
    Tokens order;
    std::int64_t epoch_of_order = -1;
    for (std::int64_t k = first; k < first + sequences; ++k) {
      std::int64_t index = k;
      if (options_.training_set > 0) {
        const std::int64_t epoch = k / options_.training_set;
        if (epoch != epoch_of_order) order = order_of(epoch_of_order = epoch, seed);
        index = order[static_cast<std::size_t>(k % options_.training_set)];
      }
      rows.push_back(row(options_.pass_weight, Stream(seed, "counting.train", static_cast<std::uint64_t>(index))));
    }
    return batch_of(rows, pad);
  }
  std::vector<TestSet> test_sets() const override { return {sets_[0].text, sets_[1].text, sets_[2].text}; }
  Batch test_batch(std::size_t set, std::uint64_t seed, std::int64_t first, index_t sequences) const override {
    const Set& chosen = sets_.at(set);
    std::vector<Row> rows;
    for (std::int64_t k = first; k < first + sequences; ++k)
      rows.push_back(row(chosen.pass_weight, Stream(seed, chosen.purpose, static_cast<std::uint64_t>(k))));
    return batch_of(rows, pad);
  }

  std::vector<Guess> guesses() const override {
    return {{"always 10", [](const Batch& batch) { return Tokens(batch.inputs.size(), zero + largest_value); }},
        {"always 0", [](const Batch& batch) { return Tokens(batch.inputs.size(), zero); }}};
  }
  std::string text(std::int64_t token) const override {
    if (token < zero) return to_text(words[static_cast<std::size_t>(token)], " ");
    if (token < first_variable) return to_text(token - zero, " ");
    return {static_cast<char>('a' + token - first_variable), ' '};
  }
  Recipe recipe() const override {  // 100 epochs of 10 000 sequences
    return {.steps = 15625, .batch = 64, .learning_rate = 7e-5, .warm_up = 0, .decay = "constant", .weight_decay = 0};
  }
  std::vector<PaperFigure> paper_figures(std::size_t set) const override;
  std::vector<std::string> notes(std::uint64_t seed) const override;
  std::vector<std::pair<std::string, std::string>> description() const override {
    return {{"task", "counting"}, {"variables", std::to_string(options_.variables)},
        {"operations", std::to_string(options_.operations)}, {"pass-weight", std::to_string(options_.pass_weight)},
        {"block", std::to_string(options_.block)}, {"training-set", std::to_string(options_.training_set)}};
  }

 private:
  // The order of an epoch: a random permutation (Fisher and Yates).
  Tokens order_of(std::int64_t epoch, std::uint64_t seed) const {
    Tokens order(static_cast<std::size_t>(options_.training_set));
    std::iota(order.begin(), order.end(), 0);
    const Stream stream(seed, "counting.order", static_cast<std::uint64_t>(epoch));
    for (std::size_t left = order.size(); left > 1; --left)
      std::swap(order[left - 1], order[stream.below(left, static_cast<std::uint32_t>(left))]);
    return order;
  }

  Row row(std::int64_t pass_weight, const Stream& stream) const {
    const Tokens tokens = sample(options_, pass_weight, stream);
    const auto kept =
        std::min(static_cast<std::int64_t>(tokens.size()), options_.block ? options_.block : std::int64_t{1} << 40);
    Row row{{tokens.end() - kept, tokens.end() - 1}, Tokens(static_cast<std::size_t>(kept - 1), no_target), {}};
    row.targets.back() = tokens.back();
    row.graded = row.targets;
    return row;
  }

  Options options_;
  std::vector<Set> sets_;
};

std::vector<PaperFigure> Counting::paper_figures(std::size_t set) const {
  const bool as_printed = options_.operations == 512 && options_.pass_weight == 50 && options_.block == 512 &&
                          options_.training_set == 10000;
  if (!as_printed || (set > 0 && options_.variables != 1)) return {};
  if (set == 0) return printed_in("cope/table3", to_text(options_.variables, " var"));
  return printed_in("cope/table4", set == 1 ? "w_pass = 100" : "w_pass = 10");
}

// How many sequences of each test set the block cuts, and how often counting what is left gives a wrong answer: no
// model can be expected to do better than about that.
std::vector<std::string> Counting::notes(std::uint64_t seed) const {
  if (options_.block == 0) return {};
  constexpr std::int64_t count = 1000;
  std::vector<std::string> notes;
  for (const Set& set : sets_) {
    std::int64_t cut = 0, wrong = 0;
    for (std::int64_t k = 0; k < count; ++k) {
      const Stream stream(seed, set.purpose, static_cast<std::uint64_t>(k));
      cut += static_cast<std::int64_t>(sample(options_, set.pass_weight, stream).size()) > options_.block;
      const Row visible = row(set.pass_weight, stream);
      wrong += count_of_what_is_left(visible.inputs) != visible.targets.back();
    }
    notes.push_back(to_text(set.text.name, ": the block of ", options_.block, " tokens cuts ",
        fixed(0.1 * static_cast<double>(cut), 1), " % of the sequences; counting what is left errs on ",
        fixed(0.1 * static_cast<double>(wrong), 1), " %"));
  }
  return notes;
}

std::function<std::unique_ptr<Task>()> declare(CommandLine& line) {
  using Count = Range<std::int64_t>;
  const auto options = std::make_shared<Options>();
  line.heading("Task")
      .integer("variables", &options->variables, Count{1, 26}, {"that programs may set; the paper has 1, 3 and 5"})
      .integer("operations", &options->operations, Count{3, 1 << 20}, {"of a program at most"})
      .integer("pass-weight", &options->pass_weight, Count{0, 1 << 20},
          {"of pass, where set has 1 and increment 7; tests double it, and take a fifth"})
      .integer("block", &options->block, Count{0, 1 << 24}, {"that are kept, the last ones; 0: all", "tokens"})
      .integer("training-set", &options->training_set, Count{0, 1 << 30},
          {"in training, again and again; 0: never the same twice", "sequences"});
  return [options, &line]() -> std::unique_ptr<Task> {
    if (options->block == 1 || options->block == 2)
      line.refuse("block", "0, or 3 and more", "the question and its answer are 3 tokens");
    return std::make_unique<Counting>(*options);
  };
}

const RegisterTask registered{{.name = "counting",
    .title = "run a program of counters and print one",
    .paper = "Golovneva et al. 2024, arXiv:2405.18719, section 5.3",
    .declare = declare,
    .mini = "operations=32 block=128 dim=64 layers=2 heads=4 steps=3000 batch=32 lr=1e-3"}};

}  // namespace
}  // namespace whence::tasks
