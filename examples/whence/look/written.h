// What was found, for people and for programs: the page's data, tables, and text.
#pragma once

#include <string>

#include "examples/whence/cli/results.h"
#include "examples/whence/look/edits.h"
#include "examples/whence/look/inspection.h"
#include "examples/whence/look/overview.h"
#include "nn/io/safetensors.h"

namespace whence::look {

// The data of the page as JSON; examples/whence/look/viewer/ reads them. Numbers are base64 of little-endian f32 or f64,
// causes a byte for each entry.
[[nodiscard]] std::string json_of(const Inspection& inspection, const std::vector<EditOutcome>& edits = {});

// Of another checkpoint of the same run: without links, routes, graph and edits.
[[nodiscard]] std::string checkpoint_json_of(const Inspection& inspection);
// Of a long text: pools, windows and strips.
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

struct TextStyle {
  std::size_t columns = 80;  // at least 20 are taken
  bool colours = false;      // 24-bit backgrounds; without them a mark below each token

  // What suits standard output as it is now: colours on a terminal alone, and not where NO_COLOR is set.
  static TextStyle for_standard_output();
};
// The text, each token shaded by what one query makes of it, and the ten tokens of which it makes most. `what`:
// "pattern layer=0 head=1 i=40", or "dLoss/dgates ...": a quantity of pairs, of which all keys are shown. Characters
// that would move a terminal's cursor, or turn its text around, are written out.
[[nodiscard]] std::string text_read(const Inspection& inspection, const std::string& what, const TextStyle& style);

}  // namespace whence::look
