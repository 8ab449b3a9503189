// One training run of a model: schedule, clipping, AdamW, log, progress, checkpoints, resume, and a clean stop on Ctrl-C.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "examples/common/command_line.h"
#include "nn/module.h"

namespace whence {

struct TrainingOptions {
  std::int64_t steps = 10000;
  double learning_rate = 3e-4;  // the peak
  std::int64_t warm_up = 50;    // steps
  std::string decay = "linear";
  double weight_decay = 0.1;
  double clip = 1.0;                  // largest global norm of the gradients
  std::uint64_t seed = 0;             // of parameters, data and dropout
  std::int64_t save_every = 500;      // steps
  std::int64_t log_every = 10;        // steps
  std::filesystem::path folder = {};  // of checkpoints and logs; empty: nothing is written
  bool resume = false;
  bool check_finite = false;  // stop at the first op whose result is not finite
  bool quiet = false;
};

// Declares them. `folder` keeps its value as the default of --out.
void declare(CommandLine& options, TrainingOptions& training);

struct LossPoint {
  std::int64_t step;
  double loss;  // mean since the point before
};

struct TrainingResult {
  std::int64_t steps = 0;             // done in all
  double seconds = 0;                 // of this process, in the steps themselves
  double tokens_per_second = 0;       // likewise
  std::vector<LossPoint> curve = {};  // one point every log_every steps of this process
};

struct TrainingJob {
  std::string label = {};  // of the progress line
  Module* model = nullptr;
  std::function<Tensor(std::int64_t step)> loss = {};  // of step 1, 2, ...: a pure function of seed and step
  std::int64_t tokens_per_step = 0;
  std::vector<std::pair<std::string, std::string>> description = {};  // options that must be the same to resume
};

// Initialises the model, or loads the latest checkpoint when options.resume; trains up to options.steps; saves on the way and at the end
// (folder/checkpoints, folder/weights.safetensors, folder/metrics.jsonl). Throws Interrupted after saving; InputError when the folder holds
// a run and resume is off, or a run with other options; Error when the loss is not finite (the checkpoint before it stays the latest).
TrainingResult train(const TrainingJob& job, const TrainingOptions& options);

}  // namespace whence
