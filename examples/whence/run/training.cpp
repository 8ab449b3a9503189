#include "examples/whence/run/training.h"

#include <algorithm>
#include <iostream>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "autograd/inspect/observers.h"
#include "autograd/ops.h"
#include "autograd/recording.h"
#include "examples/whence/cli/interrupt.h"
#include "examples/whence/cli/json_lines.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/output_file.h"
#include "examples/whence/cli/progress.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/machine/memory.h"
#include "examples/whence/run/run_files.h"
#include "examples/whence/run/shared_training.h"
#include "nn/io/checkpoint.h"
#include "nn/io/files.h"
#include "nn/training/training.h"
#include "nn/transformer.h"
#include "tensor/error.h"
#include "tensor/ranks/ranks.h"

namespace whence {
namespace {

// The files of one run: checkpoints, logs, the weights at the end, in f32. None if the options name no folder, or on
// ranks other than 0.
class RunFolder {
 public:
  using Facts = std::map<std::string, std::string>;

  // `description`: the options that a run must share with the one that it continues.
  RunFolder(const TrainingOptions& options, std::vector<Module::Parameter> weights, Facts description)
      : options_(options), weights_(std::move(weights)), description_(std::move(description)) {}

  // Returns the state to continue from, with weights and optimiser restored; step 0 for a new run. Removes temporary
  // files of killed runs. InputError when the folder holds a run and resume is off, or none and it is on; DoesNotFit
  // when it holds another run; FileError when the checkpoint is damaged, unless that is accepted.
  TrainingState open(Optimizer& optimizer) {
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

  // Writes a checkpoint with these `facts`, unless this step has one.
  void save(std::int64_t step, std::int64_t skipped, const Optimizer& optimizer, Facts facts) {
    if (!checkpoints_ || step == saved_) return;
    for (const auto& [name, value] : description_) facts[name] = value;
    checkpoints_->save(weights_, optimizer, {.step = step, .seed = options_.seed, .facts = facts, .skipped = skipped});
    saved_ = step;
  }
  void log(const Json& record) {
    if (log_) log_->append(record);
  }
  bool writes() const { return checkpoints_.has_value(); }
  std::string file(const char* name) const { return (options_.folder / name).string(); }

 private:
  void require_same_run(const TrainingState& saved, const std::string& checkpoint) const {
    std::vector<std::string> differences;
    for (const auto& [name, value] : description_) {
      const auto entry = saved.facts.find(name);
      const std::string had = entry == saved.facts.end() ? "absent" : entry->second;
      if (name == "steps" || had == value) continue;  // the same run, ended later
      differences.push_back(to_text("--", name, " was ", plain(had), ", is ", plain(value)));
    }
    if (!differences.empty())
      throw DoesNotFit("--resume: ", checkpoint, " is of another run: ", first_few(differences, "; "),
          "; the same options required");
  }

  const TrainingOptions& options_;
  std::vector<Module::Parameter> weights_;
  Facts description_;
  std::optional<CheckpointFolder> checkpoints_;  // holds the folder's lock while the run lasts
  std::optional<JsonLog> log_;
  std::int64_t saved_ = -1;
};

// Reads a number from a checkpoint, or `otherwise` if it has none. FileError if the text is no number.
template <class Number> Number number_in(const RunFolder::Facts& facts, const std::string& name, Number otherwise) {
  const auto found = facts.find(name);
  if (found == facts.end()) return otherwise;
  if constexpr (std::is_same_v<Number, double>)  // the score of a validation may be nan
    for (const double odd : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
      if (found->second == exact(odd)) return odd;
  if (const auto number = parse_number<Number>(found->second)) return *number;
  throw FileError("--resume: the checkpoint's fact '", name, "' is ", in_quotes(found->second), "; a number required");
}

// The numbers that a checkpoint holds beside weights and moments.
struct Carried {
  double loss = 0, best_score = 0;  // loss: the sum since the last line of the log
  std::int64_t losses = 0, best_step = 0;

  void restore(const RunFolder::Facts& facts) {
    loss = number_in(facts, "loss since the last line", loss),
    losses = number_in(facts, "steps since the last line", losses);
    best_score = number_in(facts, "best score", best_score), best_step = number_in(facts, "best step", best_step);
  }
  RunFolder::Facts facts() const {  // they read back as the same numbers
    return {{"loss since the last line", exact(loss)}, {"steps since the last line", std::to_string(losses)},
        {"best score", exact(best_score)}, {"best step", std::to_string(best_step)}};
  }
};

void restore(LossScale& scale, const TrainingState& state) {
  scale.restore({.value = number_in(state.facts, "loss scale", scale.value()),
      .good_steps = number_in(state.facts, "good steps", index_t{0}),
      .skipped = state.skipped});
}

Module& initialised(const TrainingJob& job, const TrainingOptions& options) {
  Module& model = *job.model;
  const auto parameters = model.parameters();  // in 16 bits if an earlier training left them so
  if (!parameters.empty() && size_of(parameters[0].tensor.dtype()) == 2) model.to(DType::f32);
  model.initialise(options.seed);
  if (job.begin_with && !options.resume) job.begin_with();
  model.to(options.device);
  return model;
}

Schedule schedule_of(const TrainingOptions& options, std::int64_t steps) {
  return Schedule({.peak = options.learning_rate,
      .steps = steps,
      .warm_up = options.warm_up,
      .decay = decay_of(options.decay),
      .floor = options.final_rate});
}

// A run may be resumed with more steps than before, or with fewer, but no fewer than are done.
void take_other_end(const TrainingOptions& options, const TrainingState& state) {
  const std::int64_t then = number_in(state.facts, "steps", options.steps);
  if (options.steps < state.step)
    throw InputError(
        "--steps: ", options.steps, " given; at least ", state.step, " required, which are done; raise it");
  if (then == options.steps || then < state.step || options.steps == state.step || options.quiet) return;
  std::cerr << "resume: a run of " << then << " steps becomes one of " << options.steps
            << ". The learning rate follows the longer run from here on: " << schedule_of(options, then)(state.step)
            << " at step " << state.step << ", " << schedule_of(options, options.steps)(state.step + 1)
            << " at the next\n";
}

// In f16 only forward is checked: the loss scale handles gradients that overflow.
LossOf checked(const TrainingJob& job, const TrainingOptions& options) {
  if (!options.check_finite || options.precision != DType::f16) return job.loss_of;
  return [&job](const TrainingBatch& batch, std::int64_t part) {
    const CheckFinite checking;
    return job.loss_of(batch, part);
  };
}

// Returns why one graph cannot replay all steps; empty if it can.
std::string why_not_recordable(const TrainingJob& job, const TrainingOptions& options) {
  if (options.check_finite) return "--check-finite reads every result";
  return options.ranks ? "a graph cannot communicate with other ranks" : job.not_recordable;
}

// Takes the steps. Errors name the options that help.
void take_steps(
    TrainingStep& step, const TrainingOptions& options, std::int64_t first, const std::vector<TrainingHook>& hooks) {
  try {
    whence::train(step, schedule_of(options, options.steps), first, options.steps, hooks);
  } catch (const FailedStep& failed) {
    throw NotFinite(failed.what(), " (--lr, --clip, --batch); --check-finite names the first op that went wrong",
        options.precision == DType::f16 ? "; in f16 numbers above 65504 overflow: --precision bf16 has no such limit"
                                        : "",
        options.folder.empty() ? "" : "; the last checkpoint is from before it");
  } catch (const OutOfMemory& problem) {
    throw OutOfMemory(to_text(problem.what(), "; ", step_remedies), problem.numbers);
  }
}

}  // namespace

TrainingResult train(const TrainingJob& job, const TrainingOptions& options) {
  if (options.validate_every > 0 && !job.validate)
    throw Error("training: validation requested; a job that can validate required");
  Communicator* const ranks = options.ranks;
  const auto for_any = [ranks](bool here) { return ranks ? any_of_ranks(*ranks, here) : here; };
  // A rank that ends before its files are written may end the others too: mpirun then ends all.
  const auto wait_for_rank_0 = [&] { (void)for_any(false); };
  MixedPrecision precision(initialised(job, options), options.precision,
      {.beta2 = options.beta2, .weight_decay = options.weight_decay}, options.scaling);
  const std::optional<LossScale>& scale = precision.loss_scale();
  const auto skipped = [&] { return scale ? scale->state().skipped : 0; };
  const bool wants_graph = options.device.is_gpu() && options.cuda_graph;
  TrainingStep step(precision, job.batch, checked(job, options),
      {.accumulate = options.accumulate,
          .clip = options.clip,
          .recorded = wants_graph && why_not_recordable(job, options).empty(),
          .ranks = ranks});
  RunFolder folder(options, precision.weights(), {job.description.begin(), job.description.end()});

  if (ranks) require_same_on_all(*ranks, job.description);
  TrainingState state = folder.open(precision.optimizer());
  if (ranks) take_from_rank_0(*ranks, state, precision);
  precision.round_weights();
  if (scale) restore(*precision.loss_scale(), state);
  Carried carried;
  carried.restore(state.facts);
  take_other_end(options, state);
  if (folder.writes() && !job.record.empty()) write_file(folder.file("run.json"), job.record);

  TrainingResult result{.steps = state.step};
  std::int64_t tokens = 0;
  Progress progress(job.label, options.steps, options.quiet || !speaks(ranks), state.step);
  std::string said;
  const auto say_not_recorded = [&](const std::string& reason) {
    if (reason.empty() || !std::exchange(said, reason).empty()) return;
    progress.note("steps are not recorded as a graph, as " + reason);
  };
  if (wants_graph) say_not_recorded(why_not_recordable(job, options));

  const auto count = [&](std::int64_t n, const StepOutcome& done) {
    if (done.skipped)
      progress.note(to_text("step ", n, ": gradients beyond f16, step skipped; loss scale ", scale->value()));
    say_not_recorded(step.why_not_recorded());
    tokens += done.tokens, result.seconds += done.seconds, result.steps = n;
    carried.loss += done.loss, ++carried.losses;
    progress.update(n, done.tokens, {{"loss", done.loss}});
  };
  const auto log = [&, schedule = schedule_of(options, options.steps)](std::int64_t n, const StepOutcome& done) {
    const double loss = std::exchange(carried.loss, 0) / static_cast<double>(std::exchange(carried.losses, 0));
    result.curve.push_back({n, loss});
    Json record{{"step", n}, {"loss", loss}, {"learning_rate", schedule(n)}, {"gradient_norm", done.gradient_norm},
        {"seconds", result.seconds}};
    if (scale) record.add("loss_scale", scale->value()).add("skipped", skipped());
    folder.log(record);
  };
  const auto validated = [&] {  // by rank 0; the others wait for its score
    Validation found;
    try {
      if (speaks(ranks)) found = job.validate();
    } catch (const OutOfMemory& problem) {
      if (!step.recorded()) throw;
      step.stop_recording(problem.what());  // a graph keeps its memory between steps
      found = job.validate();
    }
    if (ranks) broadcast(*ranks, std::as_writable_bytes(std::span(&found.score, 1)));
    return found;
  };
  const auto validate = [&](std::int64_t n, const StepOutcome&) {
    const Validation validation = validated();
    Json record{{"step", n}, {"validation_score", validation.score}};
    std::string text = to_text("step ", n, ": validation ", fixed(validation.score, 4));
    for (const auto& [name, value] : validation.figures) {
      record.add("validation_" + name, value);
      text += to_text(", ", name, " ", fixed(value, 2));
    }
    if (carried.best_step == 0 || validation.score < carried.best_score)
      carried.best_step = n, carried.best_score = validation.score;
    folder.log(record);
    progress.note(text);
  };
  const auto save = [&](std::int64_t n, const StepOutcome&) {
    if (ranks) require_same_weights(*ranks, precision, n);
    RunFolder::Facts facts = carried.facts();
    if (scale)
      facts["loss scale"] = exact(scale->value()), facts["good steps"] = std::to_string(scale->state().good_steps);
    folder.save(n, skipped(), precision.optimizer(), facts);
  };
  // All ranks end after the same step, whichever got the signal.
  const auto stop_if_asked = [&](std::int64_t n, const StepOutcome& done) {
    if (!for_any(interrupt_requested()) || n == options.steps) return;
    save(n, done);
    progress.finish();
    wait_for_rank_0();
    throw Interrupted(
        to_text("training: stopped at step ", n, options.folder.empty() ? "" : ", saved; go on with --resume"));
  };
  std::vector<TrainingHook> hooks{{.run = count}, {options.log_every, true, log}};
  if (options.validate_every > 0) hooks.push_back({options.validate_every, true, validate});
  hooks.push_back({.every = options.save_every, .run = save});
  hooks.push_back({.run = stop_if_asked});

  std::optional<CheckFinite> checking;
  if (options.check_finite && options.precision != DType::f16) checking.emplace();
  take_steps(step, options, state.step + 1, hooks);
  save(result.steps, {});
  result.skipped = skipped(), result.loss_scale = scale ? scale->value() : 0;
  result.best_step = carried.best_step, result.best_score = carried.best_score;
  if (folder.writes()) {
    save_weights(folder.file("weights.safetensors"), precision.weights());
    write_file(folder.file("metrics.csv"), jsonl_as_csv(folder.file("metrics.jsonl")));  // for spreadsheets
  }
  result.tokens_per_second = static_cast<double>(tokens) / std::max(result.seconds, 1e-9);
  progress.finish();
  wait_for_rank_0();
  return result;
}

}  // namespace whence
