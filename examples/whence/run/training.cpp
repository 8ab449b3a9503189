// The options of a training and their checks; one training from the first step to the last file.
#include "examples/whence/run/training.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <optional>
#include <span>

#include "autograd/inspect/observers.h"
#include "autograd/ops.h"
#include "autograd/recording.h"
#include "examples/whence/cli/json_lines.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/progress.h"
#include "examples/whence/cli/run_main.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/machine/memory.h"
#include "examples/whence/run/run_files.h"
#include "examples/whence/run/shared_training.h"
#include "nn/io/checkpoint.h"
#include "nn/io/files.h"
#include "nn/transformer.h"
#include "tensor/error.h"
#include "tensor/ranks/ranks.h"

namespace whence {
namespace {

using Count = Range<std::int64_t>;
constexpr std::int64_t many = 1000000000;

// Options that change the weights.
void declare_steps(Fields& options, TrainingOptions& training) {
  options.heading("Training")
      .integer("steps", &training.steps, Count{1, many}, {"optimiser steps"})
      .integer("accumulate", &training.accumulate, Count{1, 65536}, {"batches whose gradients make one step"})
      .number("lr", &training.learning_rate, Range<double>{0, 10, true}, {"peak learning rate"})
      .integer("warm-up", &training.warm_up, Count{0, many},
          {"linear warm-up, at most --steps; 0 and 1: the peak at step 1", "steps"})
      .choice("decay", &training.decay, {"linear", "cosine", "constant"}, {"how the rate falls after the warm-up"})
      .number("final-lr", &training.final_rate, Range<double>{0, 10},
          {"learning rate that linear and cosine would reach one step after the last"})
      .number("beta2", &training.beta2, Range<double>{0, 1, false, true},
          {"decay rate of the squared gradients; beta1 is 0.9, epsilon 1e-8"})
      .number("weight-decay", &training.weight_decay, Range<double>{0, 10},
          {"decoupled decay of matrices, tables and what a scheme's decay=yes adds; --describe names them"})
      .number("clip", &training.clip, Range<double>{0, 1e9, true}, {"largest global norm of the gradients"})
      .integer(
          "seed", &training.seed, Range<std::uint64_t>{0, ~std::uint64_t{0}}, {"seed of parameters, data and dropout"})
      .integer(
          "validate-every", &training.validate_every, Count{0, many}, {"interval of validations; 0: none", "steps"});
}

using Facts = std::map<std::string, std::string>;
using Numbers = std::map<std::string, double>;  // that a checkpoint holds beside weights and moments, by name

// The files of one run: checkpoints and logs. None if the options name no folder, or on ranks other than 0.
class RunFolder {
 public:
  // `description`: the options that a run must share with the one that it continues.
  RunFolder(const TrainingOptions& options, std::vector<Module::Parameter> weights, Facts description)
      : options_(options), weights_(std::move(weights)), description_(std::move(description)) {}

  // Returns the state to continue from, with weights and optimiser restored; step 0 for a new run. Removes temporary
  // files of killed runs. InputError when the folder holds a run and resume is off, or none and it is on; DoesNotFit
  // when it holds another run; FileError when the checkpoint is damaged.
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

  // Writes a checkpoint with these numbers, unless this step has one.
  void save(std::int64_t step, std::int64_t skipped, const Optimizer& optimizer, const Numbers& numbers) {
    if (!checkpoints_ || step == saved_) return;
    Facts facts = description_;
    for (const auto& [name, number] : numbers)
      facts[name] = std::abs(number) < 1e15 && number == std::round(number) ? fixed(number, 0) : exact(number);
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

// Reads a number from a checkpoint, if it has it. FileError if the text is no number.
void restore(double& number, const std::string& name, const Facts& facts) {
  const auto found = facts.find(name);
  if (found == facts.end()) return;
  auto read = parse_number<double>(found->second);
  for (const double odd : {HUGE_VAL, std::nan("")})  // the score of a validation may be
    if (found->second == exact(odd)) read = odd;
  if (!read)
    throw FileError(
        "--resume: the checkpoint's fact '", name, "' is ", in_quotes(found->second), "; a number required");
  number = *read;
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

Schedule schedule_of(const TrainingOptions& options) {
  return Schedule({.peak = options.learning_rate,
      .steps = options.steps,
      .warm_up = options.warm_up,
      .decay = decay_of(options.decay),
      .floor = options.final_rate});
}

// A run may be resumed with more steps than before, or with fewer, but no fewer than are done.
void take_other_end(const TrainingOptions& options, const TrainingState& state) {
  double then = static_cast<double>(options.steps);
  restore(then, "steps", state.facts);
  if (options.steps < state.step)
    throw InputError(
        "--steps: ", options.steps, " given; at least ", state.step, " required, which are done; raise it");
  if (then != static_cast<double>(options.steps) && options.steps > state.step && !options.quiet)
    std::cerr << "resume: a run of " << fixed(then, 0) << " steps becomes one of " << options.steps
              << ". The learning rate follows the longer run from here on\n";
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
    whence::train(step, schedule_of(options), first, options.steps, hooks);
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

void declare(Fields& options, TrainingOptions& training) {
  declare_steps(options, training);
  options.heading("Output")
      .integer("save-every", &training.save_every, Count{1, many}, {"interval of checkpoints", "steps"})
      .integer("keep-checkpoints", &training.keep_checkpoints, Count{0, many},
          {"number of the newest to keep; 0: all, so that whence look can show the training"})
      .integer("log-every", &training.log_every, Count{1, many}, {"interval of lines in metrics.jsonl", "steps"})
      .flag("resume", &training.resume,
          {"continue from the latest checkpoint in the folder RUN that follows (--resume --out RUN is the same) with "
           "the options of its run.json, to the bits of an undisturbed run; more --steps: the rate follows the longer "
           "run"})
      .flag("quiet", &training.quiet, {"no progress"})
      .flag("check-finite", &training.check_finite,
          {"stop at the first op that makes a NaN or infinity, and name it (slow); with --precision f16 in forward "
           "alone"});
}

std::vector<std::pair<std::string, std::string>> description(const TrainingOptions& training) {
  TrainingOptions shown = training;
  Fields options("");
  declare_steps(options, shown);
  auto facts = options.values();
  facts.emplace_back("precision", to_string(training.precision));
  return facts;
}

void settle(const Fields& line, TrainingOptions& training) {
  line.refuse_unless("final-lr", training.decay != "constant" || training.final_rate == 0, "--decay linear or cosine");
  if (training.final_rate > training.learning_rate)
    line.refuse("final-lr", to_text("at most --lr, ", training.learning_rate, ","), "lower it");
  if (training.warm_up <= training.steps) return;
  if (line.given("warm-up")) line.refuse("warm-up", "at most --steps", "shorten it");
  if (!training.quiet)
    std::cerr << "warm-up: " << training.warm_up << " steps by default, shortened to --steps " << training.steps
              << '\n';
  training.warm_up = training.steps;
}

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
  Numbers numbers{
      {"best score", 0}, {"best step", 0}, {"loss since the last line", 0}, {"steps since the last line", 0}};
  if (scale) numbers["loss scale"] = scale->value(), numbers["good steps"] = 0;
  for (auto& [name, number] : numbers) restore(number, name, state.facts);
  double &loss_sum = numbers["loss since the last line"], &losses = numbers["steps since the last line"],
         &best_score = numbers["best score"], &best_step = numbers["best step"];
  if (scale)
    precision.loss_scale()->restore({.value = numbers["loss scale"],
        .good_steps = static_cast<index_t>(numbers["good steps"]),
        .skipped = state.skipped});
  take_other_end(options, state);
  if (folder.writes() && state.step < options.steps)  // those of an earlier or a shorter run are not this run's
    for (const char* end : {"results.jsonl", "questions.jsonl", "weights.safetensors"}) remove_whole(folder.file(end));
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
    loss_sum += done.loss, ++losses;
    progress.update(n, done.tokens, {{"loss", done.loss}});
  };
  const auto log = [&, schedule = schedule_of(options)](std::int64_t n, const StepOutcome& done) {
    const double loss = std::exchange(loss_sum, 0) / std::exchange(losses, 0);
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
    if (best_step == 0 || std::isnan(best_score) || validation.score < best_score)
      best_step = static_cast<double>(n), best_score = validation.score;
    folder.log(record);
    progress.note(text);
  };
  const auto save = [&](std::int64_t n, const StepOutcome&) {
    if (ranks) require_same_weights(*ranks, precision, n);
    if (scale)
      numbers["loss scale"] = scale->value(), numbers["good steps"] = static_cast<double>(scale->state().good_steps);
    folder.save(n, skipped(), precision.optimizer(), numbers);
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
  result.best_step = static_cast<std::int64_t>(best_step), result.best_score = best_score;
  if (folder.writes()) save_weights(folder.file("weights.safetensors"), precision.weights());
  result.tokens_per_second = static_cast<double>(tokens) / std::max(result.seconds, 1e-9);
  progress.finish();
  wait_for_rank_0();
  return result;
}

}  // namespace whence
