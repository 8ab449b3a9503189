#include "tensor/device/allocator.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <mutex>
#include <unordered_map>

#if defined(__SANITIZE_ADDRESS__)
#define WHENCE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WHENCE_ASAN 1
#endif
#endif
#ifdef WHENCE_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace whence {
namespace {

constexpr std::size_t remembered = std::size_t{64} << 10;  // smaller blocks are not listed among the largest

// class_of returns the class of the smallest block that fits. Up to 1 KiB: one class per 64 bytes. Above: four per
// doubling, and sixteen from 64 MiB on: a quarter of such a block would waste more than reuse saves.
constexpr std::size_t log2_of_wide = 26, first_wide = 16 + (log2_of_wide - 10) * 4;
std::size_t class_of(std::size_t bytes) {
  if (bytes <= 1024) return std::max<std::size_t>((bytes + 63) / 64, 1);
  const std::size_t last = bytes - 1, log2 = static_cast<std::size_t>(std::bit_width(last)) - 1;
  if (log2 >= log2_of_wide) return first_wide + (log2 - log2_of_wide) * 16 + ((last >> (log2 - 4)) & 15) + 1;
  return 16 + (log2 - 10) * 4 + ((last >> (log2 - 2)) & 3) + 1;
}

std::size_t size_of_class(std::size_t c) {
  if (c <= 16) return c * 64;
  if (c >= first_wide) return (16 + (c - first_wide) % 16) << ((c - first_wide) / 16 + log2_of_wide - 4);
  return (4 + (c - 16) % 4) << ((c - 16) / 4 + 8);
}

// poison marks cached blocks and the slack after a request for AddressSanitizer, so that reuse hides no error.
void poison([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) {
#ifdef WHENCE_ASAN
  ASAN_POISON_MEMORY_REGION(memory, bytes);
#endif
}
void unpoison([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) {
#ifdef WHENCE_ASAN
  ASAN_UNPOISON_MEMORY_REGION(memory, bytes);
#endif
}

// "1.5 GiB by softmax (attention.cpp:33)"
std::string to_string(const LiveBlock& block) {
  const std::string size = bytes_text(block.bytes), site = whence::to_string(block.site);
  const std::string by = block.op ? to_text(size, " by ", block.op) : size;
  if (block.site.line() == 0) return by;
  return block.op ? to_text(by, " (", site, ')') : to_text(by, " at ", site);
}

void make_room(std::vector<void*>& list, std::size_t blocks) {
  if (list.capacity() < blocks) list.reserve(std::max(blocks, 2 * list.capacity()));
}

void* pop(std::vector<void*>& blocks) {
  if (blocks.empty()) return nullptr;
  void* memory = blocks.back();
  blocks.pop_back();
  return memory;
}

}  // namespace

void BlockSource::copy_to_cpu(const void* from, void* to, std::size_t bytes) { std::memcpy(to, from, bytes); }
void BlockSource::copy_from_cpu(const void* from, void* to, std::size_t bytes) { std::memcpy(to, from, bytes); }

Allocator::Allocator(BlockSource& its_source) : source_(its_source) {}
Allocator::~Allocator() { release_cached(); }
std::size_t Allocator::block_size(std::size_t bytes) { return size_of_class(class_of(bytes)); }

void Allocator::give_back(std::size_t size_class) {
  const std::size_t block = size_of_class(size_class);
  void* memory = pop(cached_[size_class]);
  if (source_.host_may_read()) unpoison(memory, block);
  source_.give_back(memory, block);
  statistics_.reserved -= block;
  --taken_[size_class];
}

// Gives cached blocks back, the largest first and no more than needed, then takes a block of this size. Returns null if
// giving back all of them is not enough.
void* Allocator::take_in_exchange(std::size_t block) {
  for (std::size_t c = class_count; c-- > 0;) {
    while (!cached_[c].empty()) {
      give_back(c);
      if (void* memory = source_.take(block)) return memory;
    }
  }
  return nullptr;
}

// Returns an unused block of this size, cached or fresh, or null.
void* Allocator::find(std::size_t block) {
  const std::size_t c = class_of(block);
  if (void* memory = pop(open_ == no_pool ? cached_[c] : pools_.at(open_).own[c])) return memory;
  make_room(cached_[c], taken_[c] + 1);
  if (open_ != no_pool) make_room(pools_.at(open_).own[c], taken_[c] + 1);
  void* memory = source_.take(block);
  // Giving blocks back waits for the device, which is not allowed while a graph is recorded.
  if (!memory && open_ == no_pool) memory = take_in_exchange(block);
  if (!memory) return nullptr;
  if (open_ != no_pool) {
    try {
      owners_[memory] = open_;
    } catch (...) {
      source_.give_back(memory, block);
      throw;
    }
  }
  statistics_.reserved += block;
  ++taken_[c];
  return memory;
}

// Keeps a freed block for reuse: in its own pool, in the open pool's `held` list, or in the common cache.
void Allocator::keep(void* memory, std::size_t block) noexcept {
  if (source_.host_may_read()) poison(memory, block);
  Cache& outside = open_ != no_pool ? pools_.at(open_).held : cached_;
  const auto owner = owners_.find(memory);
  (owner != owners_.end() ? pools_.at(owner->second).own : outside)[class_of(block)].push_back(memory);
}

std::vector<LiveBlock> Allocator::largest_now(std::size_t count) const {
  std::vector<LiveBlock> blocks;
  for (const auto& entry : large_) blocks.push_back(entry.second);
  std::ranges::sort(blocks, [](const LiveBlock& a, const LiveBlock& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.site.line() < b.site.line();
  });
  blocks.resize(std::min(blocks.size(), count));
  return blocks;
}

void Allocator::refuse(std::size_t bytes) const {
  const BlockSource::Room room = source_.room();
  const std::size_t block = block_size(bytes);
  std::string text = to_text("out of ", source_.name(), ": ", bytes_text(bytes), " asked");
  if (room.capacity > 0) text += to_text(" with ", bytes_text(room.free), " free of ", bytes_text(room.capacity));
  text += to_text("; tensors hold ", bytes_text(statistics_.live), " (peak ", bytes_text(statistics_.peak), ')');
  const auto holders = largest_now(5);
  for (std::size_t k = 0; k < holders.size(); ++k)
    text += to_text(k == 0 ? ", the largest: " : ", ", to_string(holders[k]));
  if (room.capacity > 0 && block > room.free)
    text += to_text("; ", bytes_text(block - room.free), " less in use required");
  else
    text += to_text("; ", bytes_text(block), " in one piece required");
  const OutOfMemory::Numbers numbers{bytes, room.free, statistics_.live, room.capacity};
  throw OutOfMemory(error_at_call_site("allocate", text + "; use a smaller batch or length, or recompute()"), numbers);
}

void* Allocator::allocate(std::size_t bytes) {
  if (bytes > std::numeric_limits<std::size_t>::max() / 16)
    fail("allocate", bytes, " bytes asked; no machine has them; check the shape");
  const std::size_t block = block_size(bytes);
  std::unique_lock lock(mutex_);
  void* memory = find(block);
  if (!memory) refuse(bytes);
  if (bytes >= remembered) {
    try {
      large_[memory] = {bytes, CallSite::op(), CallSite::current() ? *CallSite::current() : Site()};
    } catch (...) {
      keep(memory, block);
      throw;
    }
  }
  statistics_.live += block;
  statistics_.peak = std::max(statistics_.peak, statistics_.live);
  if (source_.host_may_read()) {
    unpoison(memory, block);
    poison(static_cast<char*>(memory) + (bytes + 7) / 8 * 8, block - (bytes + 7) / 8 * 8);
  }
  lock.unlock();
  source_.hand_out(memory, bytes);
  return memory;
}

void Allocator::deallocate(void* block, std::size_t bytes) noexcept {
  const std::size_t size = block_size(bytes);
  source_.retire(block);
  const std::scoped_lock lock(mutex_);
  statistics_.live -= size;
  if (bytes >= remembered) large_.erase(block);
  keep(block, size);
}

Allocator::Pool Allocator::open_pool() {
  const std::scoped_lock lock(mutex_);
  if (open_ != no_pool) fail("open_pool", "a pool is open already; one at a time required; close it first");
  PoolBlocks blocks;
  for (std::size_t c = 0; c < class_count; ++c) make_room(blocks.held[c], taken_[c]);
  pools_.emplace(newest_ + 1, std::move(blocks));
  return open_ = ++newest_;
}

void Allocator::close_pool() noexcept {
  const std::scoped_lock lock(mutex_);
  open_ = no_pool;
}

void Allocator::release_pool(Pool pool) noexcept {
  const std::scoped_lock lock(mutex_);
  if (open_ == pool) open_ = no_pool;
  std::erase_if(owners_, [pool](const auto& entry) { return entry.second == pool; });
  const auto blocks = pools_.find(pool);
  if (blocks == pools_.end()) return;
  for (const Cache* freed : {&blocks->second.own, &blocks->second.held})
    for (std::size_t c = 0; c < class_count; ++c)
      cached_[c].insert(cached_[c].end(), (*freed)[c].begin(), (*freed)[c].end());
  pools_.erase(blocks);
}

MemoryStatistics Allocator::statistics() const {
  const std::scoped_lock lock(mutex_);
  return statistics_;
}

void Allocator::reset_peak() {
  const std::scoped_lock lock(mutex_);
  statistics_.peak = statistics_.live;
}

void Allocator::release_cached() {
  const std::scoped_lock lock(mutex_);
  for (std::size_t c = 0; open_ == no_pool && c < class_count; ++c)
    while (!cached_[c].empty()) give_back(c);
}

std::vector<LiveBlock> Allocator::largest(std::size_t count) const {
  const std::scoped_lock lock(mutex_);
  return largest_now(count);
}

// A whole build's backends, which tensor/cpu/backend.cpp, tensor/device/planned.cpp and cuda/runtime/backend.cpp register,
// have no other memory.
Allocator& memory_of(Device device) { return static_cast<Allocator&>(*backend_of(device).memory); }

}  // namespace whence
