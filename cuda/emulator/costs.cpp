#include "cuda/emulator/costs.h"

#include <algorithm>
#include <array>
#include <span>

#include "tensor/error.h"

namespace whence::gpu::emulator {
namespace {

constexpr std::size_t widest = 16;         // bytes that a thread can access at once
constexpr std::size_t most_noted = 16384;  // for a thread between two meetings of its warp
constexpr std::uintptr_t sector = 32, word = 4, banks = 32;

}  // namespace

Costs& Costs::instance() {
  static Costs& costs = *new Costs;
  return costs;
}

void Costs::begin_block(int threads) {
  if (of_thread_.size() < static_cast<std::size_t>(threads)) of_thread_.resize(static_cast<std::size_t>(threads));
  for (Accesses& accesses : of_thread_) accesses.clear();
}

void Costs::note(Space space, const void* first, std::size_t bytes, const Site& at, bool writes) {
  Accesses& own = of_thread_[static_cast<std::size_t>(running.thread)];
  if (own.size() >= most_noted) return static_cast<void>(++running.now.not_noted);
  const auto address = reinterpret_cast<std::uintptr_t>(first);
  for (std::size_t k = 0; k < bytes; k += widest) {
    own.push_back({address + k, short_site(at), space, static_cast<std::uint8_t>(std::min(widest, bytes - k)),
        static_cast<std::uint8_t>(running.thread % warp_size), writes});
  }
}

void Costs::settle(int first) {
  const std::span<Accesses> warp(&of_thread_[static_cast<std::size_t>(first)], warp_size);
  struct Visit {
    std::uint64_t place, number;
    Access access;
  };
  std::vector<Visit> visits;
  for (const Accesses& of_lane : warp) {
    std::map<std::uint64_t, std::uint64_t> numbers;  // of visits to each place
    for (const Access& access : of_lane) {
      const std::uint64_t place = std::uint64_t{static_cast<std::uint32_t>(access.site)} << 1 |
                                  static_cast<std::uint64_t>(access.space == Space::shared);
      visits.push_back({place, numbers[place]++, access});
    }
  }
  const auto before = [](const Visit& a, const Visit& b) {
    return a.place != b.place ? a.place < b.place : a.number < b.number;
  };
  std::stable_sort(visits.begin(), visits.end(), before);  // lanes stay in order
  for (std::size_t k = 0; k < visits.size();) {
    together_.clear();
    const Visit& of_first = visits[k];
    for (; k < visits.size() && !before(of_first, visits[k]); ++k) together_.push_back(visits[k].access);
    together_.front().space == Space::global ? global_request() : shared_request();
  }
  for (Accesses& of_lane : warp) of_lane.clear();
}

// Counts the sectors that hold the bytes, and the smallest number that could hold as many different bytes.
void Costs::global_request() {
  const std::int32_t site = together_.front().site;
  const bool writes = together_.front().writes;
  const auto before = [](const Access& a, const Access& b) { return a.address < b.address; };
  if (!std::is_sorted(together_.begin(), together_.end(), before))
    std::sort(together_.begin(), together_.end(), before);
  std::uintptr_t bytes = 0, sectors = 0, end = 0, next_sector = 0;
  for (const Access& access : together_) {
    const std::uintptr_t first = std::max(access.address, end), stop = access.address + access.bytes;
    if (first >= stop) continue;
    bytes += stop - first, end = stop;
    const std::uintptr_t from = std::max(first / sector, next_sector), past = (stop - 1) / sector + 1;
    if (past > from) sectors += past - from, next_sector = past;
  }
  const std::uintptr_t least = (bytes + sector - 1) / sector;
  Counters& now = running.now;
  ++now.global_requests, now.sectors += sectors, now.least_sectors += least;
  if (writes) now.sectors_written += sectors;
  if (sectors > least) places_[site].sectors += sectors - least;
}

// Lanes that can access 128 bytes together are served together: all, half or a quarter of the warp. A bank serves their
// words one after the other.
void Costs::shared_request() {
  Counters& now = running.now;
  ++now.shared_requests;
  const std::uintptr_t wide = std::max<std::uintptr_t>(together_.front().bytes, word), lanes = banks * word / wide;
  for (std::size_t k = 0; k < together_.size();) {
    const std::uintptr_t part = together_[k].lane / lanes;
    std::array<std::uintptr_t, banks> words{};
    std::size_t count = 0;
    for (; k < together_.size() && together_[k].lane / lanes == part; ++k) {
      const std::uintptr_t address = together_[k].address;
      for (std::uintptr_t at = address / word; at <= (address + together_[k].bytes - 1) / word; ++at) {
        if (count == banks) fail("costs", "one line accesses shared memory in several widths; one required");
        words[count++] = at;
      }
    }
    std::sort(words.begin(), words.begin() + count);
    std::array<std::uint32_t, banks> of_bank{};
    for (auto at = words.begin(), end = std::unique(words.begin(), words.begin() + count); at != end; ++at)
      ++of_bank[*at % banks];
    const std::uint64_t ways = *std::max_element(of_bank.begin(), of_bank.end());
    now.wavefronts += ways, ++now.least_wavefronts;
    now.most_ways = std::max(now.most_ways, ways);
    if (ways > 1) places_[together_.front().site].wavefronts += ways - 1;
  }
}

void Costs::end_launch() {
  for (const auto& [site, place] : places_) {
    running.now.worst_sectors = std::max(running.now.worst_sectors, {place.sectors, site});
    running.now.worst_wavefronts = std::max(running.now.worst_wavefronts, {place.wavefronts, site});
  }
  places_.clear();
}

}  // namespace whence::gpu::emulator
