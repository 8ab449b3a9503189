// What every task is: sequences for training and for each of its test sets, targets, what counts, and guesses to
// compare a model with. A task is one file here. RegisterTask puts it into `train`, its --dump, `lab`, their help and
// the tests.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "examples/whence/cli/fields.h"
#include "nn/transformer.h"
#include "tensor/random.h"

namespace whence::tasks {

using Tokens = std::vector<std::int64_t>;
inline constexpr std::int64_t no_target = -1;  // no loss here, nothing to grade

// The random numbers of one sequence, one after another.
class Draw {
 public:
  explicit Draw(const Stream& stream) : stream_(stream) {}
  std::int64_t below(std::int64_t end) { return stream_.below(next_++, static_cast<std::uint32_t>(end)); }
  std::int64_t between(std::int64_t low, std::int64_t high) { return low + below(high - low + 1); }  // both ends belong
  Tokens symbols(index_t count, std::int64_t kinds);  // uniform, independent

 private:
  Stream stream_;
  std::uint64_t next_ = 0;
};

// One sequence. Of equal lengths:
struct Row {
  Tokens inputs;
  Tokens targets;  // the token wanted at each position, or no_target: where the loss is taken
  Tokens graded;   // the same for the metric, which may look at fewer positions
};

// Sequences of one length, row-major [b t].
struct Batch {
  index_t sequences = 0, positions = 0;  // b and t
  Tokens inputs = {}, targets = {}, graded = {};

  [[nodiscard]] Row row(index_t number) const;
  [[nodiscard]] Tensor input_tensor() const;   // i64 [b t]
  [[nodiscard]] Tensor target_tensor() const;  // i64 [b t]
  [[nodiscard]] std::int64_t counted() const;  // targets that are some
};

// Shorter sequences are filled up on the right with token 0, which is no target, is not graded, and which nothing
// before it sees in a causal model. A bidirectional one needs sequences of one length.
[[nodiscard]] Batch batch_of(const std::vector<Row>& rows);

// Wrong answers, over as many batches as are added.
struct Errors {
  std::int64_t tokens = 0, wrong_tokens = 0;
  std::int64_t sequences = 0, wrong_sequences = 0;                            // with at least one wrong token
  std::vector<std::int64_t> graded_by_sequence = {}, wrong_by_sequence = {};  // of these sequences, in tokens

  void add(const Batch& batch, const Tokens& predicted);  // predicted [b t]; only graded positions count
  [[nodiscard]] double token_percent() const;             // nan while nothing was added
  [[nodiscard]] double sequence_percent() const;
};

inline constexpr std::int64_t no_end = std::int64_t{1} << 62;  // of what is drawn, not read: there is always one more

struct TestSet {
  std::string name;                 // "in distribution", "sparse"; for lengths: "length 41"
  std::string description;          // what differs from training
  std::int64_t sequences = no_end;  // that it has
};

// What the task's paper printed for a scheme on a test set, with the task as it is by default.
struct PaperFigure {
  std::string scheme;  // "cope"
  double mean;         // of the task's metric
  double deviation;    // nan: not printed
};

// How the task's paper trains, or what we take where it does not say: the defaults of the training options.
struct Recipe {
  std::int64_t steps = 10000, batch = 16;
  double learning_rate = 3e-4;
  std::int64_t warm_up = 50;
  std::string decay = "linear";
  double weight_decay = 0.1;
  std::int64_t test_sequences = 1000;  // per test set
};

// A guess that needs no model: the most frequent answer, a coin.
struct Guess {
  std::string name;
  std::function<Tokens(const Row&)> answers;  // from what the model reads, and where it is graded

  [[nodiscard]] Tokens predict(const Batch& batch) const;  // [b t]
};

class Task {
 public:
  virtual ~Task() = default;

  // Vocabulary, outputs, longest training sequence, causal or not, and the model that the task's paper
  // trains: sizes, norms, dropout.
  [[nodiscard]] virtual TransformerOptions model() const = 0;
  // Batch of training step 1, 2, ...: a pure function of the seed and the step.
  [[nodiscard]] virtual Batch training_batch(std::uint64_t seed, std::int64_t step, index_t sequences) const = 0;
  [[nodiscard]] virtual std::vector<TestSet> test_sets() const = 0;
  // Sequences first, first + 1, ... of test set number `set`. None comes from the training stream. They are
  // the same however they are cut. Fewer where the set ends; InputError when `first` lies behind its end.
  [[nodiscard]] virtual Batch test_batch(
      std::size_t set, std::uint64_t seed, std::int64_t first, index_t sequences) const = 0;
  // The same of sequences that are like those of the first test set, but in none, and not trained on. Here: drawn as
  // that set is, under another seed.
  [[nodiscard]] virtual Batch validation_batch(std::uint64_t seed, std::int64_t first, index_t sequences) const;
  [[nodiscard]] virtual std::int64_t validation_sequences() const { return no_end; }  // that there are
  // Of a task that reads files: the SHA-256 of all that it read. Empty: it draws its sequences.
  [[nodiscard]] virtual std::string hash_of_files() const { return {}; }
  [[nodiscard]] virtual std::vector<Guess> guesses() const = 0;
  // The paper's headline. The other: "sequence error %".
  [[nodiscard]] virtual std::string metric() const { return "token error %"; }
  [[nodiscard]] virtual std::string text(std::int64_t token) const = 0;  // of one token that is read, for people
  // Of an answer, for people. Another text where a model has outputs of its own.
  [[nodiscard]] virtual std::string answer_text(std::int64_t token) const { return text(token); }
  [[nodiscard]] virtual Recipe recipe() const { return {}; }
  // Figures of the paper for test set number `set`. None where it prints none, or where the task's
  // options differ from the paper's.
  [[nodiscard]] virtual std::vector<PaperFigure> paper_figures(std::size_t /*set*/) const { return {}; }
  // The same for the average over all test sets, each counting the same.
  [[nodiscard]] virtual std::vector<PaperFigure> paper_averages() const { return {}; }
  // Other facts that a reader of the results should know, measured on these data: one line each.
  [[nodiscard]] virtual std::vector<std::string> notes(std::uint64_t /*seed*/) const { return {}; }
  // The answer at every position, from the model's logits [b t v]. Here: the most probable.
  [[nodiscard]] virtual Tokens answers(const Tensor& logits) const;
  // Every option's value that changes the data, as name and text: what a resumed run must share.
  [[nodiscard]] virtual std::vector<std::pair<std::string, std::string>> description() const = 0;
};

// A set of sequences that are drawn alike.
struct DrawnSet {
  TestSet about;
  std::string purpose;  // of its random streams
  std::int64_t value;   // what it differs in from the task's other sets: a length, a weight, a percentage
};

// A task that draws every sequence from a random stream of its own: (seed, the set's purpose, the sequence's number).
class DrawnTask : public Task {
 public:
  [[nodiscard]] Batch training_batch(std::uint64_t seed, std::int64_t step, index_t sequences) const override;
  [[nodiscard]] std::vector<TestSet> test_sets() const override;
  [[nodiscard]] Batch test_batch(
      std::size_t set, std::uint64_t seed, std::int64_t first, index_t sequences) const override;

 protected:
  [[nodiscard]] virtual Row row(const DrawnSet& set, const Stream& stream) const = 0;
  [[nodiscard]] Batch batch(const DrawnSet& set, std::uint64_t seed, std::int64_t first, index_t sequences) const;

  DrawnSet training_;
  std::vector<DrawnSet> tests_;
};

// Makes a task from the values that its options have on the line that they were declared on, once it is parsed. Owns
// these values.
using MakeTask = std::function<std::unique_ptr<Task>(const Fields&)>;

struct TaskInfo {
  std::string name;   // "selective_copy"
  std::string title;  // one line
  std::string paper = "one's own";
  // Declares the task's options, which must not share a name with those of the model and of training.
  std::function<MakeTask(Fields&)> declare;
  // Options of `train` as "steps=300 dim=32", the defaults of its preset mini: with these sizes it takes minutes on a
  // laptop, and the papers' findings can show. What the task declares are the papers' sizes, the preset paper.
  std::string mini;
  std::string rule = {};  // what a sequence is, and what is asked: sentences; empty: the title says it
};

// TaskInfo::declare of a task that has `struct Options`, a static function that declares them, and a constructor that
// takes them after parsing, completes them, and may refuse them by the line.
template <class Made> MakeTask declared(Fields& line) {
  const auto options = std::make_shared<typename Made::Options>();
  Made::declare(line.heading("Task"), *options);
  return [options](const Fields& parsed) { return std::make_unique<Made>(*options, parsed); };
}

// const RegisterTask registered{{.name = "selective_copy", ...}};
struct RegisterTask {  // where the name is taken or there is no mini, whoever reads the registry gets the Error
  explicit RegisterTask(TaskInfo info);
};
std::vector<TaskInfo> registered_tasks();            // by name
const TaskInfo& find_task(const std::string& name);  // InputError with the nearest name
// A task with options as they would stand on the command line: make_task("selective_copy", {"--tokens", "8"}).
[[nodiscard]] std::unique_ptr<Task> make_task(const std::string& name, const std::vector<std::string>& options = {});

// The most probable token of each row of logits [... v], row by row. The first of equals; -1, never right, where a
// logit is nan. Tokens below `first` are left out.
[[nodiscard]] Tokens most_probable(const Tensor& logits, std::int64_t first = 0);

}  // namespace whence::tasks
