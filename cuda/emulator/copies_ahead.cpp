#include "cuda/emulator/copies_ahead.h"

#include <algorithm>
#include <cstring>

#include "cuda/emulator/settings.h"

namespace whence::gpu::emulator {

CopiesAhead& CopiesAhead::instance() {
  static CopiesAhead& copies = *new CopiesAhead;
  return copies;
}

void CopiesAhead::begin_block(int threads) {
  if (of_thread_.size() < static_cast<std::size_t>(threads)) of_thread_.resize(static_cast<std::size_t>(threads));
  for (OfThread& each : of_thread_) {
    for (const Copy& copy : each.copies) mark(copy, 0);  // left by a block that was stopped
    each.copies.clear(), each.group = 0;
  }
}

void CopiesAhead::mark(const Copy& copy, std::uint32_t stamp) {
  for (int k = 0; k < copy.bytes; k += copy.size) {
    ShadowEntry& entry = shared_shadow(copy.to + k);
    entry.write = stamp, entry.write_site = short_site(copy.at);
  }
}

void CopiesAhead::start(std::byte* to, const std::byte* from, int bytes, int size, const Site& at) {
  Copy copy{to, from, bytes, size, own().group, at, {}};
  if (from && settings().late == 0) std::memcpy(copy.read, from, static_cast<std::size_t>(bytes));
  std::memset(to, 0xFF, static_cast<std::size_t>(bytes));
  mark(copy, in_flight);
  running.now.copied_ahead += static_cast<std::uint64_t>(bytes);
  own().copies.push_back(copy);
}

void CopiesAhead::commit() { ++own().group; }

void CopiesAhead::wait(int left) {
  OfThread& mine = own();
  const auto arrives = [&](const Copy& copy) { return copy.group + left < mine.group; };
  const auto end = std::find_if_not(mine.copies.begin(), mine.copies.end(), arrives);
  for (auto copy = mine.copies.begin(); copy != end; ++copy) land(*copy);
  mine.copies.erase(mine.copies.begin(), end);
}

void CopiesAhead::land(Copy& copy) {
  if (copy.from && settings().late != 0) {
    for (int k = 0; k < copy.bytes; k += copy.size) {
      const std::byte* const number = copy.from + k;
      if (copy.size == 2) note_read<2>(Space::global, number, copy.at);
      if (copy.size == 4) note_read<4>(Space::global, number, copy.at);
      if (copy.size == 8) note_read<8>(Space::global, number, copy.at);
    }
    std::memcpy(copy.read, copy.from, static_cast<std::size_t>(copy.bytes));
  }
  std::memcpy(copy.to, copy.read, static_cast<std::size_t>(copy.bytes));
  mark(copy, running.stamp);
}

void CopiesAhead::require_none() const {
  const OfThread& mine = of_thread_[static_cast<std::size_t>(running.thread)];
  if (mine.copies.empty()) return;
  stop(mine.copies.front().at, to_text("ends while ", mine.copies.size(),
                                   " of its copies are in flight, the first of them from here; "
                                   "cp_async_wait<0> is required before"));
}

}  // namespace whence::gpu::emulator
