// Processes that train one model together, and what they say to each other. Beside the device runtime: values, no
// gradients. All that goes between ranks goes by one primitive, exchange(); sums, gathers and broadcasts over it are in
// collectives.h, in an order that is whence's own. So the bits do not depend on who carries the bytes: shared memory of
// one machine, MPI, or NCCL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "tensor/error.h"
#include "tensor/tensor.h"

namespace whence {

// A rank that does not answer: it died, it gave up, or the limit of waiting is over. Says which rank, and why if known.
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

  // Sends `mine` to `peer`, which is another rank, and receives as many bytes into `theirs`; the peer calls it with
  // this rank at the same time. Peers are rank() ^ 1, rank() ^ 2, rank() ^ 4, ... alone. LostRank when the peer died,
  // when any rank gave up, or when nothing came for the limit; MPI ends the process in its place.
  void exchange(int peer, std::span<const std::byte> mine, std::span<std::byte> theirs);
  // The same with tensors that are contiguous, of one dtype and size, and on the CPU or a device that it reaches().
  void exchange(int peer, const Tensor& mine, const Tensor& theirs);

  // Numbers on this device go from rank to rank without a way over the CPU.
  virtual bool reaches(Device device) const { return device.is_cpu(); }

  // This rank cannot go on: those that wait for it, now or later, throw LostRank with `why`, or end with this process.
  // False when another rank or the parent has said what went wrong, or is about to: once is enough.
  virtual bool give_up(const std::string& why) noexcept = 0;

  // LostRank when a rank is known to have died or given up. Waits for nobody: for those who wait elsewhere.
  virtual void look_around() {}

  // So far, of this rank: exchanges, and bytes that it sent.
  struct Traffic {
    std::uint64_t exchanges = 0, bytes = 0;
  };
  const Traffic& traffic() const { return traffic_; }

 protected:
  Communicator(int rank, int size) : rank_(rank), size_(size) {}

 private:
  virtual void exchange_bytes(int peer, std::span<const std::byte> mine, std::span<std::byte> theirs) = 0;
  // Called for devices that it reaches(), besides the CPU.
  virtual void exchange_on_device(int peer, const Tensor& mine, const Tensor& theirs);
  void require_peer(int peer) const;

  int rank_, size_;
  Traffic traffic_;
};

// Who started this process, and as which of several.
struct Launch {
  int rank = 0, size = 1;              // of all
  int local_rank = 0, local_size = 1;  // of those on this machine
  std::string by = {};                 // "whence", "Open MPI", "PMI"; empty: alone
  bool own_gpu = true;                 // false: of this machine's ranks some share one
};

// ---- Bodies. That of forked ranks is in fork.h. `limit`: seconds that a rank waits for another which does not answer.

// Fills in the ranks of `launch`, which MPI says. InputError in a build without MPI, or under another MPI's launcher.
[[nodiscard]] std::unique_ptr<Communicator> join_mpi(Launch& launch, double limit);

// For ranks that compute on `device`. `control` carries NCCL's number, and messages of the CPU; it outlives this one.
// InputError where NCCL cannot be loaded, or ranks have no GPU each.
[[nodiscard]] std::unique_ptr<Communicator> join_nccl(
    const Launch& launch, Communicator& control, Device device, double limit);
[[nodiscard]] bool nccl_can_be_loaded();

}  // namespace whence
