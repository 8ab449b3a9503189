// One attention, queries, keys and values to output and back, as the benches time it: forward and backward, by
// executor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/whence/bench/bench.h"
#include "examples/whence/verify/bare_attention.h"

namespace whence::bench {

// What CoPE and stick-breaking attention cost depends on their gates, so they are measured with two kinds of them.
enum class Gates : unsigned char {
  initial,  // around 1/2, as before training: after a hundred keys or two positions reach p_max, and a stick is used up
  sparse    // sigmoid(-4), as trained models have them: hardly ever
};

struct CoreCase {
  std::string scheme;
  std::int64_t length = 0, heads = 12, kv_heads = 0, head_dim = 64, batch = 1;
  Gates gates = Gates::initial;
  bool causal = true;
  DType dtype = DType::f32;  // of operands, parameters and cotangent; drawn in f32, and rounded where it is another

  // "cope, sparse gates"
  [[nodiscard]] std::string text() const { return scheme + (gates == Gates::sparse ? ", sparse gates" : ""); }
};

// Which cases a command line asks for.
struct CoreOptions {
  std::string schemes, executors, lengths = "512,2048", gates;
  std::int64_t heads = 12, kv_heads = 0, head_dim = 64, batch = 1;
};
void declare(Fields& line, CoreOptions& options);
[[nodiscard]] std::vector<CoreCase> cases_of(const CoreOptions& options);
[[nodiscard]] std::vector<const Executor*> executors_of(const CoreOptions& options);

// Milliseconds, and MiB above the operands: q, k, v, output and their gradients.
struct CoreRun : Repetition {
  double kept = 0;  // what forward leaves for backward
  double peak = 0;
};

class AttentionCore {
 public:
  AttentionCore(const CoreCase& what, Device device);

  // Why this executor cannot run the scheme here; empty when it can.
  [[nodiscard]] std::string refusal(const Executor& executor) const;
  [[nodiscard]] CoreRun run(const Executor& executor, bool with_backward = true);
  // By the executor that a model would take.
  [[nodiscard]] CoreRun run();
  // Multiply-adds that the formulas need, two operations each, for the pairs that are seen and no others: 4 d per pair
  // forward and 10 d backward, which computes the scores again, and the networks of DAPE and CDAPE (whose part that
  // reads the bias is a table over distances). Tiles behind the end of a stick are never computed: that is faster than
  // these count.
  [[nodiscard]] double forward_operations() const { return forward_operations_; }
  [[nodiscard]] double backward_operations() const { return backward_operations_; }

  // What the last run() gave.
  [[nodiscard]] const NamedTensors& results() const { return results_; }
  // q, k, v, x where it is read, parameters.
  [[nodiscard]] const NamedTensors& leaves() const { return leaves_; }
  [[nodiscard]] const Tensor& cotangent() const { return cotangent_; }

 private:
  void count_operations();

  CoreCase what_;
  Device device_;
  BareAttention scheme_;
  AttendInputs inputs_;
  Tensor cotangent_;
  NamedTensors leaves_;
  NamedTensors results_;
  double forward_operations_ = 0, backward_operations_ = 0;
};

// What a line of JSON and a row of a table say of a measurement before its figures.
[[nodiscard]] Row row_of(const CoreCase& what, const std::string& engine);

}  // namespace whence::bench
