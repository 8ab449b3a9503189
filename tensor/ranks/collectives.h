// Sums, gathers and broadcasts over ranks, in fixed orders.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "tensor/ranks/communicator.h"

namespace whence {

// total[i] becomes the sum of all ranks' total[i], in place and with the same bits on all. The order is that of a
// balanced tree over ranks, ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)): one that sums W A terms by halves, where each of
// W ranks has A neighbours, gives the same bits for every power of two W. Each rank sends 2 (W - 1) / W of the bytes,
// in 2 log2 W exchanges: halves are summed with the neighbour, quarters with the one after, and what is done goes back.
// `total` is contiguous, of one axis, f32 or f64, on any device.
void sum_over_ranks(Communicator& ranks, const Tensor& total);

// What each rank gives, by rank. All give as many bytes.
[[nodiscard]] std::vector<std::byte> gather_over_ranks(Communicator& ranks, std::span<const std::byte> mine);
// The same of numbers, texts (of any lengths) and truth values.
[[nodiscard]] std::vector<double> gather_over_ranks(Communicator& ranks, const std::vector<double>& mine);
[[nodiscard]] std::vector<std::string> gather_over_ranks(Communicator& ranks, const std::string& mine);
[[nodiscard]] bool any_of_ranks(Communicator& ranks, bool mine);

// Rank 0's numbers, in place on all others.
void broadcast(Communicator& ranks, std::span<std::byte> bytes);
void broadcast(Communicator& ranks, const Tensor& tensor);  // contiguous, on any device
[[nodiscard]] std::string broadcast(Communicator& ranks, const std::string& text);

}  // namespace whence
