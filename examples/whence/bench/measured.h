// Cases of the benches one by one, for a program that measures something else in turn with them (python/benches.cpp).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "examples/whence/bench/attention_core.h"
#include "examples/whence/machine/placement.h"

namespace whence::bench {

struct Measured {
  std::string name;                       // "cope, sparse gates, length 512"
  NamedTensors given;                     // the numbers that it begins with
  std::function<CoreRun()> run;           // one repetition; no backward: nan; peak: 0 where it is not counted
  std::function<NamedTensors()> results;  // of the last run; of a step: of the first batch, before any step
  std::int64_t heads = 0;                 // of a model
};

// By the executor of this name; "auto": that of a model.
[[nodiscard]] Measured measured_attention(const CoreCase& what, const std::string& executor, Device device);
// All ops of `bench ops` at this scale.
[[nodiscard]] std::vector<Measured> measured_ops(double scale, DType dtype, Device device);
// `model`: one of `bench step`. 0: its own batch or length.
struct StepSizes {
  std::string model, scheme, executor = "auto";
  std::int64_t batch = 0, length = 0;
};
[[nodiscard]] Measured measured_step(const StepSizes& sizes, const Placement& placement);
// Tokens behind a prompt, one by one.
struct DecodeSizes {
  std::string scheme;
  std::int64_t prompt = 64, tokens = 64, kv_heads = 0, vocabulary = 256;
};
[[nodiscard]] Measured measured_decode(const DecodeSizes& sizes, const std::string& precision, Device device);

}  // namespace whence::bench
