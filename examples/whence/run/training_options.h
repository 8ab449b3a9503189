// The options of a training: steps, rates, numbers, validation, checkpoints and logs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "examples/whence/cli/fields.h"
#include "nn/training/precision.h"

namespace whence {

class Communicator;

struct TrainingOptions {
  std::int64_t steps = 10000;
  std::int64_t accumulate = 1;  // parts per step, over all ranks
  double learning_rate = 3e-4;  // the peak
  double final_rate = 0;        // the rate at the end, except with constant
  std::int64_t warm_up = 50;    // steps
  std::string decay = "linear";
  std::string optimizer = "adamw";  // or adam, with L2
  double beta2 = 0.999;
  double weight_decay = 0.1;
  double clip = 1.0;                  // largest global norm of the gradients
  std::uint64_t seed = 0;             // of parameters, data and dropout
  DType precision = DType::f32;       // of parameters and activations; f16 with a loss scale
  LossScaleOptions scaling = {};      // for f16
  Device device = {};                 // the model is trained there, and stays there
  std::string cuda_graph = "yes";     // yes: record a step on the GPU and replay it if possible; or no
  std::int64_t validate_every = 0;    // steps; 0: never
  bool keep_best = false;             // end with the weights of the best validation
  std::int64_t save_every = 500;      // steps
  std::int64_t keep_checkpoints = 2;  // the newest to keep; 0: all
  std::int64_t log_every = 10;        // steps
  std::filesystem::path folder = {};  // for checkpoints and logs; empty: nothing is written
  bool resume = false;
  bool check_finite = false;  // stop at the first op whose result is not finite
  bool quiet = false;
  Communicator* ranks = nullptr;  // ranks that share the parts of a step; null: none
};

void declare(Fields& options, TrainingOptions& training);

[[nodiscard]] OptimizerOptions optimizer_of(const TrainingOptions& training);

// Returns the options that change the weights, as names and texts. A resumed run must share them.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> description(const TrainingOptions& training);

// Checks the options after parsing. InputError when options do not go together (keep-best without validation, ...). A
// default warm-up that is longer than the run is shortened, and a note says so; a typed one is refused.
void settle(const Fields& line, TrainingOptions& training);

}  // namespace whence
