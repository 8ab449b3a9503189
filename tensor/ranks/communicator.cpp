#include "tensor/ranks/communicator.h"

#include <bit>

namespace whence {

void Communicator::require_peer(int peer) const {
  const int distance = peer ^ rank_;
  if (peer < 0 || peer >= size_ || !std::has_single_bit(static_cast<unsigned>(distance)))
    fail("exchange", "rank ", peer, " given to rank ", rank_, " of ", size_,
        "; one whose number differs in a single bit required");
}

void Communicator::exchange(int peer, std::span<const std::byte> mine, std::span<std::byte> theirs) {
  require_peer(peer);
  if (mine.size() != theirs.size())
    fail("exchange", mine.size(), " bytes to send and ", theirs.size(), " to receive given; as many of both required");
  exchange_bytes(peer, mine, theirs);
  ++traffic_.exchanges, traffic_.bytes += mine.size();
}

void Communicator::exchange(int peer, const Tensor& mine, const Tensor& theirs) {
  const auto bytes = [](const Tensor& x) { return static_cast<std::size_t>(x.numel()) * size_of(x.dtype()); };
  if (!mine.is_contiguous() || !theirs.is_contiguous() || mine.dtype() != theirs.dtype() ||
      mine.numel() != theirs.numel() || !(mine.device() == theirs.device()) || !reaches(mine.device()))
    fail("exchange", mine.shape(), " and ", theirs.shape(),
        " given; two contiguous tensors alike, on a device that this communicator reaches, required");
  if (mine.device().is_cpu()) return exchange(peer, {mine.bytes(), bytes(mine)}, {theirs.bytes(), bytes(theirs)});
  require_peer(peer);
  exchange_on_device(peer, mine, theirs);
  ++traffic_.exchanges, traffic_.bytes += bytes(mine);
}

void Communicator::exchange_on_device(int, const Tensor& mine, const Tensor&) {
  fail("exchange", "numbers on ", to_string(mine.device()), " given; ", name(), " carries those of the CPU alone");
}

namespace {

bool started_by_mpi(const Launch& launch) {
  return built_with_mpi() && (launch.by == "Open MPI" || launch.by == "PMI" || launch.by == "SLURM");
}

std::unique_ptr<Communicator> join_on_one_machine(const Launch& launch, double limit) {
  if (launch.local_size != launch.size)
    throw InputError("ranks: ", launch.size, " given, ", launch.local_size,
        " of them on this machine; all on one required, whose memory they share; over machines: MPI (a build with "
        "-DWHENCE_MPI=ON, started by mpirun or srun), or GPUs and NCCL");
  return join_shared_memory(launch, limit);
}

std::unique_ptr<Communicator> join_on_cpus(const Launch& launch, double limit) {
  return started_by_mpi(launch) ? join_mpi(launch, limit) : join_on_one_machine(launch, limit);
}

}  // namespace

std::unique_ptr<Communicator> join(const Launch& launch, const CommunicatorOptions& options) {
  if (!std::has_single_bit(static_cast<unsigned>(launch.size)))
    throw InputError("ranks: ", launch.size,
        " given; 1, 2, 4, 8 or another power of two required: sums over ranks are halves of halves, so that their bits "
        "are those of one rank");
  if (options.body == "shared") return join_on_one_machine(launch, options.limit);
  if (options.body == "mpi") return join_mpi(launch, options.limit);
  const bool over_cpus = started_by_mpi(launch) || launch.local_size == launch.size;
  if (options.body == "auto" && (options.device.is_cpu() || (over_cpus && (!launch.own_gpu || !nccl_can_be_loaded()))))
    return join_on_cpus(launch, options.limit);
  return join_nccl(launch, options, over_cpus ? join_on_cpus(launch, options.limit) : nullptr);
}

}  // namespace whence
