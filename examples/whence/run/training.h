// One training run of a model: schedule, accumulation, clipping, AdamW, logs, validation, checkpoints,
// resume, and a clean stop on Ctrl-C.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "examples/whence/cli/command_line.h"
#include "nn/io/json.h"
#include "nn/training/training_step.h"

namespace whence {

struct TrainingOptions {
  std::int64_t steps = 10000;
  std::int64_t accumulate = 1;  // parts whose gradients make one step, over all ranks
  double learning_rate = 3e-4;  // the peak
  double final_rate = 0;        // what linear and cosine end at
  std::int64_t warm_up = 50;    // steps
  std::string decay = "linear";
  double beta2 = 0.999;  // of Adam
  double weight_decay = 0.1;
  double clip = 1.0;                  // largest global norm of the gradients
  std::uint64_t seed = 0;             // of parameters, data and dropout
  DType precision = DType::f32;       // of parameters and activations; f16 with a loss scale
  LossScaleOptions scaling = {};      // of f16
  Device device = {};                 // where the model is trained, and left
  bool cuda_graph = false;            // record a step on the GPU and replay it
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
  bool tensorboard = false;     // an event file besides metrics.jsonl
  bool check_finite = false;    // stop at the first op whose result is not finite
  bool quiet = false;
  Communicator* ranks = nullptr;  // with whom the parts of a step are shared; null: nobody
};

// Declares them. Without the options of validation where the program has nothing to validate with.
void declare(CommandLine& options, TrainingOptions& training, bool with_validation = false);

// Those that change the weights, as names and texts: what a resumed run must share.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> description(const TrainingOptions& training);

// InputError when options do not go together (patience without validation, ...).
void check(const TrainingOptions& training);

// After parsing: a default warm-up that is longer than the run is shortened, and the user
// is told; a typed one is refused.
void fit_warm_up(const CommandLine& options, TrainingOptions& training);

struct LossPoint {
  std::int64_t step;
  double loss;  // mean since the point before
};

struct TrainingResult {
  std::int64_t steps = 0;             // done in all
  double seconds = 0;                 // of this process, in the steps themselves
  double tokens_per_second = 0;       // likewise
  std::int64_t skipped = 0;           // of all steps, those whose gradients overflowed in f16: nothing was changed
  double loss_scale = 0;              // at the end; 0: none
  std::vector<LossPoint> curve = {};  // one point every log_every steps of this process
  std::int64_t best_step = 0;         // of the best validation; 0: none
  double best_score = 0;              // its score
  bool stopped_early = false;         // patience was at its end
};

// "; 3 steps skipped, loss scale 8192 at the end", or nothing where there is no loss scale.
[[nodiscard]] std::string skipped_text(const TrainingResult& trained);

struct Validation {
  double score = 0;  // lower is better
  std::vector<std::pair<std::string, double>> figures = {};
};

struct TrainingJob {
  std::string label = {};  // of the progress line
  Module* model = nullptr;
  MakeBatch batch = {};  // of training_step.h, as is loss_of
  LossOf loss_of = {};
  std::string not_recordable = {};  // why a step cannot be recorded and replayed, such as dropout; empty: it can
  std::int64_t sequences = 0;       // in a part, for advice when memory is out; 0: unknown
  // A look at the model as it is after a step (examples/whence/look/history.h): records for looks.jsonl, and a line to print.
  struct Look {
    std::vector<Json> records;
    std::string line;
  };
  std::function<Look(std::int64_t step)> look = {};
  std::function<void()> begin_with = {};      // other numbers than the initial ones, for a run that begins
  std::function<Validation()> validate = {};  // with the weights as they are; needed when options say validate
  std::vector<std::pair<std::string, std::string>> description = {};  // options that must be the same to resume
  std::string record = {};                                            // text of run.json, written when a new run begins
};

// Initialises the model, or loads the latest checkpoint when options.resume; trains up to options.steps; saves on the
// way and at the end (folder/checkpoints, folder/weights.safetensors, folder/metrics.jsonl). The logs of a resumed run
// are those of an undisturbed one but for `seconds`, which are of one process. Throws Interrupted after saving;
// InputError when the folder holds a run and resume is off, or a run with other options; FileError for a damaged
// checkpoint; NotFinite when a loss or a gradient is not finite, or f16's loss scale is at its least (the checkpoint
// before it stays the latest).
TrainingResult train(const TrainingJob& job, const TrainingOptions& options);

}  // namespace whence
