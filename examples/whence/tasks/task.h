// The interface of tasks: sequences for training and for each test set, targets, graded tokens, and guesses to compare
// a model with. A task is one file here. RegisterTask adds it to `train`, its --dump, their help and the tests.
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

// Draws the random numbers of one sequence, one after another.
class Draw {
 public:
  explicit Draw(const Stream& stream) : stream_(stream) {}
  std::int64_t below(std::int64_t end) { return stream_.below(next_++, static_cast<std::uint32_t>(end)); }
  std::int64_t between(std::int64_t low, std::int64_t high) { return low + below(high - low + 1); }  // inclusive
  Tokens symbols(index_t count, std::int64_t kinds);  // uniform, independent

 private:
  Stream stream_;
  std::uint64_t next_ = 0;
};

// One sequence. All lengths are equal:
struct Row {
  Tokens inputs;
  Tokens targets;  // the token wanted at each position, or no_target; decides the loss
  Tokens graded;   // the same for the metric, which may count fewer positions
};

// Sequences of one length, row-major [b t].
struct Batch {
  index_t sequences = 0, positions = 0;  // b and t
  Tokens inputs = {}, targets = {}, graded = {};

  [[nodiscard]] Row row(index_t number) const;
  [[nodiscard]] Tensor input_tensor() const;   // i64 [b t]
  [[nodiscard]] Tensor target_tensor() const;  // i64 [b t]
  [[nodiscard]] std::int64_t counted() const;  // targets other than no_target
};

// Pads shorter sequences on the right with token 0, which is no target and not graded. In a causal model no earlier
// token sees it; a bidirectional model needs sequences of one length.
[[nodiscard]] Batch batch_of(const std::vector<Row>& rows);

// Wrong answers, over all batches that are added.
struct Errors {
  std::int64_t tokens = 0, wrong_tokens = 0;
  std::int64_t sequences = 0, wrong_sequences = 0;                            // wrong: at least one wrong token
  std::vector<std::int64_t> graded_by_sequence = {}, wrong_by_sequence = {};  // per sequence, in tokens

  void add(const Batch& batch, const Tokens& predicted);  // predicted [b t]; only graded positions count
  [[nodiscard]] double token_percent() const;             // nan while nothing was added
  [[nodiscard]] double sequence_percent() const;
};

inline constexpr std::int64_t no_end = std::int64_t{1} << 62;  // the size of a drawn set, which has no end

struct TestSet {
  std::string name;                 // "in distribution", "sparse"; for lengths: "length 41"
  std::string description;          // its difference from training
  std::int64_t sequences = no_end;  // its size
};

// The training recipe of the task's paper, or ours if it has none: the defaults of the training options.
struct Recipe {
  std::int64_t steps = 10000, batch = 16;
  double learning_rate = 3e-4;
  std::int64_t warm_up = 50;
  std::string decay = "linear";
  double weight_decay = 0.1;
  std::int64_t test_sequences = 1000;  // per test set
};

// A guess that needs no model, such as the most frequent answer or a coin.
struct Guess {
  std::string name;
  std::function<Tokens(const Row&)> answers;  // reads the model's inputs and the graded positions

  [[nodiscard]] Tokens predict(const Batch& batch) const;  // [b t]
};

class Task {
 public:
  virtual ~Task() = default;

  // Vocabulary, outputs, longest training sequence, causal or not, and sizes, norms, dropout of the task's paper.
  [[nodiscard]] virtual TransformerOptions model() const = 0;
  // Returns the batch of training step 1, 2, ...: a pure function of the seed and the step.
  [[nodiscard]] virtual Batch training_batch(std::uint64_t seed, std::int64_t step, index_t sequences) const = 0;
  [[nodiscard]] virtual std::vector<TestSet> test_sets() const = 0;
  // Returns sequences first, first + 1, ... of test set number `set`, none of which is in the training stream. They do
  // not depend on how they are cut. Fewer at the set's end; InputError when `first` is beyond its end.
  [[nodiscard]] virtual Batch test_batch(
      std::size_t set, std::uint64_t seed, std::int64_t first, index_t sequences) const = 0;
  // Likewise sequences like those of the first test set, but in no test set and not trained on. Here: drawn as that set
  // is, under another seed.
  [[nodiscard]] virtual Batch validation_batch(std::uint64_t seed, std::int64_t first, index_t sequences) const;
  [[nodiscard]] virtual std::int64_t validation_sequences() const { return no_end; }  // their number
  // The SHA-256 of the files that the task reads. Empty: it draws its sequences.
  [[nodiscard]] virtual std::string hash_of_files() const { return {}; }
  [[nodiscard]] virtual std::vector<Guess> guesses() const = 0;
  // The paper's main metric. The other is "sequence error %".
  [[nodiscard]] virtual std::string metric() const { return "token error %"; }
  [[nodiscard]] virtual std::string text(std::int64_t token) const = 0;  // of one input token, for people
  // Returns an answer for people; differs from text() if a model has its own outputs.
  [[nodiscard]] virtual std::string answer_text(std::int64_t token) const { return text(token); }
  [[nodiscard]] virtual Recipe recipe() const { return {}; }
  // Further facts about the results, measured on these data: one line each.
  [[nodiscard]] virtual std::vector<std::string> notes(std::uint64_t /*seed*/) const { return {}; }
  // Returns every option that changes the data, as name and text. A resumed run must share them.
  [[nodiscard]] virtual std::vector<std::pair<std::string, std::string>> description() const = 0;
};

// A set of sequences from one distribution.
struct DrawnSet {
  TestSet about;
  std::string purpose;  // names its random streams
  std::int64_t value;   // its difference from the task's other sets: a length, a weight, a percentage
};

// A task that draws every sequence from its own random stream: (seed, the set's purpose, the sequence's number).
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

// Makes a task from the values of its options, once the line that declared them is parsed. Owns these values.
using MakeTask = std::function<std::unique_ptr<Task>(const Fields&)>;

struct TaskInfo {
  std::string name;   // "selective_copy"
  std::string title;  // one line
  std::string paper = "one's own";
  // Declares the task's options, which must not share a name with those of the model and of training.
  std::function<MakeTask(Fields&)> declare;
  // Options of `train` as "steps=300 dim=32", the defaults of its preset mini: with these sizes it takes minutes on a
  // laptop, and the papers' findings can show. The task's own defaults are the papers' sizes, the preset paper.
  std::string mini;
  std::string rule = {};  // sentences that explain a sequence and its question; empty: the title does
};

// TaskInfo::declare for a task with `struct Options`, a static function that declares them, and a constructor that
// takes them after parsing, completes them, and may refuse them.
template <class Made> MakeTask declared(Fields& line) {
  const auto options = std::make_shared<typename Made::Options>();
  Made::declare(line.heading("Task"), *options);
  return [options](const Fields& parsed) { return std::make_unique<Made>(*options, parsed); };
}

// const RegisterTask registered{{.name = "selective_copy", ...}};
struct RegisterTask {
  explicit RegisterTask(TaskInfo info);
};
const std::vector<TaskInfo>& registered_tasks();     // by name; Error for a taken name or a missing mini
const TaskInfo& find_task(const std::string& name);  // InputError with the nearest name
// Makes a task with options as on a command line: make_task("selective_copy", {"--tokens", "8"}).
[[nodiscard]] std::unique_ptr<Task> make_task(const std::string& name, const std::vector<std::string>& options = {});

// Returns the most probable token of each row of logits [... v]. The first of equals; -1, never right, if a logit is
// nan.
[[nodiscard]] Tokens most_probable(const Tensor& logits);

}  // namespace whence::tasks
