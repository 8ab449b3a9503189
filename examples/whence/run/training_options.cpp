// The options of a training: their declaration, their checks.
#include <algorithm>
#include <iostream>

#include "examples/whence/run/training.h"
#include "tensor/error.h"

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
          {"decoupled decay of matrices and tables; --describe names them"})
      .number("clip", &training.clip, Range<double>{0, 1e9, true}, {"largest global norm of the gradients"})
      .integer(
          "seed", &training.seed, Range<std::uint64_t>{0, ~std::uint64_t{0}}, {"seed of parameters, data and dropout"})
      .integer(
          "validate-every", &training.validate_every, Count{0, many}, {"interval of validations; 0: none", "steps"});
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
  constexpr const char* validations = "metrics.jsonl has each validation; --keep-checkpoints 0 keeps weights around it";
  constexpr const char* in_cpp = "nn/training has it, for a program of your own";
  for (const auto& [gone, advice] : {std::pair{"keep-best", validations}, {"patience", validations},
           {"validation-sequences", "a validation reads 256"}, {"optimizer", in_cpp}, {"momentum", in_cpp},
           {"nesterov", in_cpp}, {"decay-share", in_cpp}, {"accept-damaged", "restore the file from a copy"},
           {"look-every", "whence look RUN --checkpoints 8 shows causes during training"},
           {"dump-set", "--dump prints sequences of training"},
           {"from", "the options of a run.json repeat its run, --resume RUN continues it"},
           {"cuda-graph", "a GPU's steps are recorded if they can be; --check-finite prevents it"},
           {"communicator", "between GPUs NCCL is taken if it can be loaded, else MPI"},
           {"rank-limit", "WHENCE_RANK_LIMIT=SECONDS in the environment"}})
    options.elsewhere(gone, advice);
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

}  // namespace whence
