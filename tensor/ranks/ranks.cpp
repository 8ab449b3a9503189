#include "tensor/ranks/ranks.h"

#include <bit>
#include <cstring>

#include "tensor/raw.h"

namespace whence {
namespace {

struct Interval {
  index_t begin, end;
  index_t size() const { return end - begin; }
};

Tensor part(const Tensor& x, Interval at) { return raw::slice(x, 0, at.begin, at.end); }

std::size_t bytes_in(const Tensor& x) { return static_cast<std::size_t>(x.numel()) * size_of(x.dtype()); }

}  // namespace

void Communicator::exchange(int peer, std::span<const std::byte> mine, std::span<std::byte> theirs) {
  if (peer < 0 || peer >= size_ || !std::has_single_bit(static_cast<unsigned>(peer ^ rank_)))
    fail("exchange", "rank ", peer, " given to rank ", rank_, " of ", size_,
        "; a rank whose number differs in one bit required");
  if (mine.size() != theirs.size())
    fail("exchange", mine.size(), " bytes to send and ", theirs.size(), " to receive given; equally many required");
  exchange_bytes(peer, mine, theirs);
}

void Communicator::exchange(int peer, const Tensor& mine, const Tensor& theirs) {
  if (!mine.is_contiguous() || !theirs.is_contiguous() || mine.dtype() != theirs.dtype() ||
      mine.numel() != theirs.numel() || !mine.device().is_cpu() || !theirs.device().is_cpu())
    fail("exchange", mine.shape(), " and ", theirs.shape(),
        " given; two contiguous tensors alike, on the CPU, required");
  exchange(peer, {mine.bytes(), bytes_in(mine)}, {theirs.bytes(), bytes_in(theirs)});
}

// Recursive halving, then doubling (Rabenseifner 2004). The nearest rank comes first, so that each sum is the balanced
// tree over ranks; a + b has the same bits as b + a.
void sum_over_ranks(Communicator& ranks, const Tensor& given) {
  if (ranks.size() == 1) return;
  if (given.shape().rank() != 1 || !given.is_contiguous() ||
      (given.dtype() != DType::f32 && given.dtype() != DType::f64))
    fail(
        "sum_over_ranks", given.shape(), " of ", given.dtype(), " given; one axis of f32 or f64, contiguous, required");
  const Tensor total = raw::to_device(given, Device::cpu());
  // The largest multiple of size() is halved; all ranks sum the few remaining numbers.
  const index_t rest = total.numel() % ranks.size(), even = total.numel() - rest;
  const Tensor theirs = Tensor::like(total, {std::max(even / 2, rest)});
  if (rest > 0) {
    const Tensor behind = part(total, {even, even + rest}), received = part(theirs, {0, rest});
    for (int distance = 1; distance < ranks.size(); distance *= 2) {
      ranks.exchange(ranks.rank() ^ distance, behind, received);
      raw::add_into(received, behind);
    }
  }
  if (even > 0) {
    Interval own{0, even};
    std::vector<std::pair<Interval, Interval>> halves;  // kept, given away
    for (int distance = 1; distance < ranks.size(); distance *= 2) {
      const index_t middle = own.begin + own.size() / 2;
      Interval keep{own.begin, middle}, give{middle, own.end};
      if ((ranks.rank() & distance) != 0) std::swap(keep, give);
      const Tensor received = part(theirs, {0, keep.size()});
      ranks.exchange(ranks.rank() ^ distance, part(total, give), received);
      raw::add_into(received, part(total, keep));
      halves.emplace_back(keep, give), own = keep;
    }
    for (int distance = ranks.size() / 2; distance > 0; distance /= 2) {
      const auto [kept, gave] = halves.back();
      halves.pop_back();
      ranks.exchange(ranks.rank() ^ distance, part(total, kept), part(total, gave));
    }
  }
  if (!given.device().is_cpu()) raw::copy_into(raw::to_device(total, given.device()), given);
}

std::vector<std::byte> gather_over_ranks(Communicator& ranks, std::span<const std::byte> mine) {
  const std::size_t each = mine.size();
  std::vector<std::byte> all(each * static_cast<std::size_t>(ranks.size()));
  const auto of = [&](int first, int count) {
    return std::span(all).subspan(each * static_cast<std::size_t>(first), each * static_cast<std::size_t>(count));
  };
  if (each > 0) std::memcpy(of(ranks.rank(), 1).data(), mine.data(), each);
  for (int distance = 1; distance < ranks.size(); distance *= 2) {
    const int own = ranks.rank() & ~(distance - 1);
    ranks.exchange(ranks.rank() ^ distance, of(own, distance), of(own ^ distance, distance));
  }
  return all;
}

std::vector<double> gather_over_ranks(Communicator& ranks, const std::vector<double>& mine) {
  const std::vector<std::byte> bytes = gather_over_ranks(ranks, std::as_bytes(std::span(mine)));
  std::vector<double> all(bytes.size() / sizeof(double));
  if (!all.empty()) std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

std::vector<std::string> gather_over_ranks(Communicator& ranks, const std::string& mine) {
  const std::vector<double> sizes = gather_over_ranks(ranks, std::vector{static_cast<double>(mine.size())});
  std::size_t longest = 0;
  for (const double size : sizes) longest = std::max(longest, static_cast<std::size_t>(size));
  std::string padded = mine;
  padded.resize(longest);
  const std::vector<std::byte> bytes = gather_over_ranks(ranks, std::as_bytes(std::span(padded)));
  std::vector<std::string> all;
  for (std::size_t k = 0; k < sizes.size(); ++k)
    all.emplace_back(reinterpret_cast<const char*>(bytes.data()) + k * longest, static_cast<std::size_t>(sizes[k]));
  return all;
}

bool any_of_ranks(Communicator& ranks, bool mine) {
  bool any = false;
  for (const double said : gather_over_ranks(ranks, std::vector{mine ? 1.0 : 0.0})) any = any || said != 0;
  return any;
}

// A binomial tree would send less. But exchange() sends both ways, so every rank sends what it has so far.
void broadcast(Communicator& ranks, std::span<std::byte> bytes) {
  std::vector<std::byte> theirs(bytes.size());
  for (int distance = 1; distance < ranks.size(); distance *= 2) {
    ranks.exchange(ranks.rank() ^ distance, bytes, theirs);
    if ((ranks.rank() & distance) != 0 && !bytes.empty()) std::memcpy(bytes.data(), theirs.data(), bytes.size());
  }
}

void broadcast(Communicator& ranks, const Tensor& tensor) {
  const Tensor here = tensor.device().is_cpu() ? tensor : raw::to_device(tensor, Device::cpu());
  broadcast(ranks, {here.bytes(), bytes_in(here)});
  if (!tensor.device().is_cpu()) raw::copy_into(raw::to_device(here, tensor.device()), tensor);
}

std::string broadcast(Communicator& ranks, const std::string& text) {
  return ranks.size() == 1 ? text : gather_over_ranks(ranks, ranks.rank() == 0 ? text : std::string())[0];
}

}  // namespace whence
