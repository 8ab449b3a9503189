// One command line of `train`, read and checked, with the study that it asks for.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "examples/whence/cli/command_line.h"
#include "examples/whence/machine/placement.h"
#include "examples/whence/machine/ranks.h"
#include "examples/whence/run/run_record.h"
#include "examples/whence/study/model_choice.h"
#include "examples/whence/study/study.h"

namespace whence {

struct TrainSettings {
  ModelChoice model;
  TrainingOptions training;
  bool json = false;
  std::string preset = "mini", out, from, weights_of, graph;
  bool describe = false;
  MachineOptions machine;
  RankOptions ranks;
};

class TrainRequest {
 public:
  // The words behind the study's name. With a record its options come in place of the defaults. InputError where train
  // refuses them.
  TrainRequest(std::unique_ptr<StudyOptions> study, const std::vector<std::string>& words,
      const std::optional<RunRecord>& record = std::nullopt);

  [[nodiscard]] const std::optional<std::string>& page() const { return page_; }  // of --help or --version
  [[nodiscard]] const StudyOptions& study() const { return *study_; }
  // REQUIRES: place() was called, where it trains.
  [[nodiscard]] std::unique_ptr<Study> make_study() const { return study_->make(line_, settings_.training); }
  [[nodiscard]] const TrainSettings& settings() const { return settings_; }
  [[nodiscard]] MachineOptions& machine() { return settings_.machine; }
  [[nodiscard]] const CommandLine& line() const { return line_; }
  // Of the study, with what was chosen.
  [[nodiscard]] TransformerOptions model() const { return with(study_->model(), settings_.model); }
  [[nodiscard]] RunRecord record(const Transformer& model, const Study& study) const;

  // Says where it trains, and with whom (null: nobody). --accumulate is of all ranks: left out, they share --batch, a part of a
  // step each, and both are recorded as if they had been typed. InputError when what is typed cannot be shared.
  void place(Device device, Communicator* ranks);

 private:
  void declare_options();
  void settle();

  std::unique_ptr<StudyOptions> study_;
  CommandLine line_;
  TrainSettings settings_;
  ModelChoice of_study_;  // before its options were read
  std::optional<std::string> page_;
  bool shared_ = false;  // --accumulate is the number of ranks, and --batch what each has
};

// Returns what the words behind "train" ask for: a study's name, a file or a folder, and options. Without the name it is that of the run
// that is repeated or gone on with (--from, --resume). FileError for a damaged record, which may have been the only
// reason for what was refused.
[[nodiscard]] std::unique_ptr<TrainRequest> read_train_request(std::vector<std::string> words);
// FileError where a run is repeated with no option typed in place of its own, and its data are others now.
void require_data_of_record(const TrainRequest& request, const Study& study, const std::vector<std::string>& words);

}  // namespace whence
