// Results of an inspection as tensors and as tables.
#pragma once

#include "examples/whence/look/edits.h"
#include "examples/whence/look/inspection.h"
#include "examples/whence/report/table.h"
#include "nn/io/safetensors.h"

namespace whence::look {

// Returns "tokens", "targets", "PATH", "gradient.PATH", "cause.PATH" (i32, explained in the metadata), and "path.LAYER.q.NUMBER".
[[nodiscard]] SafetensorsFile tensors_of(const Inspection& inspection);
// Returns the pass without causes and paths: "PATH", "gradient.PATH", "answer.logits" and "loss". Without targets, there are
// no loss and no gradients.
[[nodiscard]] SafetensorsFile pass_of(const Subject& subject);

// Shares of each gradient that are 0, by cause: a row per layer, quantity and head, a column per cause.
[[nodiscard]] Table causes_of(const Inspection& inspection);
// The same in a dozen rows: one for each quantity with zeros, over all layers and heads, without masked entries.
[[nodiscard]] Table causes_in_short(const Inspection& inspection);
// Each path's share of the gradients of x, q, k and v: its norm, and its projection on the whole.
[[nodiscard]] Table paths_table(const Inspection& inspection);

[[nodiscard]] Table edits_table(const std::vector<EditOutcome>& edits);
[[nodiscard]] Table gradients_table(const std::string& edit, const std::vector<GradientOutcome>& changed);

}  // namespace whence::look
