// What a trained decoder does with one flip-flop string, as heat maps: gates, positions,
// attention and the loss's gradients.
#pragma once

#include <string>

#include "examples/report/report.h"
#include "nn/transformer.h"

namespace whence::report {

// Runs the model on `text` (such as "w0i1r0") with the loss at its reads, and fills the page's tokens and maps: one map
// for each layer, head and quantity that the model's scheme has probes for.
void add_maps(Page& page, const Transformer& model, const std::string& text);

}  // namespace whence::report
