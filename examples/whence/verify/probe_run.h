// One pass of `whence probe`: the tensors that a scheme expects, checked by name before anything runs; everything that it
// computes from them, and every gradient.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "examples/whence/verify/bare_attention.h"
#include "nn/io/safetensors.h"

namespace whence {

struct ProbeInput {
  std::unique_ptr<BareAttention> scheme;  // with the file's parameters
  AttendInputs given;                     // causal, with the file's positions, padding and mask
  bool has_positions = false;             // true if the file has positions
  Tensor cotangent, cotangent_logits;     // undefined if not in the file
  // Probes of the positions that `randomised` draws, with the file's values, [t] f64; undefined: drawn.
  NamedTensors draws;
  std::vector<std::string> drawn;  // parameters that are not in the file

  // Returns the plan of this executor; auto is reference. Throws InputError if it never holds logits that have a cotangent.
  [[nodiscard]] AttendPlan plan(const std::string& executor) const;
  void to(Device device);  // moves numbers, parameters and draws
  [[nodiscard]] DType dtype() const { return (given.query.defined() ? given.query : given.x).dtype(); }
};

// Takes sizes from q, or from x if the schemes only add to tokens. Missing parameters are drawn from their Init by the
// seed `init`, or refused without `init`. Numbers are cast to `dtype` if it is given; those of the wanted dtype are not
// copied. Throws FileError "PATH: ...", or InputError if there is no path, or an option does not fit the tensors.
[[nodiscard]] ProbeInput probe_input_of(const std::string& path, const NamedTensors& tensors, const std::string& scheme,
    std::optional<DType> dtype, std::optional<std::uint64_t> init);

// Returns output, draws, logits (0 where masked), pattern and every named intermediate; for given cotangents also
// "gradient.NAME" of each input, parameter and intermediate. The reference executor shows all of these. Other executors
// show the output, the draws, and the gradients of inputs and parameters.
[[nodiscard]] SafetensorsFile run_probe(const ProbeInput& input, const AttendPlan& plan);

// Returns JSON: the tensors that a file of `batch` sequences for this scheme may hold, the parameters with their initial
// distributions, claims, and names of probes.
[[nodiscard]] std::string describe_scheme(const BareAttention& scheme, index_t batch);

}  // namespace whence
