// Processes that train one model together, and their communication. It moves values; gradients and graphs are unknown
// here. All of it uses one primitive, exchange(), and adds in a fixed order. So the bits do not depend on what carries
// the bytes.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace whence {

class Communicator {
 public:
  virtual ~Communicator() = default;  // during an exception: the other ranks end too
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }     // 0, 1, ... size() - 1
  int size() const { return size_; }     // a power of two
  virtual std::string name() const = 0;  // "MPI (Open MPI v4.1.4)"

  // Sends `mine` to `peer`, another rank, and receives equally many bytes into `theirs`; the peer makes the matching
  // call. Peers are only rank() ^ 1, rank() ^ 2, rank() ^ 4, ... If the peer died or nothing came within the limit, MPI
  // ends the process with a message.
  void exchange(int peer, std::span<const std::byte> mine, std::span<std::byte> theirs);
  // The same for tensors on the CPU that are contiguous, of one dtype and size.
  void exchange(int peer, const Tensor& mine, const Tensor& theirs);

 protected:
  Communicator(int rank, int size) : rank_(rank), size_(size) {}

 private:
  virtual void exchange_bytes(int peer, std::span<const std::byte> mine, std::span<std::byte> theirs) = 0;

  int rank_, size_;
};

// ---- Sums, gathers and broadcasts.

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

// ---- Transports. `limit`: seconds that a rank waits for another that does not answer.

// This process among those that a launcher started.
struct Launch {
  int rank = 0, size = 1;              // among all
  int local_rank = 0, local_size = 1;  // among those on this machine
  std::string by = {};                 // "Open MPI", "PMI", "PMIx"; empty: no launcher
};

// Fills in the ranks of `launch` from MPI. Throws InputError in a build without MPI, or under another MPI's launcher.
[[nodiscard]] std::unique_ptr<Communicator> join_mpi(Launch& launch, double limit);

}  // namespace whence
