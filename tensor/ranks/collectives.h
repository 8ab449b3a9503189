// Sums, gathers and broadcasts over ranks, in fixed orders.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "tensor/ranks/communicator.h"

namespace whence {

// total[i] becomes the sum of all ranks' total[i], in place and with the same bits on all. The order is a balanced tree
// over ranks, ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)). So W A terms, of which each of W ranks has A neighbouring ones
// summed by halves, give the same bits for every power of two W. Each rank sends 2 (W - 1) / W of the bytes in 2 log2 W
// exchanges: halves go to the nearest rank, quarters to the next, and the sums come back. `total` is contiguous, of one
// axis, f32 or f64, on any device.
void sum_over_ranks(Communicator& ranks, const Tensor& total);

// Returns what each rank gave, in the order of ranks. All give equally many bytes.
[[nodiscard]] std::vector<std::byte> gather_over_ranks(Communicator& ranks, std::span<const std::byte> mine);
// The same for numbers, texts (of any lengths) and booleans.
[[nodiscard]] std::vector<double> gather_over_ranks(Communicator& ranks, const std::vector<double>& mine);
[[nodiscard]] std::vector<std::string> gather_over_ranks(Communicator& ranks, const std::string& mine);
[[nodiscard]] bool any_of_ranks(Communicator& ranks, bool mine);

// Copies rank 0's numbers to all others, in place.
void broadcast(Communicator& ranks, std::span<std::byte> bytes);
void broadcast(Communicator& ranks, const Tensor& tensor);  // contiguous, on any device
[[nodiscard]] std::string broadcast(Communicator& ranks, const std::string& text);

}  // namespace whence
