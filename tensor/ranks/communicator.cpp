#include "tensor/ranks/communicator.h"

#include <bit>

namespace whence {

void Communicator::require_peer(int peer) const {
  const int distance = peer ^ rank_;
  if (peer < 0 || peer >= size_ || !std::has_single_bit(static_cast<unsigned>(distance)))
    fail("exchange", "rank ", peer, " given to rank ", rank_, " of ", size_,
        "; a rank whose number differs in one bit required");
}

void Communicator::exchange(int peer, std::span<const std::byte> mine, std::span<std::byte> theirs) {
  require_peer(peer);
  if (mine.size() != theirs.size())
    fail("exchange", mine.size(), " bytes to send and ", theirs.size(), " to receive given; equally many required");
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
  fail("exchange", "numbers on ", to_string(mine.device()), " given; ", name(), " carries numbers of the CPU alone");
}

}  // namespace whence
