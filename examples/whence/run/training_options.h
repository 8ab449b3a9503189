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
  std::int64_t accumulate = 1;  // parts whose gradients make one step, over all ranks
  double learning_rate = 3e-4;  // the peak
  double final_rate = 0;        // what all but constant end at
  std::int64_t warm_up = 50;    // steps
  std::string decay = "linear";
  double decay_share = 0.1;         // of the steps, in which wsd falls
  std::string optimizer = "adamw";  // or adam, with L2; or sgd, which has L2 and momentum
  double beta2 = 0.999;             // of Adam
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 0.1;
  double clip = 1.0;                  // largest global norm of the gradients
  std::uint64_t seed = 0;             // of parameters, data and dropout
  DType precision = DType::f32;       // of parameters and activations; f16 with a loss scale
  LossScaleOptions scaling = {};      // of f16
  Device device = {};                 // where the model is trained, and left
  std::string cuda_graph = "yes";     // record a step on the GPU and replay it, where that can be; or no
  std::int64_t validate_every = 0;    // steps; 0: never
  bool keep_best = false;             // end with the weights of the best validation
  std::int64_t patience = 0;          // validations without a better one after which training stops; 0: it goes on
  std::int64_t save_every = 500;      // steps
  std::int64_t keep_checkpoints = 2;  // of the newest; 0: all
  std::int64_t log_every = 10;        // steps
  std::int64_t look_every = 0;        // steps between records of job.look; 0: none
  std::filesystem::path folder = {};  // of checkpoints and logs; empty: nothing is written
  bool resume = false;
  bool accept_damaged = false;  // resume from a checkpoint whose checksums are wrong
  bool check_finite = false;    // stop at the first op whose result is not finite
  bool quiet = false;
  Communicator* ranks = nullptr;  // with whom the parts of a step are shared; null: nobody
};

void declare(Fields& options, TrainingOptions& training);

[[nodiscard]] OptimizerOptions optimizer_of(const TrainingOptions& training);

// Those that change the weights, as names and texts: what a resumed run must share.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> description(const TrainingOptions& training);

// After parsing. InputError when options do not go together (patience without validation, ...). A default warm-up that is
// longer than the run is shortened, and the user is told; a typed one is refused.
void settle(const Fields& line, TrainingOptions& training);

}  // namespace whence
