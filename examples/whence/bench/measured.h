// Cases of the benches one by one, also for a program that alternates them with other measurements (python/benches.cpp).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "examples/whence/bench/attention_core.h"

namespace whence::bench {

struct Measured {
  std::string name;                       // "cope, sparse gates, length 512"
  NamedTensors given;                     // the initial numbers
  std::function<Repetition()> run;        // peak: 0 if not counted
  std::function<NamedTensors()> results;  // of the last run; for a step: of the first batch, before any step
  std::int64_t heads = 0;                 // for a model
};

// Uses the executor of this name; "auto": a model's choice.
[[nodiscard]] Measured measured_attention(const CoreCase& what, const std::string& executor, Device device);
// Returns all ops of `bench ops` at this scale.
[[nodiscard]] std::vector<Measured> measured_ops(double scale, DType dtype, Device device);
// `model`: a name in `bench step`. 0: its own batch or length.
struct StepSizes {
  std::string model, scheme, executor = "auto";
  std::int64_t batch = 0, length = 0;
};
[[nodiscard]] Measured measured_step(const StepSizes& sizes, const Placement& placement);
// Reads tokens after a prompt, one by one.
struct DecodeSizes {
  std::string scheme;
  std::int64_t prompt = 64, tokens = 64, kv_heads = 0;
};
[[nodiscard]] Measured measured_decode(const DecodeSizes& sizes, const std::string& precision, Device device);

}  // namespace whence::bench
