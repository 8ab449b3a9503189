// A study is what is trained on: a task, a user's questions (JSON lines), or a text. `train` uses only this interface, and
// provides model, steps, files and machines. StudyOptions holds the options; a Study is made from them and is then complete.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "examples/whence/cli/fields.h"
#include "examples/whence/cli/json.h"
#include "examples/whence/machine/memory.h"
#include "examples/whence/run/training.h"
#include "nn/transformer.h"

namespace whence {

using Facts = std::vector<std::pair<std::string, std::string>>;

class Study {
 public:
  virtual ~Study() = default;

  // Describes its data, in lines for people, notes among them.
  [[nodiscard]] virtual std::string summary(std::uint64_t seed) const = 0;

  // Returns part 1, 2, ... of the training steps: inputs and targets i64 [b t], a target of -1 being none. A pure
  // function of seed and part.
  [[nodiscard]] virtual TrainingBatch batch(std::uint64_t seed, std::int64_t part) const = 0;
  [[nodiscard]] virtual Validation validate(const Transformer& model, std::uint64_t seed) const = 0;
  [[nodiscard]] virtual PlannedPass largest_pass(
      std::uint64_t seed) const = 0;  // for the tests; the caller makes its model

  // InputError if the model refuses every test: nobody should train it in vain.
  virtual void require_a_test(const Transformer&, std::uint64_t /*seed*/) const {}
  // Prints the tables of the trained model, writes files into training.folder, and returns their names.
  virtual std::vector<std::string> test(
      const Transformer& model, const TrainingResult& trained, const TrainingOptions& training) const = 0;

  // "measure" is the field of results.jsonl that compares runs; "test_sets" has their names and a paper's figures.
  [[nodiscard]] virtual Json tests() const = 0;

  [[nodiscard]] virtual std::string data(std::uint64_t seed) const = 0;  // SHA-256 of the training data
  [[nodiscard]] virtual Facts facts(const TrainingOptions&) const = 0;   // a resumed run must share these
  [[nodiscard]] virtual Facts record_facts(const Transformer& model, std::uint64_t seed) const = 0;  // for run.json
};

class StudyOptions {
 public:
  virtual ~StudyOptions() = default;

  [[nodiscard]] virtual std::string name() const = 0;   // as typed and recorded: "flip_flop"
  [[nodiscard]] virtual std::string title() const = 0;  // one line, for --help
  // Returns options of `train` as "length=64 dim=64 steps=1500": the defaults, unless --preset paper selects those
  // declared below. With these sizes training takes minutes on a laptop, and the papers' findings can show.
  [[nodiscard]] virtual std::string mini() const = 0;

  // Declares the study's own options, which share no name with those of the model and of training, bound to this object.
  virtual void declare(Fields& fields) = 0;
  // Checks the options once they have their values. InputError if they do not go together.
  virtual void settle(const Fields& fields, const TrainingOptions& training) = 0;
  // Returns sizes that follow from the options: vocabulary, outputs, length, and the paper's model and steps.
  [[nodiscard]] virtual TransformerOptions model() const = 0;
  [[nodiscard]] virtual TrainingOptions training() const = 0;
  // Prints the data and returns true if an option requests only that.
  [[nodiscard]] virtual bool shows_data(std::uint64_t /*seed*/) const { return false; }
  // Reads the data for training, such as a text. InputError if training.folder is inside of it.
  [[nodiscard]] virtual std::unique_ptr<Study> make(const Fields& fields, const TrainingOptions& training) const = 0;
};

// The part of a study's model that a command line may choose; the study decides the rest.
struct ModelChoice {
  std::string scheme, activation, executor;
  std::int64_t dim = 0, layers = 0, heads = 0, kv_heads = 0;
  double dropout = 0;
  bool recompute_layers = false;
};

[[nodiscard]] ModelChoice choice_of(const TransformerOptions& model);
void declare(Fields& line, ModelChoice& choice);  // declares the options under the title "Model"
// Options that were not typed follow the study's model if the study's options changed it from `before` to `after`.
void follow(const Fields& line, ModelChoice& choice, const ModelChoice& before, const ModelChoice& after);
// A dropout of patterns and hidden numbers follows if the model has one, and so does an MLP's width other than 4 dim.
[[nodiscard]] TransformerOptions with(const TransformerOptions& model, const ModelChoice& choice);

[[nodiscard]] std::vector<std::string> study_names();  // every task's name, and the text's
// Returns the study with its options at their defaults. InputError with the nearest name.
[[nodiscard]] std::unique_ptr<StudyOptions> find_study(const std::string& name);
[[nodiscard]] std::unique_ptr<StudyOptions> task_study_options(const std::string& name);
[[nodiscard]] std::unique_ptr<StudyOptions> text_study_options();

// Makes the job that trains the model on the study. REQUIRES: both outlive the job.
[[nodiscard]] TrainingJob job_of(const Study& study, Transformer& model, const TrainingOptions& training);

}  // namespace whence
