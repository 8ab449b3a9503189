// What was found, for people and for programs: the page's data, tables, and text.
#pragma once

#include <string>

#include "examples/app/results.h"
#include "examples/look/edits.h"
#include "examples/look/inspection.h"
#include "examples/look/overview.h"
#include "nn/io/safetensors.h"

namespace whence::look {

// The data of the page as JSON; examples/look/viewer/ reads them. Numbers are base64 of little-endian f32 or f64, causes
// a byte for each entry.
[[nodiscard]] std::string json_of(const Inspection& inspection, const std::vector<EditOutcome>& edits = {});

// Of another checkpoint of the same run: without routes, graph and edits.
[[nodiscard]] std::string checkpoint_json_of(const Inspection& inspection);
[[nodiscard]] std::string json_of(const Overview& overview, const Rows& rows);

// "PATH", "gradient.PATH" and "reason.PATH" (i32; the metadata say what each number means), and "way.LAYER.q.NUMBER".
[[nodiscard]] SafetensorsFile tensors_of(const Inspection& inspection);
// "maximum.PATH", "mean.PATH" and "gradient.PATH", a number for each cell; the metadata say how large a cell is.
[[nodiscard]] SafetensorsFile tensors_of(const Overview& overview);

// How much of each gradient is 0, and why: a row per layer, quantity and head, a column per reason.
[[nodiscard]] Table causes_of(const Inspection& inspection);
// Each way's share of the gradients of x, q, k and v: its norm, and its projection on the whole.
[[nodiscard]] Table ways_table(const Inspection& inspection);

[[nodiscard]] Table edits_table(const std::vector<EditOutcome>& edits);

// One number worked out, as lines of text. `what`: "logits layer=0 head=3 i=41 j=17", or "dLoss/dgates ...".
[[nodiscard]] std::string explained(const Inspection& inspection, const std::string& what);
[[nodiscard]] std::string explained_json(const Inspection& inspection, const std::string& what);

}  // namespace whence::look
