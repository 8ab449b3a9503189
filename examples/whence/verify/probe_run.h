// One pass of the probe program: everything that a scheme computes from a file's tensors, and every gradient.
#pragma once

#include "examples/whence/verify/probe_input.h"

namespace whence {

// output, draws, logits (0 where masked), pattern, every named intermediate; for given cotangents, "gradient.NAME" of
// each input, parameter and intermediate. The reference executor shows all of it; others the output, the draws, and the
// gradients of inputs and parameters.
[[nodiscard]] SafetensorsFile run_probe(const ProbeInput& input, const Executor& executor);

// JSON: the tensors that a file of `batch` sequences for this scheme may hold, its parameters with their first
// distributions, claims, and names of probes.
[[nodiscard]] std::string describe_scheme(const BareAttention& scheme, index_t batch);

}  // namespace whence
