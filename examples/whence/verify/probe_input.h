// What probe reads: the tensors that a scheme expects, and a file of them, checked name by name before anything runs.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "examples/whence/verify/bare_attention.h"
#include "nn/io/safetensors.h"

namespace whence {

struct ExpectedTensor {
  // Of the dtype of all numbers; bool; any floating or whole numbers; as numbers, where an `init` may draw them.
  enum class Kind { numbers, truth, positions, parameter };
  std::string name, axes;     // "q", "b h t d"
  std::vector<Shape> shapes;  // any of these
  Kind kind = Kind::numbers;
  bool required = true;
  std::string meaning;
};

// Operands, then what may be given besides. Parameters belong to the scheme: BareAttention::root().
[[nodiscard]] std::vector<ExpectedTensor> expected_tensors(const BareAttention& scheme, index_t batch, index_t length);

struct ProbeInput {
  std::unique_ptr<BareAttention> scheme;  // parameters as the file has them
  AttendInputs given;                     // with positions, padding and mask of the file; causal
  bool has_positions = false;             // the file has
  Tensor cotangent, cotangent_logits;     // undefined where the file has none
  // Probes through which positions pass that `randomised` draws, with those of the file, [t] f64; undefined: drawn.
  NamedTensors draws;
  std::vector<std::string> drawn;  // parameters that the file does not have

  void to(Device device);  // numbers, parameters and draws
  [[nodiscard]] DType dtype() const { return (given.query.defined() ? given.query : given.x).dtype(); }
};

// Sizes come from q, or from x where the schemes only add to tokens. Missing parameters are drawn from
// their Init by the seed `init`, or refused without one. Numbers are cast to `dtype` when one is given.
// Throws FileError "PATH: ...", InputError where an option does not go with the file.
[[nodiscard]] ProbeInput read_probe_input(
    const std::string& path, const std::string& scheme, std::optional<DType> dtype, std::optional<std::uint64_t> init);

// The same of tensors at hand; without a path errors are InputError. Numbers of the wanted dtype are not copied.
[[nodiscard]] ProbeInput probe_input_of(const std::string& path, const NamedTensors& tensors, const std::string& scheme,
    std::optional<DType> dtype, std::optional<std::uint64_t> init);

}  // namespace whence
