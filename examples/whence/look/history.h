// How gradients fare over a training, and why they are zero: what `train --look-every N` keeps, and its curves.
//   looks.jsonl   {"step": 50, "measure": "gradient norm", "of": "layer 0", "value": 0.31}
//   looks.jsonl   {"step": 50, "layer": 0, "quantity": "position.gates", "head": 1, "entries": 4096, "clamped": 12, ...}
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "examples/whence/cli/json.h"
#include "examples/whence/look/inspection.h"
#include "examples/whence/report/report.h"
#include "examples/whence/run/training.h"

namespace whence::look {

inline constexpr const char* history_file = "looks.jsonl";

// "gradient norm" of "layer 0", 0.31; "gates", "at 0 or 1", of "layer 0", 12 (percent of what the mask does not hide).
struct Measure {
  std::string what;
  std::string where;  // empty: no share but the number itself
  std::string of;
  double value;
};

// The loss; the norm of the gradients of all parameters of each layer, and of those in none; of what a scheme passes
// that runs from 0 to 1 (gates) the share within 0.01 of either end; of what has a bound that is marked (positions,
// p_max) the share that has reached it.
[[nodiscard]] std::vector<Measure> measures_of(const Inspection& inspection);

// "loss 0.31, gradient norm 0.2 0.1, elsewhere 0.8, gates 12 % at 0 or 1": shares as the mean over layers.
[[nodiscard]] std::string line_of(const std::vector<Measure>& measures);

// One record for each measure, and for each layer, quantity and head.
[[nodiscard]] std::vector<Json> records_of(const Inspection& inspection, std::int64_t step);

// For TrainingJob::look: looks at the model as it is, on one sequence, tokens and targets i64 [1 t]. A copy in f32 on
// the CPU is what is looked at, so that training goes on as if nobody had. REQUIRES: `model` outlives the result.
[[nodiscard]] std::function<TrainingJob::Look(std::int64_t)> looks_at(
    const Transformer& model, const Tensor& tokens, const Tensor& targets);

// A plot for each measure, and for each quantity that was stopped somewhere by something other than the mask: a curve
// for each cause, in percent of the entries that the mask does not hide, over all layers and heads. Nothing where
// there is no such file. InputError when it is damaged.
[[nodiscard]] std::vector<report::Plot> history_of(const std::filesystem::path& file);

}  // namespace whence::look
