// Layers that backward computes again: their ops save nothing. A block that a Capture looks into is kept.
#include "autograd/inspect/capture.h"
#include "autograd/recompute.h"
#include "nn/transformer.h"

namespace whence {
namespace {

Residual recomputed(const Block& block, const std::vector<const PositionalScheme*>& shared, const Residual& x,
    const Sequence& sequence, const Pass& pass) {
  if (is_watched_under(block.path())) return block(x, sequence, pass);
  std::vector<Tensor> read{x.sum()};
  for (const Module::Parameter& parameter : block.parameters()) read.push_back(parameter.tensor);
  for (const PositionalScheme* scheme : shared)
    for (const Module::Parameter& parameter : scheme->parameters()) read.push_back(parameter.tensor);
  return {recompute(
      [&block, sequence, pass](const std::vector<Tensor>& given) { return block({given[0]}, sequence, pass).sum(); },
      read)};
}

[[maybe_unused]] const bool registered = (detail::recomputed_layer = recomputed, true);

}  // namespace
}  // namespace whence
