#include "examples/whence/run/run_folder.h"

#include "examples/whence/cli/output_file.h"
#include "examples/whence/run/run_files.h"
#include "examples/whence/run/shared_training.h"
#include "nn/io/files.h"
#include "nn/io/safetensors.h"
#include "tensor/error.h"
#include "tensor/suggest.h"

namespace whence {

TrainingState RunFolder::open(Optimizer& optimizer) {
  const std::filesystem::path& folder = options_.folder;
  if (folder.empty() || !speaks(options_.ranks)) return {};
  const auto latest = find_latest((folder / "checkpoints").string());
  if (options_.resume && !latest)
    throw InputError(
        "--resume: no checkpoint in ", folder.string(), "; a run that saved once required; leave --resume out");
  ensure_output_folder(folder);
  checkpoints_.emplace((folder / "checkpoints").string(), options_.keep_checkpoints);
  remove_leftovers(folder.string());  // the lock is held: no other run writes here
  if (latest && !options_.resume)
    throw InputError("--out: ", folder.string(), " holds a run (", *latest,
        "); an empty folder required; add --resume to go on with it, or choose another folder");
  TrainingState state;
  if (options_.resume) {
    require_same_run(read_training_state(*latest), *latest);
    state = load_checkpoint(*latest, weights_, &optimizer);
    truncate_jsonl_after(folder / "metrics.jsonl", state.step);
  }
  log_.emplace(folder / "metrics.jsonl", options_.resume ? JsonLog::Mode::append : JsonLog::Mode::fresh);
  saved_ = state.step;
  return state;
}

void RunFolder::save(std::int64_t step, std::int64_t skipped, const Optimizer& optimizer, const Facts& facts) {
  if (!checkpoints_ || step == saved_) return;
  Facts all = facts;
  for (const auto& [name, value] : description_) all[name] = value;
  checkpoints_->save(weights_, optimizer, {.step = step, .seed = options_.seed, .facts = all, .skipped = skipped});
  saved_ = step;
}

void RunFolder::log(const Json& record) {
  if (log_) log_->append(record);
}

void RunFolder::write_csv_of_log() const {
  if (checkpoints_) write("metrics.csv", jsonl_as_csv(options_.folder / "metrics.jsonl"));
}

void RunFolder::write(const std::string& name, const std::string& text) const {
  if (checkpoints_) write_file((options_.folder / name).string(), text);
}

void RunFolder::save_weights(const std::string& name) const {
  if (checkpoints_) whence::save_weights((options_.folder / name).string(), weights_);
}

void RunFolder::load_weights(const std::string& name) const {
  if (checkpoints_) whence::load_weights((options_.folder / name).string(), weights_);
}

void RunFolder::require_same_run(const TrainingState& saved, const std::string& checkpoint) const {
  std::vector<std::string> differences;
  for (const auto& [name, value] : description_) {
    const auto entry = saved.facts.find(name);
    const std::string had = entry == saved.facts.end() ? "absent" : entry->second;
    if (name == "steps" || had == value) continue;  // the same run, ended later
    differences.push_back(to_text("--", name, " was ", plain(had), ", is ", plain(value)));
  }
  if (!differences.empty())
    throw DoesNotFit(
        "--resume: ", checkpoint, " is of another run: ", first_few(differences, "; "), "; the same options required");
}

}  // namespace whence
