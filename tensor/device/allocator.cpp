#include "tensor/device/allocator.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
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

constexpr std::size_t class_count = 640;
constexpr std::size_t remembered = std::size_t{64}
                                   << 10;  // smaller blocks are not worth a line in a list of the largest
constexpr Allocator::Pool no_pool = 0;

// 1 KiB and below: one class per 64 bytes. Above: four per doubling; from 64 MiB on sixteen, since a quarter of such a
// block is more than what it saves to use it for other sizes.
constexpr std::size_t log2_of_wide = 26, first_wide = 16 + (log2_of_wide - 10) * 4;
std::size_t class_of(std::size_t block) {
  if (block <= 1024) return block / 64;
  const auto log2 = static_cast<std::size_t>(std::bit_width(block)) - 1;
  if (log2 >= log2_of_wide) return first_wide + (log2 - log2_of_wide) * 16 + ((block >> (log2 - 4)) & 15);
  return 16 + (log2 - 10) * 4 + ((block >> (log2 - 2)) & 3);
}

std::size_t size_of_class(std::size_t c) {
  if (c <= 16) return c * 64;
  if (c >= first_wide) return (16 + (c - first_wide) % 16) << ((c - first_wide) / 16 + log2_of_wide - 4);
  const std::size_t log2 = (c - 16) / 4 + 10, quarter = (c - 16) % 4;
  return (4 + quarter) << (log2 - 2);
}

// Under AddressSanitizer cached blocks and the slack behind a request are poisoned, so that reuse hides no error.
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
  std::string text = bytes_text(block.bytes);
  if (block.op) text += to_text(" by ", block.op);
  if (block.site.line() != 0)
    text +=
        block.op ? to_text(" (", whence::to_string(block.site), ')') : to_text(" at ", whence::to_string(block.site));
  return text;
}

// Free blocks by size class. A list has room for every block that may come back to it before that block is handed out,
// so that giving back cannot fail.
using Cache = std::array<std::vector<void*>, class_count>;

void make_room(std::vector<void*>& list, std::size_t blocks) {
  if (list.capacity() < blocks) list.reserve(std::max(blocks, 2 * list.capacity()));
}

struct PoolBlocks {
  Cache own;   // what the pool took from the device and no one uses now
  Cache held;  // blocks from outside that were freed while it was open
};

}  // namespace

struct Allocator::State {
  explicit State(BlockSource& its_source) : source(its_source), checked(its_source.host_may_read()) {}

  BlockSource& source;
  const bool checked;
  mutable std::mutex mutex;
  Cache cached;
  std::array<std::size_t, class_count> taken{};  // from the device, in use or not
  MemoryStatistics statistics;
  std::unordered_map<void*, LiveBlock> large;  // in use

  std::unordered_map<void*, Pool> owners;  // of blocks that a pool took from the device, in use or not
  std::unordered_map<Pool, PoolBlocks> pools;
  Pool open = no_pool, newest = no_pool;

  void give_back(std::size_t c) {  // one cached block
    const std::size_t block = size_of_class(c);
    void* memory = pop(cached[c]);
    if (checked) unpoison(memory, block);
    source.give_back(memory, block);
    statistics.reserved -= block;
    --taken[c];
  }

  void release_all() {
    for (std::size_t c = 0; c < class_count; ++c)
      while (!cached[c].empty()) give_back(c);
  }

  // A block of this size after cached ones went back, the largest first, and no more of them than it takes. Null where
  // all of them are not enough.
  void* take_in_exchange(std::size_t block) {
    for (std::size_t c = class_count; c-- > 0;) {
      while (!cached[c].empty()) {
        give_back(c);
        if (void* memory = source.take(block)) return memory;
      }
    }
    return nullptr;
  }

  static void* pop(std::vector<void*>& blocks) {
    if (blocks.empty()) return nullptr;
    void* memory = blocks.back();
    blocks.pop_back();
    return memory;
  }

  // A block of this size that no one uses: cached, or fresh. Null when there is none.
  void* find(std::size_t block) {
    const std::size_t c = class_of(block);
    if (void* memory = pop(open == no_pool ? cached[c] : pools.at(open).own[c])) return memory;
    make_room(cached[c], taken[c] + 1);
    if (open != no_pool) make_room(pools.at(open).own[c], taken[c] + 1);
    void* memory = source.take(block);
    // While a graph is being recorded the device must not be waited for, which giving blocks back does.
    if (!memory && open == no_pool) memory = take_in_exchange(block);
    if (!memory) return nullptr;
    if (open != no_pool) {
      try {
        owners[memory] = open;
      } catch (...) {
        source.give_back(memory, block);
        throw;
      }
    }
    statistics.reserved += block;
    ++taken[c];
    return memory;
  }

  // Notes who asked for it.
  void remember(void* memory, std::size_t bytes) {
    const Site* site = CallSite::current();
    try {
      large[memory] = {bytes, CallSite::op(), site ? *site : Site()};
    } catch (...) {
      keep(memory, block_size(bytes));
      throw;
    }
  }

  // For its next use.
  void keep(void* memory, std::size_t block) noexcept {
    if (checked) poison(memory, block);
    home_of(memory)[class_of(block)].push_back(memory);
  }

  // Where a freed block waits for its next use.
  Cache& home_of(void* memory) {
    if (const auto owner = owners.find(memory); owner != owners.end()) return pools.at(owner->second).own;
    return open != no_pool ? pools.at(open).held : cached;
  }

  void make_common(Cache& cache) {
    for (std::size_t c = 0; c < class_count; ++c) cached[c].insert(cached[c].end(), cache[c].begin(), cache[c].end());
  }

  std::vector<LiveBlock> largest(std::size_t count) const {
    std::vector<LiveBlock> blocks;
    for (const auto& entry : large) blocks.push_back(entry.second);
    const auto first = [](const LiveBlock& a, const LiveBlock& b) {
      return a.bytes != b.bytes ? a.bytes > b.bytes : a.site.line() < b.site.line();
    };
    std::sort(blocks.begin(), blocks.end(), first);
    blocks.resize(std::min(blocks.size(), count));
    return blocks;
  }

  [[noreturn]] void refuse(std::size_t bytes) const {
    const BlockSource::Room room = source.room();
    const std::size_t block = block_size(bytes);
    std::string text = to_text("out of ", source.name(), ": ", bytes_text(bytes), " asked");
    if (room.capacity > 0) text += to_text(" with ", bytes_text(room.free), " free of ", bytes_text(room.capacity));
    text += to_text("; tensors hold ", bytes_text(statistics.live), " (peak ", bytes_text(statistics.peak), ')');
    const auto holders = largest(5);
    for (std::size_t k = 0; k < holders.size(); ++k)
      text += to_text(k == 0 ? ", the largest: " : ", ", to_string(holders[k]));
    if (room.capacity > 0 && block > room.free)
      text += to_text("; ", bytes_text(block - room.free), " less in use required");
    else
      text += to_text("; ", bytes_text(block), " in one piece required");
    const OutOfMemory::Numbers numbers{bytes, room.free, statistics.live, room.capacity};
    throw OutOfMemory(
        error_at_call_site("allocate", text + "; use a smaller batch or length, or recompute()"), numbers);
  }
};

void BlockSource::copy_to_cpu(const void* from, void* to, std::size_t bytes) { std::memcpy(to, from, bytes); }
void BlockSource::copy_from_cpu(const void* from, void* to, std::size_t bytes) { std::memcpy(to, from, bytes); }

Allocator::Allocator(BlockSource& source) : state_(new State(source)) {}
BlockSource& Allocator::source() const { return state_->source; }

Allocator::~Allocator() {
  release_cached();
  delete state_;
}

std::size_t Allocator::block_size(std::size_t bytes) {
  if (bytes <= 1024) return std::max<std::size_t>((bytes + 63) / 64, 1) * 64;
  const std::size_t doubling = std::bit_floor(bytes - 1);
  const std::size_t step = doubling >> log2_of_wide ? doubling / 16 : doubling / 4;
  const std::size_t block = (bytes + step - 1) / step * step;
  return block;
}

void* Allocator::allocate(std::size_t bytes) {
  if (bytes > (std::size_t{1} << 60)) fail("allocate", bytes, " bytes asked; no machine has them; check the shape");
  const std::size_t block = block_size(bytes);
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  void* memory = state.find(block);
  if (!memory) state.refuse(bytes);
  if (bytes >= remembered) state.remember(memory, bytes);
  state.statistics.live += block;
  state.statistics.peak = std::max(state.statistics.peak, state.statistics.live);
  if (state.checked) {
    unpoison(memory, block);
    poison(static_cast<char*>(memory) + (bytes + 7) / 8 * 8, block - (bytes + 7) / 8 * 8);
  }
  lock.unlock();
  state.source.hand_out(memory, bytes);
  return memory;
}

void Allocator::deallocate(void* block, std::size_t bytes) noexcept {
  const std::size_t size = block_size(bytes);
  State& state = *state_;
  state.source.retire(block);
  const std::scoped_lock lock(state.mutex);
  state.statistics.live -= size;
  if (bytes >= remembered) state.large.erase(block);
  state.keep(block, size);
}

Allocator::Pool Allocator::open_pool() {
  State& state = *state_;
  const std::scoped_lock lock(state.mutex);
  if (state.open != no_pool) fail("open_pool", "a pool is open already; one at a time required; close it first");
  PoolBlocks blocks;
  for (std::size_t c = 0; c < class_count; ++c) make_room(blocks.held[c], state.taken[c]);
  state.pools.emplace(state.newest + 1, std::move(blocks));
  return state.open = ++state.newest;
}

void Allocator::close_pool() noexcept {
  const std::scoped_lock lock(state_->mutex);
  state_->open = no_pool;
}

void Allocator::release_pool(Pool pool) noexcept {
  State& state = *state_;
  const std::scoped_lock lock(state.mutex);
  if (state.open == pool) state.open = no_pool;
  std::erase_if(state.owners, [&](const auto& entry) { return entry.second == pool; });
  if (const auto blocks = state.pools.find(pool); blocks != state.pools.end()) {
    state.make_common(blocks->second.own);
    state.make_common(blocks->second.held);
    state.pools.erase(blocks);
  }
}

MemoryStatistics Allocator::statistics() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->statistics;
}

BlockSource::Room Allocator::room() const { return state_->source.room(); }

void Allocator::reset_peak() {
  const std::scoped_lock lock(state_->mutex);
  state_->statistics.peak = state_->statistics.live;
}

void Allocator::release_cached() {
  const std::scoped_lock lock(state_->mutex);
  if (state_->open == no_pool) state_->release_all();
}

std::vector<LiveBlock> Allocator::largest(std::size_t count) const {
  const std::scoped_lock lock(state_->mutex);
  return state_->largest(count);
}

}  // namespace whence
