// Gradients over a training, and the causes of their zeros: the records of `train --look-every N`, and their curves.
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
  std::string where;  // empty: the number itself, not a share
  std::string of;
  double value;
};

// Measures the loss; the gradient norm of each layer's parameters, and of those outside layers; for a scheme's quantities
// from 0 to 1 (gates) the share within 0.01 of either end; and for quantities with a marked bound (positions, p_max) the
// share that has reached it.
[[nodiscard]] std::vector<Measure> measures_of(const Inspection& inspection);

// "loss 0.31, gradient norm 0.2 0.1, elsewhere 0.8, gates 12 % at 0 or 1". Shares are means over layers.
[[nodiscard]] std::string line_of(const std::vector<Measure>& measures);

// One record for each measure, and for each layer, quantity and head.
[[nodiscard]] std::vector<Json> records_of(const Inspection& inspection, std::int64_t step);

// Returns a function for TrainingJob::look that inspects the current model on one sequence, tokens and targets i64 [1 t]. It
// works on a copy in f32 on the CPU, so that training is not affected. REQUIRES: `model` outlives the result
[[nodiscard]] std::function<TrainingJob::Look(std::int64_t)> looks_at(
    const Transformer& model, const Tensor& tokens, const Tensor& targets);

// Returns a plot for each measure, and one for each quantity whose gradient has zeros other than masked ones. The latter
// has a curve for each cause, in percent of the unmasked entries, over all layers and heads. Empty if there is no such
// file. Throws InputError if it is damaged.
[[nodiscard]] std::vector<report::Plot> history_of(const std::filesystem::path& file);

}  // namespace whence::look
