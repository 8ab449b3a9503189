// A pass as tensors, and results of an inspection as tables.
#pragma once

#include "examples/whence/look/inspection.h"
#include "examples/whence/report/table.h"
#include "nn/io/safetensors.h"

namespace whence::look {

// Runs the subject forward and backward. Returns "tokens", "targets", "PATH", "gradient.PATH", "answer.logits" and "loss".
// Without targets, there are no loss and no gradients.
[[nodiscard]] SafetensorsFile pass_of(const Subject& subject);

// Shares of each gradient that are 0, by cause: a row per layer, quantity and head, a column per cause. In short, in a dozen
// rows: one for each quantity with zeros, over all layers and heads, without masked entries.
[[nodiscard]] Table causes_of(const Inspection& inspection, bool in_short = false);
// Each path's share of the gradients of x, q, k and v: its norm, and its projection on the whole.
[[nodiscard]] Table paths_table(const Inspection& inspection);

}  // namespace whence::look
