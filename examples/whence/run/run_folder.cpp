#include "examples/whence/run/run_folder.h"

#include "examples/whence/cli/json_lines.h"
#include "examples/whence/cli/output_file.h"
#include "examples/whence/run/loading.h"
#include "examples/whence/run/run_files.h"
#include "nn/io/files.h"
#include "nn/io/json.h"
#include "nn/io/safetensors_header.h"
#include "tensor/error.h"
#include "tensor/suggest.h"

namespace whence {

RunFolder::RunFolder(std::filesystem::path folder, std::vector<Module::Parameter> weights, Facts description,
    std::uint64_t seed, std::int64_t keep)
    : folder_(std::move(folder)),
      weights_(std::move(weights)),
      description_(std::move(description)),
      seed_(seed),
      keep_(keep) {}

TrainingState RunFolder::open(bool resume, bool tensorboard, Adam& optimizer, bool accept_damaged) {
  if (folder_.empty()) return {};
  const auto latest = find_latest((folder_ / "checkpoints").string());
  if (resume && !latest) {
    throw InputError(
        "--resume: no checkpoint in ", folder_.string(), "; a run that saved once required; leave --resume out");
  }
  ensure_output_folder(folder_);
  checkpoints_ = std::make_unique<CheckpointFolder>((folder_ / "checkpoints").string(), keep_);
  remove_leftovers(folder_.string());  // the lock is held: no other run writes here
  if (latest && !resume) {
    throw InputError("--out: ", folder_.string(), " holds a run (", *latest,
        "); an empty folder required; add --resume to go on with it, or choose another folder");
  }
  TrainingState state;
  if (resume) {
    Trust said_below{accept_damaged};
    require_same_run(read_training_state(*latest, &said_below), *latest);
    state = load(*latest, weights_, &optimizer, accept_damaged);
    for (const char* log : {"metrics.jsonl", "looks.jsonl"}) truncate_jsonl_after(folder_ / log, state.step);
  }
  std::error_code none_there;
  if (!resume) std::filesystem::remove(folder_ / "looks.jsonl", none_there);
  log_ = std::make_unique<JsonLog>(folder_ / "metrics.jsonl", resume ? JsonLog::Mode::append : JsonLog::Mode::fresh);
  if (tensorboard) tensorboard_ = std::make_unique<TensorBoardLog>(folder_, state.step + 1);
  saved_ = state.step;
  return state;
}

void RunFolder::save(std::int64_t step, std::int64_t skipped, const Adam& optimizer, const Facts& facts) {
  if (!checkpoints_ || step == saved_) return;
  Facts all = facts;
  for (const auto& [name, value] : description_) all[name] = value;
  checkpoints_->save(weights_, optimizer, {.step = step, .seed = seed_, .facts = all, .skipped = skipped});
  saved_ = step;
}

void RunFolder::log(const Json& record) {
  if (log_) log_->append(record);
  if (!tensorboard_) return;
  std::int64_t step = 0;
  for (const auto& [name, value] : record.fields()) {
    if (name == "step") step = *value.as<std::int64_t>();
    if (const auto* number = value.as<double>()) tensorboard_->scalar(name, step, *number);
  }
  tensorboard_->flush();
}

void RunFolder::log_look(const Json& record) {
  if (!checkpoints_) return;
  if (!looks_) looks_ = std::make_unique<JsonLog>(folder_ / "looks.jsonl", JsonLog::Mode::append);
  looks_->append(record);
}

void RunFolder::write_csv_of_log() const {
  write("metrics.csv", checkpoints_ ? jsonl_as_csv(folder_ / "metrics.jsonl") : "");
}

void RunFolder::write(const std::string& name, const std::string& text) const {
  if (checkpoints_) write_file((folder_ / name).string(), text);
}

void RunFolder::save_weights(const std::string& name) const {
  if (checkpoints_) whence::save_weights((folder_ / name).string(), weights_);
}

void RunFolder::load_weights(const std::string& name, bool accept_damaged) const {
  if (checkpoints_) load((folder_ / name).string(), weights_, accept_damaged);
}

void RunFolder::require_same_run(const TrainingState& saved, const std::string& checkpoint) const {
  std::vector<std::string> differences;
  for (const auto& [name, value] : description_) {
    const auto entry = saved.facts.find(name);
    const std::string had = entry == saved.facts.end() ? "absent" : entry->second;
    if (name == "steps" || had == value) continue;  // more of them are another end of the same run
    differences.push_back(to_text("--", name, " was ", plain(had), ", is ", plain(value)));
  }
  if (!differences.empty())
    throw DoesNotFit(
        "--resume: ", checkpoint, " is of another run: ", first_few(differences, "; "), "; the same options required");
}

}  // namespace whence
