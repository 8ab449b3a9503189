// What was found, as tensors and as tables.
#pragma once

#include "examples/whence/look/edits.h"
#include "examples/whence/look/inspection.h"
#include "examples/whence/look/overview.h"
#include "examples/whence/report/table.h"
#include "nn/io/safetensors.h"

namespace whence::look {

// "tokens", "targets", "PATH", "gradient.PATH" and "cause.PATH" (i32; the metadata say what each number means), and "path.LAYER.q.NUMBER".
[[nodiscard]] SafetensorsFile tensors_of(const Inspection& inspection);
// The pass alone, with nothing found out about it: "PATH" and "gradient.PATH", "answer.logits" and "loss"; of a model and
// tokens without targets no loss and no gradients.
[[nodiscard]] SafetensorsFile pass_of(const Subject& subject);
// "maximum.PATH", "mean.PATH" and "gradient.PATH", a number for each cell; the metadata say how large a cell is.
[[nodiscard]] SafetensorsFile tensors_of(const Overview& overview);

// How much of each gradient is 0, and why: a row per layer, quantity and head, a column per cause.
[[nodiscard]] Table causes_of(const Inspection& inspection);
// The same in a dozen rows: of each quantity that has such an entry, over all layers and heads, without what the mask hides.
[[nodiscard]] Table causes_in_short(const Inspection& inspection);
// Each path's share of the gradients of x, q, k and v: its norm, and its projection on the whole.
[[nodiscard]] Table paths_table(const Inspection& inspection);

[[nodiscard]] Table edits_table(const std::vector<EditOutcome>& edits);
[[nodiscard]] Table gradients_table(const std::string& edit, const std::vector<GradientOutcome>& changed);

}  // namespace whence::look
