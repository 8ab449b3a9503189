// Flip-flop language modelling (Liu et al. 2023; Golovneva et al. 2024, section 5.1): remember a bit among distractors.
//   w0i1r0w1i0i1i1r -> 1.  A string is pairs of an instruction (w writes, r reads, i is to be ignored) and a bit.
// The first instruction is w, the last r; the others are i with probability p_ignore, else w or r evenly. The bit after
// w and i is a fair coin, the bit after r is the bit of the most recent w. As a Task it is registered as "flip_flop".
#pragma once

#include "examples/whence/tasks/task.h"

namespace whence::tasks {

// The vocabulary, in this order.
inline constexpr std::string_view flip_flop_symbols = "wri01";
inline constexpr std::int64_t write_token = 0, read_token = 1, ignore_token = 2, zero_token = 3, one_token = 4;

// The sets of training and of the tests: in distribution, sparse, dense. Each value is p_ignore in percent.
[[nodiscard]] const std::vector<DrawnSet>& flip_flop_sets();

// Draws one string of `length` tokens from `stream` alone. InputError unless the length is even and at least 4.
[[nodiscard]] Tokens flip_flop_string(index_t length, double p_ignore, const Stream& stream);

}  // namespace whence::tasks
