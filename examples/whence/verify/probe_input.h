// Input of `whence probe`: the tensors that a scheme expects, and a file of them, checked by name before anything runs.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "examples/whence/verify/bare_attention.h"
#include "nn/io/safetensors.h"

namespace whence {

struct ExpectedTensor {
  // numbers: in the common dtype; truth: bool; positions: any number type; parameter: as numbers, may be drawn by `init`.
  enum class Kind { numbers, truth, positions, parameter };
  std::string name, axes;     // "q", "b h t d"
  std::vector<Shape> shapes;  // any of these is accepted
  Kind kind = Kind::numbers;
  bool required = true;
  std::string meaning;
};

// Returns operands, then optional tensors. Parameters belong to the scheme: BareAttention::root().
[[nodiscard]] std::vector<ExpectedTensor> expected_tensors(const BareAttention& scheme, index_t batch, index_t length);

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
// seed `init`, or refused without `init`. Numbers are cast to `dtype` if it is given. Throws FileError "PATH: ...", or
// InputError if an option does not fit the file.
[[nodiscard]] ProbeInput read_probe_input(
    const std::string& path, const std::string& scheme, std::optional<DType> dtype, std::optional<std::uint64_t> init);

// The same for tensors in memory. Without a path errors are InputError. Numbers of the wanted dtype are not copied.
[[nodiscard]] ProbeInput probe_input_of(const std::string& path, const NamedTensors& tensors, const std::string& scheme,
    std::optional<DType> dtype, std::optional<std::uint64_t> init);

}  // namespace whence
