#include "cuda/emulator/copies_ahead.h"

#include <algorithm>
#include <cstring>

namespace whence::gpu::emulator {

CopiesAhead& CopiesAhead::instance() {
  static CopiesAhead& copies = *new CopiesAhead;
  return copies;
}

void CopiesAhead::begin_block(int threads) {
  of_thread_.resize(static_cast<std::size_t>(threads));
  for (OfThread& each : of_thread_) each.copies.clear(), each.group = 0;
}

void CopiesAhead::Copy::mark(std::uint64_t stamp) const {
  for (std::size_t k = 0; k < bytes; k += size) {
    ShadowEntry& entry = BlockMemory::instance().shadow(to + k);
    entry.write = stamp, entry.write_site = short_site(at);
  }
}

void CopiesAhead::start(std::byte* to, const std::byte* from, std::size_t bytes, std::size_t size, const Site& at) {
  own().copies.push_back({to, from, bytes, size, own().group, at});
  own().copies.back().mark(in_flight);
  running.now.copied_ahead += bytes;
}

void CopiesAhead::wait(int left) {
  OfThread& mine = own();
  const auto arrives = [&](const Copy& copy) { return copy.group + left < mine.group; };
  const auto end = std::find_if_not(mine.copies.begin(), mine.copies.end(), arrives);
  for (auto copy = mine.copies.begin(); copy != end; ++copy) {
    if (copy->from && std::memcmp(copy->to, copy->from, copy->bytes) != 0)
      stop(copy->at, "the source of this copy has changed before its cp_async_wait; numbers that stay are required");
    copy->mark(running.stamp);
  }
  mine.copies.erase(mine.copies.begin(), end);
}

void CopiesAhead::require_none() {
  if (own().copies.empty()) return;
  stop(own().copies.front().at, to_text("ends while ", own().copies.size(),
                                    " of its copies are in flight, the first of them from here; "
                                    "cp_async_wait<0> is required before"));
}

}  // namespace whence::gpu::emulator
