// One command line of `train`, read and checked, with the study that it names.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "examples/whence/cli/command_line.h"
#include "examples/whence/machine/placement.h"
#include "examples/whence/run/run_record.h"
#include "examples/whence/study/study.h"

namespace whence {

struct TrainSettings {
  ModelChoice model;
  TrainingOptions training;
  bool json = false;
  std::string preset = "mini", out, weights_of, graph;
  bool describe = false;
  MachineOptions machine;
};

class TrainRequest {
 public:
  // `words`: those after the study's name. A record's options replace the defaults. InputError if train refuses them.
  TrainRequest(std::unique_ptr<StudyOptions> study, const std::vector<std::string>& words,
      std::optional<RunRecord> record = std::nullopt);

  [[nodiscard]] const std::optional<std::string>& page() const { return page_; }  // of --help or --version
  [[nodiscard]] const StudyOptions& study() const { return *study_; }
  // REQUIRES: place() was called, where it trains.
  [[nodiscard]] std::unique_ptr<Study> make_study() const { return study_->make(line_, settings_.training); }
  [[nodiscard]] const TrainSettings& settings() const { return settings_; }
  [[nodiscard]] MachineOptions& machine() { return settings_.machine; }
  [[nodiscard]] const CommandLine& line() const { return line_; }
  // The study's model, with the choices of the command line.
  [[nodiscard]] TransformerOptions model() const { return with(study_->model(), settings_.model); }
  [[nodiscard]] RunRecord record(const Transformer& model, const Study& study) const;
  // FileError or DoesNotFit if a run is repeated with its own options alone, and its data have changed.
  void require_recorded_data(const Study& study) const;

  // Sets the device and the ranks (null: none). --accumulate counts over all ranks. Without it the ranks share --batch,
  // a part of a step each, and both are recorded as if typed. InputError when the typed values cannot be shared.
  void place(Device device, Communicator* ranks);

 private:
  void declare_options();
  void settle();

  std::unique_ptr<StudyOptions> study_;
  std::optional<RunRecord> repeated_;
  bool as_recorded_ = false;  // no option of that run has another value
  CommandLine line_;
  TrainSettings settings_;
  ModelChoice of_study_;  // the study's model before its options were read
  std::string preset_;
  std::optional<std::string> page_;
};

// Reads the words after "train": a study's name, a file or a folder, and options. Without a name the study is that of
// the resumed run. FileError for a damaged record, which may be the only reason why options are refused.
[[nodiscard]] std::unique_ptr<TrainRequest> read_train_request(std::vector<std::string> words);

}  // namespace whence
