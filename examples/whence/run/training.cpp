#include "examples/whence/run/training.h"

#include <cmath>
#include <iostream>
#include <limits>
#include <optional>
#include <span>
#include <sstream>
#include <type_traits>

#include "autograd/recording.h"
#include "examples/whence/cli/interrupt.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/progress.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/machine/ranks.h"
#include "examples/whence/machine/training_memory.h"
#include "examples/whence/run/loading.h"
#include "examples/whence/run/run_folder.h"
#include "nn/io/json.h"
#include "nn/io/sha256.h"
#include "nn/training/schedule.h"
#include "tensor/device/allocator.h"
#include "tensor/device/backend.h"
#include "tensor/error.h"
#include "tensor/products.h"
#include "tensor/ranks/collectives.h"
#include "tensor/raw.h"

namespace whence {
namespace {

// A number that a checkpoint keeps; nothing in one of a version that kept none.
template <class Number> std::optional<Number> fact(const RunFolder::Facts& facts, const std::string& name) {
  const auto found = facts.find(name);
  if (found == facts.end()) return std::nullopt;
  if constexpr (std::is_same_v<Number, double>)  // the score of a validation may be none
    for (const double odd : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
      if (found->second == exact(odd)) return odd;
  const std::optional<Number> number = parse_number<Number>(found->second);
  if (!number)
    throw FileError(
        "--resume: the checkpoint's fact '", name, "' is ", in_quotes(found->second), "; a number required");
  return number;
}

// The best validation so far: its score, its weights, and how many worse ones followed. A checkpoint's facts keep it.
class Best {
 public:
  Best(const MixedPrecision& model, bool keep_weights) : model_(model), keep_weights_(keep_weights) {}

  // Is it the best? Then its weights are copied, if they are wanted.
  bool offer(double score, std::int64_t step) {
    const bool better = step_ == 0 || score < score_;
    worse_since_ = better ? 0 : worse_since_ + 1;
    if (!better) return false;
    score_ = score, step_ = step;
    remember();
    return true;
  }
  void remember() {
    weights_.clear();
    if (!keep_weights_) return;
    for (const Module::Parameter& parameter : model_.weights()) weights_.push_back(raw::copy(parameter.tensor));
  }
  void put_back() const {
    for (std::size_t k = 0; k < weights_.size(); ++k) raw::copy_into(weights_[k], model_.weights()[k].tensor.detach());
    model_.publish();
  }

  RunFolder::Facts facts() const {
    if (step_ == 0) return {};
    return {{"best score", exact(score_)}, {"best step", std::to_string(step_)},
        {"worse since", std::to_string(worse_since_)}};
  }
  void restore(const RunFolder::Facts& facts) {
    score_ = fact<double>(facts, "best score").value_or(0);
    step_ = fact<std::int64_t>(facts, "best step").value_or(0);
    worse_since_ = fact<std::int64_t>(facts, "worse since").value_or(0);
  }
  double score() const { return score_; }
  std::int64_t step() const { return step_; }
  std::int64_t worse_since() const { return worse_since_; }

 private:
  const MixedPrecision& model_;
  bool keep_weights_;
  std::vector<Tensor> weights_;
  double score_ = 0;
  std::int64_t step_ = 0, worse_since_ = 0;
};

class Trainer {
 public:
  Trainer(const TrainingJob& job, const TrainingOptions& options)
      : job_(job),
        options_(options),
        schedule_(schedule_of(options.steps)),
        precision_(initialised(job, options), options.precision,
            {.beta2 = options.beta2, .weight_decay = options.weight_decay}, options.scaling),
        step_(precision_, job.batch, checked(job, options),
            {.accumulate = options.accumulate,
                .clip = options.clip,
                .recorded = options.cuda_graph,
                .ranks = options.ranks}),
        folder_(speaks(options.ranks) ? options.folder : "", precision_.weights(),
            {job.description.begin(), job.description.end()}, options.seed, options.keep_checkpoints),
        best_(precision_, options.keep_best && speaks(options.ranks)) {}

  TrainingResult run() {
    if (options_.ranks) require_same_on_all(*options_.ranks, job_.description);
    const std::int64_t first = open();
    Progress progress(job_.label, options_.steps, first,
        ProgressStyle::for_standard_error(options_.quiet || !speaks(options_.ranks)), std::cerr);
    if (first == 0) look(0, progress);
    std::optional<CheckFinite> checking;
    if (options_.check_finite && options_.precision != DType::f16) checking.emplace();
    for (std::int64_t step = first + 1; step <= options_.steps && !out_of_patience(); ++step) {
      const std::int64_t tokens_before = tokens_;
      const double loss = take(step, progress);
      progress.update(step, tokens_ - tokens_before, {{"loss", loss}});
      if (step % options_.log_every == 0 || step == options_.steps) log(step);
      look(step, progress);
      if (options_.validate_every > 0 && (step % options_.validate_every == 0 || step == options_.steps))
        validate(step, progress);
      if (step % options_.save_every == 0) save(step);
      if (stop_asked() && step < options_.steps) {
        save(step);
        progress.finish();
        wait_for_rank_0();
        throw Interrupted(
            to_text("training: stopped at step ", step, options_.folder.empty() ? "" : ", saved; go on with --resume"));
      }
    }
    finish();
    progress.finish();
    wait_for_rank_0();
    return result_;
  }

 private:
  static Module& initialised(const TrainingJob& job, const TrainingOptions& options) {
    Module& model = *job.model;
    const auto parameters = model.parameters();  // of 16 bits where an earlier training left them so
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

  // A run may be resumed with more steps than it began with, or with fewer that are still to come.
  void take_other_end(const TrainingState& state) const {
    const std::int64_t then = fact<std::int64_t>(state.facts, "steps").value_or(options_.steps);
    if (options_.steps < state.step) {
      throw InputError(
          "--steps: ", options_.steps, " given; at least ", state.step, " required, which are done; raise it");
    }
    if (then == options_.steps || then < state.step || options_.steps == state.step || options_.quiet) return;
    std::cerr << "resume: a run of " << then << " steps becomes one of " << options_.steps
              << ". The learning rate follows the longer run from here on: " << schedule_of(then)(state.step)
              << " at step " << state.step << ", " << schedule_(state.step + 1) << " at the next\n";
  }

  // In f16 forward alone is checked: gradients that overflow are the loss scale's business.
  static LossOf checked(const TrainingJob& job, const TrainingOptions& options) {
    if (!options.check_finite || options.precision != DType::f16) return job.loss_of;
    return [&job](const TrainingBatch& batch, std::int64_t part) {
      const CheckFinite checking;
      return job.loss_of(batch, part);
    };
  }

  // All ranks end after the same step, whichever of them was asked.
  bool stop_asked() const {
    return options_.ranks ? any_of_ranks(*options_.ranks, interrupt_requested()) : interrupt_requested();
  }

  // Who ends before its files are written may take the others with it: mpirun ends all then.
  void wait_for_rank_0() const {
    if (options_.ranks) (void)any_of_ranks(*options_.ranks, false);
  }

  bool out_of_patience() const { return options_.patience > 0 && best_.worse_since() >= options_.patience; }

  std::int64_t open() {
    TrainingState state =
        folder_.open(options_.resume, options_.tensorboard, precision_.optimizer(), options_.accept_damaged);
    if (options_.ranks) take_from_rank_0(state);
    precision_.publish();
    restore_scale(state);
    loss_since_ = fact<double>(state.facts, "loss since the last line").value_or(0);
    steps_since_ = fact<std::int64_t>(state.facts, "steps since the last line").value_or(0);
    take_other_end(state);
    if (!job_.record.empty()) folder_.write("run.json", job_.record);
    best_.restore(state.facts);
    if (options_.keep_best && speaks(options_.ranks) &&
        best_.step() > 0) {  // the weights of then, for a moment, in place of those of the checkpoint
      Best now(precision_, true);
      now.remember();
      folder_.load_weights("best.safetensors", options_.accept_damaged);
      best_.remember();
      now.put_back();
    }
    result_.steps = state.step;
    return state.step;
  }

  // Rank 0 alone reads the checkpoint: the others may have no such folder, and what they hold is then the same.
  void take_from_rank_0(TrainingState& state) {
    Communicator& ranks = *options_.ranks;
    std::vector<double> counts{static_cast<double>(state.step), static_cast<double>(state.skipped)};
    broadcast(ranks, std::as_writable_bytes(std::span(counts)));
    state.step = static_cast<index_t>(counts[0]), state.skipped = static_cast<index_t>(counts[1]);
    std::string facts;
    for (const auto& [name, value] : state.facts) facts += name + '\0' + value + '\0';
    std::istringstream read(broadcast(ranks, facts));
    for (std::string name, value; std::getline(read, name, '\0') && std::getline(read, value, '\0');)
      state.facts[name] = value;
    if (state.step == 0) return;
    for (const Module::Parameter& weight : precision_.weights()) broadcast(ranks, weight.tensor.detach());
    for (const Adam::Moments& moments : precision_.optimizer().moments())
      broadcast(ranks, moments.first), broadcast(ranks, moments.second);
    precision_.optimizer().set_steps(state.updates());
  }

  // Ranks whose processors round otherwise would go apart without a sign of it: each has its own sums in Adam.
  void require_same_weights(std::int64_t step) const {
    Sha256 hash;
    for (const Module::Parameter& weight : precision_.weights()) {
      const Tensor here = raw::to_device(raw::contiguous(weight.tensor.detach()), Device::cpu());
      hash.add({here.bytes(), static_cast<std::size_t>(here.numel()) * size_of(here.dtype())});
    }
    const std::vector<std::string> all = gather_over_ranks(*options_.ranks, hash.hexadecimal());
    for (std::size_t rank = 1; rank < all.size(); ++rank)
      if (all[rank] != all[0])
        throw Error("ranks: at step ", step, " the weights of rank ", rank,
            " are not those of rank 0; processors of one kind required, or memory without errors; nothing is saved");
  }

  std::int64_t skipped() const { return precision_.loss_scale() ? precision_.loss_scale()->state().skipped : 0; }

  void restore_scale(const TrainingState& state) {
    if (!precision_.loss_scale()) return;
    LossScale::State then = precision_.loss_scale()->state();
    then.value = fact<double>(state.facts, "loss scale").value_or(then.value);
    then.good_steps = fact<std::int64_t>(state.facts, "good steps").value_or(0);
    then.skipped = state.skipped;
    precision_.loss_scale()->restore(then);
  }

  void save(std::int64_t step) {
    if (options_.ranks) require_same_weights(step);
    RunFolder::Facts facts = best_.facts();
    if (steps_since_ > 0) {
      facts["loss since the last line"] = exact(loss_since_);  // reads back as the same number
      facts["steps since the last line"] = std::to_string(steps_since_);
    }
    if (const auto& scale = precision_.loss_scale()) {
      facts["loss scale"] = exact(scale->value());
      facts["good steps"] = std::to_string(scale->state().good_steps);
    }
    folder_.save(step, skipped(), precision_.optimizer(), facts);
  }

  StepOutcome attempt(std::int64_t step) {
    try {
      return step_.take(step, schedule_(step));
    } catch (const FailedStep& failed) {
      throw NotFinite(failed.what(), " (--lr, --clip, --batch); --check-finite names the first op that went wrong",
          options_.precision == DType::f16 ? "; in f16 numbers above 65504 overflow: --precision bf16 has no such limit"
                                           : "",
          options_.folder.empty() ? "" : "; the last checkpoint is from before it");
    } catch (const OutOfMemory& problem) {
      if (job_.sequences < 1) throw;
      const std::string advice =
          memory_advice(problem.numbers, precision_.optimizer(), job_.sequences, options_.accumulate);
      throw OutOfMemory(problem.what() + advice, problem.numbers);
    }
  }

  // One step of the optimiser; the mean loss of its targets.
  double take(std::int64_t step, Progress& progress) {
    const double started = steady_seconds();
    const StepOutcome outcome = attempt(step);
    if (outcome.skipped) {
      progress.note(to_text(
          "step ", step, ": gradients beyond f16, step skipped; loss scale ", precision_.loss_scale()->value()));
    }
    gradient_norm_ = outcome.gradient_norm;
    tokens_ += outcome.tokens;
    result_.seconds += steady_seconds() - started;
    result_.steps = step;
    loss_since_ += outcome.loss, ++steps_since_;
    return outcome.loss;
  }

  void log(std::int64_t step) {
    result_.curve.push_back({step, loss_since_ / static_cast<double>(steps_since_)});
    Json record{{"step", step}, {"loss", result_.curve.back().loss}, {"learning_rate", schedule_(step)},
        {"gradient_norm", gradient_norm_}, {"seconds", result_.seconds}};
    if (precision_.loss_scale()) record.add("loss_scale", precision_.loss_scale()->value()).add("skipped", skipped());
    folder_.log(record);
    loss_since_ = 0, steps_since_ = 0;
  }

  void look(std::int64_t step, Progress& progress) {
    if (options_.look_every == 0 || !job_.look || !speaks(options_.ranks) ||
        (step % options_.look_every != 0 && step != options_.steps))
      return;
    try {
      const TrainingJob::Look found = job_.look(step);
      for (const Json& record : found.records) folder_.log_look(record);
      const std::string left = progress.left();
      progress.note(to_text("step ", step, ": ", found.line, left == "-" ? "" : "; left " + left));
    } catch (const Error& error) {  // out of memory, most likely: no reason to end a training
      progress.note(to_text("step ", step, ": no look: ", error.what()));
    }
  }

  // By rank 0; the others wait for its score, which ends a training without patience left on all.
  Validation validated() const {
    if (!options_.ranks) return job_.validate();
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
    if (best_.offer(validation.score, step) && options_.keep_best) folder_.save_weights("best.safetensors");
    if (out_of_patience()) text += to_text("; none was better since step ", best_.step(), ", training stops");
    folder_.log(record);
    progress.note(text);
  }

  void finish() {
    save(result_.steps);
    result_.skipped = skipped(), result_.loss_scale = precision_.loss_scale() ? precision_.loss_scale()->value() : 0;
    result_.best_step = best_.step(), result_.best_score = best_.score();
    result_.stopped_early = result_.steps < options_.steps;
    if (options_.keep_best) best_.put_back();
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
  Best best_;
  TrainingResult result_;
  double loss_since_ = 0, gradient_norm_ = 0;
  std::int64_t steps_since_ = 0, tokens_ = 0;
};

using Count = Range<std::int64_t>;
constexpr std::int64_t many = 1000000000;

// What changes the weights.
void declare_steps(CommandLine& options, TrainingOptions& training) {
  options.heading("Training")
      .integer("steps", &training.steps, Count{1, many}, {"optimiser steps"})
      .integer("accumulate", &training.accumulate, Count{1, 65536}, {"batches whose gradients make one step"})
      .number("lr", &training.learning_rate, Range<double>{0, 10, true}, {"peak learning rate of AdamW"})
      .integer("warm-up", &training.warm_up, Count{0, many},
          {"linear warm-up, at most --steps; 0: the peak at step 1, as 1", "steps"})
      .choice("decay", &training.decay, {"linear", "cosine", "constant"}, {"how the rate falls after the warm-up"})
      .number("final-lr", &training.final_rate, Range<double>{0, 10},
          {"learning rate that linear and cosine would reach one step after the last"})
      .number("beta2", &training.beta2, Range<double>{0, 1, false, true},
          {"of AdamW: how long squares of gradients are remembered; beta1 is 0.9, epsilon 1e-8"})
      .number("weight-decay", &training.weight_decay, Range<double>{0, 10},
          {"decoupled weight decay of matrices and tables, Transformer-XL's two biases among them"})
      .number("clip", &training.clip, Range<double>{0, 1e9, true}, {"largest global norm of the gradients"})
      .integer("loss-scale-growth", &training.scaling.growth_steps, Count{1, many},
          {"with --precision f16: good steps in a row after which the loss scale doubles", "steps"})
      .integer("seed", &training.seed, Range<std::uint64_t>{0, ~std::uint64_t{0}}, {"of parameters, data and dropout"});
}

void declare_validation(CommandLine& options, TrainingOptions& training) {
  options.heading("Validation")
      .integer("validate-every", &training.validate_every, Count{0, many}, {"between validations; 0: none", "steps"})
      .flag("keep-best", &training.keep_best, {"end with the weights of the best validation"})
      .integer("patience", &training.patience, Count{0, many},
          {"validations without a better one after which to stop; 0: go on"});
}

}  // namespace

void declare(CommandLine& options, TrainingOptions& training, bool with_validation) {
  declare_steps(options, training);
  if (with_validation) declare_validation(options, training);
  options.heading("Output")
      .integer("save-every", &training.save_every, Count{1, many}, {"between checkpoints", "steps"})
      .integer("keep-checkpoints", &training.keep_checkpoints, Count{0, many},
          {"of the newest; 0: all, so that whence look can go through the training"})
      .integer("log-every", &training.log_every, Count{1, many}, {"between lines of metrics.jsonl", "steps"})
      .integer("look-every", &training.look_every, Count{0, many},
          {"between looks at gradients, gates and bounds, and at why gradients are zero, on one sequence (looks.jsonl; "
           "whence look draws them); 0: none",
              "steps"})
      .flag("resume", &training.resume,
          {"go on from the latest checkpoint in --out with the options of its run.json, to the same bits as an "
           "undisturbed run; more --steps: the rate follows the longer run from there on"});
  declare_accept_damaged(options, training.accept_damaged);
  options.flag("tensorboard", &training.tensorboard, {"write an event file for TensorBoard too"})
      .flag("quiet", &training.quiet, {"no progress"})
      .flag("cuda-graph", &training.cuda_graph,
          {"on a GPU: record a step's launches once and replay them; without dropout"})
      .flag("check-finite", &training.check_finite,
          {"stop at the first op that makes a NaN or infinity, and name it (slow); with --precision f16 in forward "
           "alone, as the loss scale answers for gradients"});
}

std::vector<std::pair<std::string, std::string>> description(const TrainingOptions& training) {
  TrainingOptions shown = training;
  CommandLine options("", "", "");
  declare_steps(options, shown);
  declare_validation(options, shown);
  auto facts = options.values();
  facts.emplace_back("precision", to_string(training.precision));
  facts.emplace_back("products", to_string(product_numbers()));
  if (training.precision != DType::f16)
    std::erase_if(facts, [](const auto& fact) { return fact.first == "loss-scale-growth"; });
  return facts;
}

void check(const TrainingOptions& training) {
  const auto refuse = [](const std::string& what) { throw InputError(what); };
  if (training.accept_damaged && !training.resume)
    refuse("--accept-damaged: given; it has no effect without --resume, which loads a checkpoint; add that");
  if (training.validate_every == 0 && training.keep_best)
    refuse("--keep-best: given; it has no effect without --validate-every; add it");
  if (training.validate_every == 0 && training.patience > 0)
    refuse("--patience: given; it has no effect without --validate-every; add it");
  if (training.final_rate > 0 && training.decay == "constant")
    refuse("--final-lr: given; it has no effect with --decay constant; choose linear or cosine, or leave it out");
  if (training.final_rate > training.learning_rate) {
    refuse(to_text(
        "--final-lr: ", training.final_rate, " given; at most --lr, ", training.learning_rate, ", required; lower it"));
  }
}

void fit_warm_up(const CommandLine& options, TrainingOptions& training) {
  if (training.warm_up <= training.steps) return;
  if (options.given("warm-up")) options.refuse("warm-up", "at most --steps", "shorten it");
  if (!training.quiet)
    std::cerr << "warm-up: " << training.warm_up << " steps by default, shortened to --steps " << training.steps
              << '\n';
  training.warm_up = training.steps;
}

std::string skipped_text(const TrainingResult& trained) {
  if (trained.loss_scale == 0) return {};
  return to_text("; ", trained.skipped, trained.skipped == 1 ? " step" : " steps", " skipped, loss scale ",
      trained.loss_scale, " at the end");
}

static void require_recordable(const TrainingJob& job, const TrainingOptions& options) {
  const std::string why = options.device.is_cpu() ? "given without a GPU; a device that records launches required"
                          : options.check_finite  ? "given with --check-finite, which reads every result; one required"
                                                  : job.not_recordable;
  if (!why.empty()) throw InputError("--cuda-graph: ", why, "; leave it out");
}

TrainingResult train(const TrainingJob& job, const TrainingOptions& options) {
  check(options);
  if (options.cuda_graph) require_recordable(job, options);
  if (options.validate_every > 0 && !job.validate)
    throw Error("training: validation asked for; a job that can validate required");
  return Trainer(job, options).run();
}

}  // namespace whence
