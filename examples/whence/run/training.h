// One training run of a model: its options, schedule, accumulation, clipping, optimiser, logs, validation, checkpoints,
// resume, and a clean stop on Ctrl-C.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "examples/whence/cli/fields.h"
#include "nn/training/precision.h"
#include "nn/training/training.h"

namespace whence {

class Communicator;

struct TrainingOptions {
  std::int64_t steps = 10000;
  std::int64_t accumulate = 1;  // parts per step, over all ranks
  double learning_rate = 3e-4;  // the peak
  double final_rate = 0;        // the rate at the end, except with constant
  std::int64_t warm_up = 50;    // steps
  std::string decay = "linear";
  double beta2 = 0.999;
  double weight_decay = 0.1;
  double clip = 1.0;                  // largest global norm of the gradients
  std::uint64_t seed = 0;             // of parameters, data and dropout
  DType precision = DType::f32;       // of parameters and activations; f16 with a loss scale
  LossScaleOptions scaling = {};      // for f16
  Device device = {};                 // the model is trained there, and stays there
  bool cuda_graph = true;             // record a step on a GPU and replay it if possible
  std::int64_t validate_every = 0;    // steps; 0: never
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

// Returns the options that change the weights, as names and texts. A resumed run must share them.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> description(const TrainingOptions& training);

// Checks the options after parsing. A default warm-up that is longer than the run is shortened, and a note says so; a
// typed one is refused.
void settle(const Fields& line, TrainingOptions& training);

struct LossPoint {
  std::int64_t step;
  double loss;  // mean since the point before
};

struct TrainingResult {
  std::int64_t steps = 0;             // in all
  double seconds = 0;                 // of this process, steps alone
  double tokens_per_second = 0;       // likewise
  std::int64_t skipped = 0;           // of all steps: gradients overflowed in f16, and nothing was changed
  double loss_scale = 0;              // at the end; 0: none
  std::vector<LossPoint> curve = {};  // one point every log_every steps of this process
  std::int64_t best_step = 0;         // of the best validation; 0: none
  double best_score = 0;              // its score
};

struct Validation {
  double score = 0;  // lower is better
  std::vector<std::pair<std::string, double>> figures = {};
};

struct TrainingJob {
  std::string label = {};  // for the progress line
  Module* model = nullptr;
  MakeBatch batch = {};  // see nn/training/training.h, as for loss_of
  LossOf loss_of = {};
  std::string not_recordable = {};            // see nn/training/training.h
  std::function<void()> begin_with = {};      // sets other initial weights for a new run
  std::function<Validation()> validate = {};  // validates the present weights; needed when options say validate
  std::vector<std::pair<std::string, std::string>> description = {};  // options that must be the same to resume
  std::string record = {};                                            // text of run.json, written when a new run begins
};

// Initialises the model, or loads the latest checkpoint when options.resume; trains up to options.steps; saves on the
// way and at the end (folder/checkpoints, folder/weights.safetensors, folder/metrics.jsonl). The logs of a resumed run
// equal those of an undisturbed one except for `seconds`, which count one process. Throws Interrupted after saving;
// InputError when the folder holds a run and resume is off, or a run with other options; FileError for a damaged
// checkpoint; NotFinite when a loss or a gradient is not finite, or f16's loss scale is at its minimum (the checkpoint
// before it stays the latest).
TrainingResult train(const TrainingJob& job, const TrainingOptions& options);

}  // namespace whence
