// What is trained on: a task, questions of one's own (JSON lines), a text. `train` knows studies alone, and lends each
// its model, steps, files and machines. StudyOptions are what it can be told; a Study is made of them, and is whole from then on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "examples/whence/cli/fields.h"
#include "examples/whence/cli/json.h"
#include "examples/whence/machine/memory_plan.h"
#include "examples/whence/run/training.h"
#include "nn/transformer.h"

namespace whence {

using Facts = std::vector<std::pair<std::string, std::string>>;

class Study {
 public:
  virtual ~Study() = default;

  // What it has read, in lines for people; empty: nothing.
  [[nodiscard]] virtual std::string summary() const { return {}; }

  // Part 1, 2, ... of the training steps: inputs and targets i64 [b t], a target of -1 being none. A pure function of
  // seed and part.
  [[nodiscard]] virtual TrainingBatch batch(std::uint64_t seed, std::int64_t part) const = 0;
  [[nodiscard]] virtual TrainingBatch sample(std::uint64_t seed) const = 0;  // one sequence, to look at
  [[nodiscard]] virtual Validation validate(const Transformer& model, std::uint64_t seed) const = 0;
  [[nodiscard]] virtual PlannedPass largest_pass(
      std::uint64_t seed) const = 0;  // of the tests; its model is the caller's

  // What one should know before training, a line each. InputError where the model cannot be tested at all.
  [[nodiscard]] virtual std::vector<std::string> notes(Transformer&, const TrainingOptions&) const { return {}; }
  // Prints the tables of the trained model, and writes the files that it returns into training.folder.
  virtual std::vector<std::string> test(
      const Transformer& model, const TrainingResult& trained, const TrainingOptions& training) const = 0;

  // "measure", the field of results.jsonl that runs are compared by; "test_sets" with their names and a paper's figures.
  [[nodiscard]] virtual Json tests() const = 0;

  [[nodiscard]] virtual std::string data(std::uint64_t seed) const = 0;  // SHA-256 of what is trained on
  [[nodiscard]] virtual Facts facts(const TrainingOptions&) const = 0;   // what a resumed run must share
  [[nodiscard]] virtual Facts record_facts(const Transformer& model, std::uint64_t seed) const = 0;  // for run.json
};

class StudyOptions {
 public:
  virtual ~StudyOptions() = default;

  [[nodiscard]] virtual std::string name() const = 0;   // as it is typed and recorded: "flip_flop"
  [[nodiscard]] virtual std::string title() const = 0;  // one line, for --help
  // Options of `train` as "length=64 dim=64 steps=1500", its defaults unless --preset paper asks for those declared below:
  // with these sizes it takes minutes on a laptop, and the papers' findings can show.
  [[nodiscard]] virtual std::string mini() const = 0;

  // Options of its own, which share no name with those of the model and of training. They are bound to this object.
  virtual void declare(Fields& fields) = 0;
  // Once the options have their values. InputError where they do not go together.
  virtual void settle(const Fields& fields, const TrainingOptions& training) = 0;
  // By the options: vocabulary, outputs, length, and the model and steps that its paper takes.
  [[nodiscard]] virtual TransformerOptions model() const = 0;
  [[nodiscard]] virtual TrainingOptions training() const = 0;
  // Prints what is trained on where an option asks for no more than that: true then.
  [[nodiscard]] virtual bool shows_data(std::uint64_t /*seed*/) const { return false; }
  // Reads what training needs, such as a text. InputError where training.folder would lie in it.
  [[nodiscard]] virtual std::unique_ptr<Study> make(const Fields& fields, const TrainingOptions& training) const = 0;
};

[[nodiscard]] std::vector<std::string> study_names();  // every task's, and that of text
// With its options at their defaults. InputError with the nearest name.
[[nodiscard]] std::unique_ptr<StudyOptions> find_study(const std::string& name);
[[nodiscard]] std::unique_ptr<StudyOptions> text_study_options();

// A training of the model on the study. REQUIRES: both outlive the job.
[[nodiscard]] TrainingJob job_of(const Study& study, Transformer& model, const TrainingOptions& training);

}  // namespace whence
