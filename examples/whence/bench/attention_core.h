// One attention for the benches to time, from queries, keys and values to output and back, by executor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/whence/bench/bench.h"
#include "examples/whence/verify/bare_attention.h"

namespace whence::bench {

// The cost of CoPE and stick-breaking attention depends on their gates, so they are measured with two kinds of gates.
enum class Gates : unsigned char {
  initial,  // around 1/2, as before training: one or two hundred keys reach p_max, or use up a stick
  sparse    // sigmoid(-4), as in trained models: hardly ever so
};

struct CoreCase {
  std::string scheme;
  std::int64_t length = 0, heads = 12, kv_heads = 0, head_dim = 64, batch = 1;
  Gates gates = Gates::initial;
  DType dtype = DType::f32;  // of operands, parameters and cotangent; drawn in f32, then rounded

  // Returns "cope, sparse gates".
  [[nodiscard]] std::string text() const { return scheme + (gates == Gates::sparse ? ", sparse gates" : ""); }
};

[[nodiscard]] std::vector<CoreCase> cases_of(const Options& options);
[[nodiscard]] std::vector<Executor> executors_of(const std::string& names);  // names, or all

class AttentionCore {
 public:
  AttentionCore(const CoreCase& what, Device device);

  // Returns why this executor cannot run the scheme here; empty if it can.
  [[nodiscard]] std::string refusal(Executor executor) const;
  // plan: {} is the executor that a model would take.
  [[nodiscard]] Repetition run(const AttendPlan& plan = {});
  // Counts the multiply-adds of the formulas, two operations each, for visible pairs alone: 4 d per pair forward and 10
  // d backward, which computes the scores again, and the networks of DAPE and CDAPE (their part that reads the bias is
  // a table over distances). Tiles after the end of a stick are never computed, which is faster than this count.
  [[nodiscard]] double forward_operations() const { return forward_operations_; }
  [[nodiscard]] double backward_operations() const { return backward_operations_; }

  // The results of the last run().
  [[nodiscard]] const NamedTensors& results() const { return results_; }
  // q, k, v, x if it is read, parameters.
  [[nodiscard]] const NamedTensors& leaves() const { return leaves_; }
  [[nodiscard]] const Tensor& cotangent() const { return cotangent_; }

 private:
  Device device_;
  BareAttention scheme_;
  AttendInputs inputs_;
  Tensor cotangent_;
  NamedTensors leaves_;
  NamedTensors results_;
  double forward_operations_ = 0, backward_operations_ = 0;
};

}  // namespace whence::bench
