#include "examples/whence/run/training.h"

#include <iostream>
#include <limits>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "autograd/inspect/observers.h"
#include "autograd/ops.h"
#include "autograd/recording.h"
#include "examples/whence/cli/interrupt.h"
#include "examples/whence/cli/json.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/progress.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/machine/memory_plan.h"
#include "examples/whence/run/run_folder.h"
#include "examples/whence/run/shared_training.h"
#include "nn/io/safetensors.h"
#include "nn/training/training.h"
#include "nn/transformer.h"
#include "tensor/error.h"
#include "tensor/ranks/ranks.h"

namespace whence {
namespace {

constexpr const char* best_weights = "best.safetensors";

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

// Sums the loss since the last line of the log.
class LossSince {
 public:
  void restore(const RunFolder::Facts& facts) {
    sum_ = number_in(facts, "loss since the last line", 0.0);
    steps_ = number_in(facts, "steps since the last line", std::int64_t{0});
  }
  void keep(RunFolder::Facts& facts) const {
    if (steps_ == 0) return;
    facts["loss since the last line"] = exact(sum_);  // reads back as the same number
    facts["steps since the last line"] = std::to_string(steps_);
  }
  void add(double loss) { sum_ += loss, ++steps_; }
  // Ends a line and returns its mean.
  double take() { return std::exchange(sum_, 0) / static_cast<double>(std::exchange(steps_, 0)); }

 private:
  double sum_ = 0;
  std::int64_t steps_ = 0;
};

// The best validation.
class Best {
 public:
  void restore(const RunFolder::Facts& facts) {
    score_ = number_in(facts, "best score", 0.0);
    step_ = number_in(facts, "best step", std::int64_t{0});
  }
  void keep(RunFolder::Facts& facts) const {
    if (step_ == 0) return;
    facts["best score"] = exact(score_);
    facts["best step"] = std::to_string(step_);
  }
  // True if this is the best so far.
  bool add(std::int64_t step, double score) {
    if (step_ > 0 && !(score < score_)) return false;
    score_ = score, step_ = step;
    return true;
  }
  double score() const { return score_; }
  std::int64_t step() const { return step_; }  // 0: none

 private:
  double score_ = 0;
  std::int64_t step_ = 0;
};

class Trainer {
 public:
  Trainer(const TrainingJob& job, const TrainingOptions& options)
      : job_(job),
        options_(options),
        schedule_(schedule_of(options.steps)),
        precision_(optimizer_of(options), initialised(job, options), options.precision, options.scaling),
        step_(precision_, job.batch, checked(job, options),
            {.accumulate = options.accumulate,
                .clip = options.clip,
                .recorded = wants_graph(options) && not_recordable(job, options).empty(),
                .ranks = options.ranks}),
        folder_(options, precision_.weights(), {job.description.begin(), job.description.end()}) {}

  TrainingResult run() {
    if (options_.ranks) require_same_on_all(*options_.ranks, job_.description);
    const std::int64_t done = open();
    Progress progress(job_.label, options_.steps, options_.quiet || !speaks(options_.ranks), done);
    if (wants_graph(options_)) say_not_recorded(not_recordable(job_, options_), progress);
    std::optional<CheckFinite> checking;
    if (options_.check_finite && options_.precision != DType::f16) checking.emplace();
    take_steps(done + 1, progress);
    finish();
    progress.finish();
    wait_for_rank_0();
    return result_;
  }

 private:
  static bool wants_graph(const TrainingOptions& options) {
    return options.device.is_gpu() && options.cuda_graph == "yes";
  }

  // Returns why one graph cannot replay all steps; empty if it can.
  static std::string not_recordable(const TrainingJob& job, const TrainingOptions& options) {
    if (options.optimizer == "sgd") return "a graph would keep the rate of --optimizer sgd";
    if (options.check_finite) return "--check-finite reads every result";
    return options.ranks ? "a graph cannot communicate with other ranks" : job.not_recordable;
  }

  // Prints the reason once.
  void say_not_recorded(const std::string& reason, Progress& progress) {
    if (reason.empty() || std::exchange(said_not_recorded_, true)) return;
    progress.note("cuda-graph: steps are not recorded, as " + reason);
  }

  static Module& initialised(const TrainingJob& job, const TrainingOptions& options) {
    Module& model = *job.model;
    const auto parameters = model.parameters();  // in 16 bits if an earlier training left them so
    if (!parameters.empty() && size_of(parameters[0].tensor.dtype()) == 2) model.to(DType::f32);
    model.initialise(options.seed);
    if (job.begin_with && !options.resume) job.begin_with();
    model.to(options.device);
    return model;
  }

  Schedule schedule_of(std::int64_t steps) const {
    return Schedule({.peak = options_.learning_rate,
        .steps = steps,
        .warm_up = options_.warm_up,
        .decay = decay_of(options_.decay),
        .floor = options_.final_rate});
  }

  // A run may be resumed with more steps than before, or with fewer, but no fewer than are done.
  void take_other_end(const TrainingState& state) const {
    const std::int64_t then = number_in(state.facts, "steps", options_.steps);
    if (options_.steps < state.step) {
      throw InputError(
          "--steps: ", options_.steps, " given; at least ", state.step, " required, which are done; raise it");
    }
    if (then == options_.steps || then < state.step || options_.steps == state.step || options_.quiet) return;
    std::cerr << "resume: a run of " << then << " steps becomes one of " << options_.steps
              << ". The learning rate follows the longer run from here on: " << schedule_of(then)(state.step)
              << " at step " << state.step << ", " << schedule_(state.step + 1) << " at the next\n";
  }

  // In f16 only forward is checked: the loss scale handles gradients that overflow.
  static LossOf checked(const TrainingJob& job, const TrainingOptions& options) {
    if (!options.check_finite || options.precision != DType::f16) return job.loss_of;
    return [&job](const TrainingBatch& batch, std::int64_t part) {
      const CheckFinite checking;
      return job.loss_of(batch, part);
    };
  }

  bool holds_for_any(bool here) const { return options_.ranks ? any_of_ranks(*options_.ranks, here) : here; }

  // A rank that ends before its files are written may end the others too: mpirun then ends all.
  void wait_for_rank_0() const { (void)holds_for_any(false); }

  std::int64_t open() {
    TrainingState state = folder_.open(precision_.optimizer());
    if (options_.ranks) take_from_rank_0(*options_.ranks, state, precision_);
    precision_.round_weights();
    restore_scale(state);
    loss_.restore(state.facts);
    best_.restore(state.facts);
    take_other_end(state);
    if (!job_.record.empty()) folder_.write("run.json", job_.record);
    if (ends_with_best()) (void)read_safetensors((options_.folder / best_weights).string());
    result_.steps = state.step;
    return state.step;
  }

  bool ends_with_best() const { return options_.keep_best && best_.step() > 0 && speaks(options_.ranks); }

  std::int64_t skipped() const { return precision_.loss_scale() ? precision_.loss_scale()->state().skipped : 0; }

  void restore_scale(const TrainingState& state) {
    if (!precision_.loss_scale()) return;
    LossScale::State then = precision_.loss_scale()->state();
    then.value = number_in(state.facts, "loss scale", then.value);
    then.good_steps = number_in(state.facts, "good steps", index_t{0});
    then.skipped = state.skipped;
    precision_.loss_scale()->restore(then);
  }

  void save(std::int64_t step) {
    if (options_.ranks) require_same_weights(*options_.ranks, precision_, step);
    RunFolder::Facts facts;
    loss_.keep(facts);
    best_.keep(facts);
    if (const auto& scale = precision_.loss_scale()) {
      facts["loss scale"] = exact(scale->value());
      facts["good steps"] = std::to_string(scale->state().good_steps);
    }
    folder_.save(step, skipped(), precision_.optimizer(), facts);
  }

  // The loop of nn/training/training.h. Its errors name the options that help.
  void take_steps(std::int64_t first, Progress& progress) {
    try {
      whence::train(step_, schedule_, first, options_.steps, hooks(progress));
    } catch (const FailedStep& failed) {
      throw NotFinite(failed.what(), " (--lr, --clip, --batch); --check-finite names the first op that went wrong",
          options_.precision == DType::f16 ? "; in f16 numbers above 65504 overflow: --precision bf16 has no such limit"
                                           : "",
          options_.folder.empty() ? "" : "; the last checkpoint is from before it");
    } catch (const OutOfMemory& problem) {
      throw OutOfMemory(to_text(problem.what(), "; ", step_remedies), problem.numbers);
    }
  }

  // The work after a step, in this order.
  std::vector<TrainingHook> hooks(Progress& progress) {
    std::vector<TrainingHook> all{
        {.run = [&](std::int64_t step, const StepOutcome& done) { count(step, done, progress); }},
        {options_.log_every, true, [&](std::int64_t step, const StepOutcome& done) { log(step, done); }}};
    if (options_.validate_every > 0)
      all.push_back(
          {options_.validate_every, true, [&](std::int64_t step, const StepOutcome&) { validate(step, progress); }});
    all.push_back({.every = options_.save_every, .run = [&](std::int64_t step, const StepOutcome&) { save(step); }});
    all.push_back({.run = [&](std::int64_t step, const StepOutcome&) { stop_if_asked(step, progress); }});
    return all;
  }

  void count(std::int64_t step, const StepOutcome& done, Progress& progress) {
    if (done.skipped)
      progress.note(to_text(
          "step ", step, ": gradients beyond f16, step skipped; loss scale ", precision_.loss_scale()->value()));
    say_not_recorded(step_.why_not_recorded(), progress);
    tokens_ += done.tokens;
    result_.seconds += done.seconds;
    result_.steps = step;
    loss_.add(done.loss);
    progress.update(step, done.tokens, {{"loss", done.loss}});
  }

  // All ranks end after the same step, whichever got the signal.
  void stop_if_asked(std::int64_t step, Progress& progress) {
    if (!holds_for_any(interrupt_requested()) || step == options_.steps) return;
    save(step);
    progress.finish();
    wait_for_rank_0();
    throw Interrupted(
        to_text("training: stopped at step ", step, options_.folder.empty() ? "" : ", saved; go on with --resume"));
  }

  void log(std::int64_t step, const StepOutcome& done) {
    result_.curve.push_back({step, loss_.take()});
    Json record{{"step", step}, {"loss", result_.curve.back().loss}, {"learning_rate", schedule_(step)},
        {"gradient_norm", done.gradient_norm}, {"seconds", result_.seconds}};
    if (precision_.loss_scale()) record.add("loss_scale", precision_.loss_scale()->value()).add("skipped", skipped());
    folder_.log(record);
  }

  // Rank 0 validates; the others wait for its score.
  Validation validated() {
    if (!options_.ranks) {
      try {
        return job_.validate();
      } catch (const OutOfMemory& problem) {
        if (!step_.recorded()) throw;
        step_.stop_recording(problem.what());  // a graph keeps its memory between steps
        return job_.validate();
      }
    }
    Validation found;
    if (speaks(options_.ranks)) found = job_.validate();
    broadcast(*options_.ranks, std::as_writable_bytes(std::span(&found.score, 1)));
    return found;
  }

  void validate(std::int64_t step, Progress& progress) {
    const Validation validation = validated();
    Json record{{"step", step}, {"validation_score", validation.score}};
    std::string text = to_text("step ", step, ": validation ", fixed(validation.score, 4));
    for (const auto& [name, value] : validation.figures) {
      record.add("validation_" + name, value);
      text += to_text(", ", name, " ", fixed(value, 2));
    }
    if (best_.add(step, validation.score) && options_.keep_best) folder_.save_weights(best_weights);
    folder_.log(record);
    progress.note(text);
  }

  void finish() {
    save(result_.steps);
    result_.skipped = skipped(), result_.loss_scale = precision_.loss_scale() ? precision_.loss_scale()->value() : 0;
    result_.best_step = best_.step(), result_.best_score = best_.score();
    if (ends_with_best()) folder_.load_weights(best_weights), precision_.round_weights();
    folder_.save_weights("weights.safetensors");
    folder_.write_csv_of_log();
    result_.tokens_per_second = static_cast<double>(tokens_) / std::max(result_.seconds, 1e-9);
  }

  const TrainingJob& job_;
  const TrainingOptions& options_;
  Schedule schedule_;
  MixedPrecision precision_;
  TrainingStep step_;
  RunFolder folder_;
  TrainingResult result_;
  LossSince loss_;
  Best best_;
  std::int64_t tokens_ = 0;
  bool said_not_recorded_ = false;
};

}  // namespace

TrainingResult train(const TrainingJob& job, const TrainingOptions& options) {
  if (options.validate_every > 0 && !job.validate)
    throw Error("training: validation requested; a job that can validate required");
  if (options.keep_best && options.folder.empty())
    throw Error("training: the best weights requested; a folder to keep them in required");
  return Trainer(job, options).run();
}

}  // namespace whence
