#include "cuda/emulator/copies_ahead.h"

#include <algorithm>
#include <cstring>

namespace whence::gpu::emulator {
namespace {

void mark_writer(const CopyAhead& copy, std::uint64_t stamp) {
  for (std::size_t k = 0; k < copy.bytes; k += copy.size) {
    ShadowEntry& entry = BlockMemory::instance().shadow(copy.to + k);
    entry.write = stamp, entry.write_site = short_site(copy.at);
  }
}

}  // namespace

void start_copy(std::byte* to, const std::byte* from, std::size_t bytes, std::size_t size, const Site& at) {
  CopiesAhead& own = running.block_run->copies();
  own.in_flight.push_back({to, from, bytes, size, own.group, at});
  mark_writer(own.in_flight.back(), in_flight);
  running.now.copied_ahead += bytes;
}

void wait_for_copies(int left) {
  CopiesAhead& own = running.block_run->copies();
  const auto arrives = [&](const CopyAhead& copy) { return copy.group + left < own.group; };
  const auto end = std::ranges::find_if_not(own.in_flight, arrives);
  for (auto copy = own.in_flight.begin(); copy != end; ++copy) {
    if (copy->from && std::memcmp(copy->to, copy->from, copy->bytes) != 0)
      stop(copy->at, "the source of this copy has changed before its cp_async_wait; numbers that stay are required");
    mark_writer(*copy, running.stamp);
  }
  own.in_flight.erase(own.in_flight.begin(), end);
}

void require_no_copies() {
  const auto& copies = running.block_run->copies().in_flight;
  if (copies.empty()) return;
  stop(copies.front().at,
      to_text("ends while ", copies.size(), " of its copies are in flight, the first of them from here; ",
          "cp_async_wait<0> is required before"));
}

}  // namespace whence::gpu::emulator
