// Flip-flop language modelling (Liu et al. 2023; Golovneva et al. 2024, section 5.1): remember a bit among distractors.
//   w0i1r0w1i0i1i1r -> 1.  A string is pairs of an instruction (w writes, r reads, i is to be ignored) and a bit.
// The first instruction is w, the last r; the others are i with probability p_ignore, else w or r evenly. The bit after
// w and i is a fair coin, the bit after r is the bit of the most recent w. As a Task it is registered as "flip_flop".
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "examples/whence/tasks/task.h"
#include "tensor/random.h"

namespace whence::tasks {

// The vocabulary, in this order: a token is its place in "wri01".
inline constexpr std::int64_t write_token = 0, read_token = 1, ignore_token = 2, zero_token = 3, one_token = 4;
inline constexpr std::int64_t flip_flop_vocabulary = 5;

struct FlipFlop {
  int length = 512;  // tokens, two per pair: even, at least 4
  double p_ignore = 0.8;
};

// Different sets are different random streams, so no test string comes from the training stream.
struct FlipFlopSet {
  std::string_view name;     // for tables
  std::string_view purpose;  // of the stream
  double p_ignore;
};
inline constexpr FlipFlopSet training_set = {"training", "flip_flop.train", 0.8};
inline constexpr FlipFlopSet in_distribution_set = {"in distribution", "flip_flop.in_distribution", 0.8};
inline constexpr FlipFlopSet sparse_set = {"sparse", "flip_flop.sparse", 0.98};
inline constexpr FlipFlopSet dense_set = {"dense", "flip_flop.dense", 0.1};

// One string of strings.length tokens, all its randomness from `stream`. InputError unless the length is even and at
// least 4 and p_ignore is a probability below 1.
[[nodiscard]] Tokens sample(const FlipFlop& strings, Stream stream);

[[nodiscard]] std::string text(std::span<const std::int64_t> tokens);  // "w0i1r0"

}  // namespace whence::tasks
