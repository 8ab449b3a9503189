// One attention, queries, keys and values to output and back, as the benches time it: forward and backward, by
// executor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/whence/bench/peer.h"
#include "examples/whence/verify/bare_attention.h"
#include "nn/io/json.h"

namespace whence::bench {

// CoPE's cost depends on its gates, so it is measured with two kinds of them.
enum class Gates : unsigned char {
  initial,  // around 1/2, as before training: positions reach p_max after a hundred keys or two
  sparse    // sigmoid(-4), as trained models have them: positions hardly ever reach p_max
};

struct CoreCase {
  std::string scheme;
  std::int64_t length = 0, heads = 12, head_dim = 64, batch = 1;
  Gates gates = Gates::initial;
  bool causal = true;
  DType dtype = DType::f32;  // f64: the same numbers, drawn in f32

  // "cope, sparse gates"
  [[nodiscard]] std::string text() const { return scheme + (gates == Gates::sparse ? ", sparse gates" : ""); }
};
// Whether the scheme has CoPE's gates.
[[nodiscard]] bool has_gates(const std::string& scheme);

// Milliseconds of one repetition, and MiB above the operands: q, k, v, output and their gradients.
struct CoreRun {
  double forward = 0, backward = 0;
  double kept = 0;  // what forward leaves for backward
  double peak = 0;
};

class AttentionCore {
 public:
  AttentionCore(const CoreCase& what, Device device);

  // By its name, or under "auto" what a model would take. InputError when it cannot run the scheme.
  [[nodiscard]] const Executor& executor(const std::string& name) const;
  // Why this executor cannot run the scheme; empty when it can.
  [[nodiscard]] std::string refusal(const Executor& executor) const;
  [[nodiscard]] CoreRun run(const Executor& executor, bool with_backward = true);
  // Multiply-adds that the formulas need, two operations each, for the pairs that are seen and no others: 4 d per pair
  // forward and 10 d backward, which computes the scores again, and the networks of DAPE and CDAPE (whose part that
  // reads the bias is a table over distances).
  [[nodiscard]] double forward_operations() const { return forward_operations_; }
  [[nodiscard]] double backward_operations() const { return backward_operations_; }

  // What a peer is given, and what the last run() gave.
  [[nodiscard]] NamedTensors given() const;
  [[nodiscard]] const NamedTensors& results() const { return results_; }

 private:
  void count_operations();

  CoreCase what_;
  Device device_;
  BareAttention scheme_;
  AttendInputs inputs_;
  Tensor cotangent_;
  NamedTensors leaves_;  // q, k, v, x where it is read, parameters
  NamedTensors results_;
  double forward_operations_ = 0, backward_operations_ = 0;
};

// Of --executors: names with commas between them, or "all".
[[nodiscard]] std::vector<const Executor*> chosen_executors(const std::string& list);
// What a line of JSON says of a measurement before its figures.
[[nodiscard]] Json record_of(const CoreCase& what, const std::string& engine, Device device);

// PyTorch's ways to run a scheme; none for a scheme that pytorch.py does not have.
[[nodiscard]] std::vector<std::string> peer_ways_of(const std::string& scheme);
// How far f32 may set the results of two programs apart. CoPE's gradient jumps where a position passes a whole number:
// a sum of T gates is off by about sqrt(T) eps p_max, that share of all positions lies on the other side of one, and
// the root of it is what they take of a norm: 1e-2 at T = 2048.
// The weights of DAPE's mixes sum over all pairs, which is where the order of a sum in f32 tells most: up to 3e-4.
[[nodiscard]] inline double allowed_difference(const std::string& scheme) {
  if (has_gates(scheme)) return 2e-2;
  return scheme.find("dape") != std::string::npos ? 5e-4 : 1e-4;
}
// What Peer::ask() is to prepare.
[[nodiscard]] Json peer_request(const CoreCase& what, const std::string& way, Device device);

}  // namespace whence::bench
