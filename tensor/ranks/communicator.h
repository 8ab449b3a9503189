// Processes that train one model together, and their communication. It moves values; gradients and graphs are unknown
// here. All of it uses one primitive, exchange(); sums, gathers and broadcasts (collectives.h) are built on it in a
// fixed order. So the bits do not depend on the transport: shared memory of one machine, MPI, or NCCL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "tensor/error.h"
#include "tensor/tensor.h"

namespace whence {

// A rank does not answer: it died, it gave up, or the time limit is over. The message says which rank, and why if
// known.
class LostRank : public Error {
 public:
  using Error::Error;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }     // 0, 1, ... size() - 1
  int size() const { return size_; }     // a power of two
  virtual std::string name() const = 0;  // "shared memory", "MPI (Open MPI v4.1.4)", "NCCL 2.27.3"

  // Sends `mine` to `peer`, another rank, and receives equally many bytes into `theirs`; the peer makes the matching
  // call. Peers are only rank() ^ 1, rank() ^ 2, rank() ^ 4, ... Throws LostRank if the peer died, if any rank gave up,
  // or if nothing came within the limit; MPI ends the process instead.
  void exchange(int peer, std::span<const std::byte> mine, std::span<std::byte> theirs);
  // The same for tensors that are contiguous, of one dtype and size, on the CPU or a device that it reaches().
  void exchange(int peer, const Tensor& mine, const Tensor& theirs);

  // True if numbers on this device are exchanged without a copy to the CPU.
  virtual bool reaches(Device device) const { return device.is_cpu(); }

  // Tells the others that this rank cannot go on: ranks that wait for it, now or later, throw LostRank with `why`, or
  // end with this process. Returns false if another rank or the parent has reported the failure or is about to.
  virtual bool give_up(const std::string& why) noexcept = 0;

  // Throws LostRank if a rank is known to have died or given up. Does not wait: for loops that wait for something else.
  virtual void look_around() {}

  // Exchanges of this rank so far, and bytes that it sent.
  struct Traffic {
    std::uint64_t exchanges = 0, bytes = 0;
  };
  const Traffic& traffic() const { return traffic_; }

 protected:
  Communicator(int rank, int size) : rank_(rank), size_(size) {}

 private:
  virtual void exchange_bytes(int peer, std::span<const std::byte> mine, std::span<std::byte> theirs) = 0;
  // Called for devices that it reaches(), except the CPU.
  virtual void exchange_on_device(int peer, const Tensor& mine, const Tensor& theirs);
  void require_peer(int peer) const;

  int rank_, size_;
  Traffic traffic_;
};

// Launch: the launcher of this process, and its rank among the others.
struct Launch {
  int rank = 0, size = 1;              // among all
  int local_rank = 0, local_size = 1;  // among those on this machine
  std::string by = {};                 // "whence", "Open MPI", "PMI"; empty: alone
  bool own_gpu = true;                 // false: some of this machine's ranks share a GPU
};

// ---- Implementations. Forked ranks are in fork.h. `limit`: seconds that a rank waits for another that does not
// answer.

// Fills in the ranks of `launch` from MPI. Throws InputError in a build without MPI, or under another MPI's launcher.
[[nodiscard]] std::unique_ptr<Communicator> join_mpi(Launch& launch, double limit);

// For ranks that compute on `device`. `control` carries NCCL's id and messages on the CPU; it must outlive the result.
// Throws InputError if NCCL cannot be loaded, or if ranks share a GPU.
[[nodiscard]] std::unique_ptr<Communicator> join_nccl(
    const Launch& launch, Communicator& control, Device device, double limit);
[[nodiscard]] bool nccl_can_be_loaded();

}  // namespace whence
