// One training run of a model: schedule, accumulation, clipping, optimiser, logs, validation, checkpoints,
// resume, and a clean stop on Ctrl-C.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "examples/whence/cli/json.h"
#include "examples/whence/run/training_options.h"
#include "nn/training/training.h"

namespace whence {

class Transformer;

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
