// One pass of `whence probe`: everything that a scheme computes from a file's tensors, and every gradient.
#pragma once

#include "examples/whence/verify/probe_input.h"

namespace whence {

// Returns output, draws, logits (0 where masked), pattern and every named intermediate; for given cotangents also
// "gradient.NAME" of each input, parameter and intermediate. The reference executor shows all of these. Other executors
// show the output, the draws, and the gradients of inputs and parameters.
[[nodiscard]] SafetensorsFile run_probe(const ProbeInput& input, const AttendPlan& plan);

// Returns JSON: the tensors that a file of `batch` sequences for this scheme may hold, the parameters with their initial
// distributions, claims, and names of probes.
[[nodiscard]] std::string describe_scheme(const BareAttention& scheme, index_t batch);

}  // namespace whence
