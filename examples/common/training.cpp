// The loop, and what surrounds it.
#include "examples/common/training.h"

#include <cmath>
#include <iostream>
#include <memory>
#include <optional>

#include "autograd/backward.h"
#include "autograd/inspect.h"
#include "examples/common/files.h"
#include "examples/common/interrupt.h"
#include "examples/common/progress.h"
#include "examples/common/results.h"
#include "nn/checkpoint.h"
#include "nn/optim.h"
#include "nn/schedule.h"
#include "tensor/error.h"

namespace whence {
namespace {

namespace fs = std::filesystem;

// The files of one run, or nothing at all when there is no folder.
class RunFolder {
 public:
  RunFolder(const TrainingJob& job, const TrainingOptions& options) : job_(job), folder_(options.folder), seed_(options.seed) {}

  // The step to go on from; 0 for a new run.
  std::int64_t open(bool resume, Adam& optimizer) {
    if (folder_.empty()) return 0;
    ensure_output_folder(folder_);
    checkpoints_ = std::make_unique<CheckpointFolder>((folder_ / "checkpoints").string());
    const auto latest = find_latest((folder_ / "checkpoints").string());
    if (latest && !resume) {
      throw InputError(concat("--out: ", folder_.string(), " holds a run (", *latest,
                              "); an empty folder required; add --resume to go on with it, or choose another folder"));
    }
    if (resume && !latest) {
      throw InputError(concat("--resume: no checkpoint in ", folder_.string(), "; a run that saved once required; leave --resume out"));
    }
    std::int64_t step = 0;
    if (resume) {
      require_same_run(read_training_state(*latest), *latest);
      step = load_checkpoint(*latest, *job_.model, &optimizer).step;
      truncate_jsonl_after(folder_ / "metrics.jsonl", step);
    }
    log_ = std::make_unique<JsonLog>(folder_ / "metrics.jsonl", resume ? JsonLog::Mode::append : JsonLog::Mode::fresh);
    return saved_ = step;
  }

  void save(std::int64_t step, const Adam& optimizer) {
    if (!checkpoints_ || step == saved_) return;
    checkpoints_->save(*job_.model, optimizer, {step, seed_, {job_.description.begin(), job_.description.end()}});
    saved_ = step;
  }
  void save_weights() const {
    if (checkpoints_) whence::save_weights((folder_ / "weights.safetensors").string(), *job_.model);
  }
  void log(const LogRecord& record) {
    if (log_) log_->append(record);
  }

 private:
  void require_same_run(const TrainingState& saved, const std::string& checkpoint) const {
    std::string differences;
    for (const auto& [name, value] : job_.description) {
      const auto entry = saved.facts.find(name);
      const std::string had = entry == saved.facts.end() ? "absent" : entry->second;
      if (had != value) differences += concat(differences.empty() ? "" : "; ", "--", name, " was ", had, ", is ", value);
    }
    if (!differences.empty()) {
      throw InputError(concat("--resume: ", checkpoint, " is of another run: ", differences, "; the same options required"));
    }
  }

  const TrainingJob& job_;
  fs::path folder_;
  std::uint64_t seed_;
  std::unique_ptr<CheckpointFolder> checkpoints_;  // holds the lock of the folder for as long as the run
  std::unique_ptr<JsonLog> log_;
  std::int64_t saved_ = -1;
};

[[noreturn]] void stop_at_bad_loss(double loss, std::int64_t step, const fs::path& folder) {
  throw Error(concat("training: the loss is ", loss, " at step ", step,
                     "; a finite loss required; lower --lr or --clip; --check-finite names the first op that went wrong",
                     folder.empty() ? "" : "; the last checkpoint is from before it"));
}

}  // namespace

void declare(CommandLine& options, TrainingOptions& training) {
  options.heading("Training")
      .integer("steps", &training.steps, Range<std::int64_t>{1, 1000000000}, {"optimiser steps"})
      .number("lr", &training.learning_rate, Range<double>{0, 10, true}, {"peak learning rate of AdamW"})
      .integer("warm-up", &training.warm_up, Range<std::int64_t>{0, 1000000000}, {"linear warm-up", "steps"})
      .choice("decay", &training.decay, {"linear", "cosine", "constant"}, {"how the rate falls after the warm-up"})
      .number("weight-decay", &training.weight_decay, Range<double>{0, 10}, {"decoupled weight decay of matrices and tables"})
      .number("clip", &training.clip, Range<double>{0, 1e9, true}, {"largest global norm of the gradients"})
      .integer("seed", &training.seed, Range<std::uint64_t>{0, ~std::uint64_t{0}}, {"of parameters, data and dropout"});
  options.heading("Output")
      .integer("save-every", &training.save_every, Range<std::int64_t>{1, 1000000000}, {"between checkpoints", "steps"})
      .integer("log-every", &training.log_every, Range<std::int64_t>{1, 1000000000}, {"between lines of metrics.jsonl", "steps"})
      .flag("resume", &training.resume, {"go on from the latest checkpoint in --out, to the same bits as an undisturbed run"})
      .flag("quiet", &training.quiet, {"no progress"})
      .flag("check-finite", &training.check_finite, {"stop at the first op that makes a NaN or infinity, and name it (slow)"});
}

TrainingResult train(const TrainingJob& job, const TrainingOptions& options) {
  const Schedule schedule(
      {.peak = options.learning_rate, .steps = options.steps, .warm_up = options.warm_up, .decay = decay_of(options.decay)});
  job.model->initialise(options.seed);
  Adam optimizer(*job.model, {.weight_decay = options.weight_decay});
  RunFolder folder(job, options);
  const std::int64_t first = folder.open(options.resume, optimizer);
  Progress progress(job.label, options.steps, first, ProgressStyle::for_standard_error(options.quiet), std::cerr);
  const auto parameters = job.model->parameters();
  TrainingResult result;
  result.steps = first;
  double sum = 0;
  std::int64_t summed = 0;
  std::optional<CheckFinite> checking;
  if (options.check_finite) checking.emplace();
  for (std::int64_t step = first + 1; step <= options.steps; ++step) {
    const double started = steady_seconds();
    optimizer.zero_gradients();
    const Tensor loss = job.loss(step);
    const double value = loss.item();
    if (!std::isfinite(value)) stop_at_bad_loss(value, step, options.folder);
    backward(loss);
    const GradientNorm norm = clip_by_global_norm(parameters, options.clip);
    optimizer.step(schedule(step), norm.scale);
    result.seconds += steady_seconds() - started;
    result.steps = step;
    sum += value, ++summed;
    progress.update(step, job.tokens_per_step, {{"loss", value}});
    if (step % options.log_every == 0 || step == options.steps) {
      result.curve.push_back({step, sum / static_cast<double>(summed)});
      folder.log({{"step", step},
                  {"loss", result.curve.back().loss},
                  {"learning_rate", schedule(step)},
                  {"gradient_norm", norm.value},
                  {"seconds", result.seconds}});
      sum = 0, summed = 0;
    }
    if (step % options.save_every == 0) folder.save(step, optimizer);
    if (interrupt_requested() && step < options.steps) {
      folder.save(step, optimizer);
      progress.finish();
      throw Interrupted(concat("training: stopped at step ", step, options.folder.empty() ? "" : ", saved; go on with --resume"));
    }
  }
  folder.save(options.steps, optimizer);
  folder.save_weights();
  progress.finish();
  result.tokens_per_second = static_cast<double>((result.steps - first) * job.tokens_per_step) / std::max(result.seconds, 1e-9);
  return result;
}

}  // namespace whence
