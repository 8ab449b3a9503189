// Size classes, free lists and huge pages.
#include "tensor/allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "tensor/error.h"

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

constexpr std::size_t huge_page = std::size_t{2} << 20;
constexpr int class_count = 256;

// 1 KiB and below: one class per 64 bytes. Above: four per doubling.
int class_of(std::size_t block) {
  if (block <= 1024) return static_cast<int>(block / 64);
  const int log2 = static_cast<int>(std::bit_width(block)) - 1;
  return 16 + (log2 - 10) * 4 + static_cast<int>((block >> (log2 - 2)) & 3);
}

void* map_block(std::size_t block) {
  if (block < huge_page) return std::aligned_alloc(64, block);
  void* mapped = mmap(nullptr, block, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  madvise(mapped, block, MADV_HUGEPAGE);
  return mapped;
}

void unmap_block(void* memory, std::size_t block) {
  if (block < huge_page) {
    std::free(memory);
  } else {
    munmap(memory, block);
  }
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

}  // namespace

struct Allocator::State {
  mutable std::mutex mutex;
  std::array<std::vector<void*>, class_count> cached;
  MemoryStatistics statistics;

  void release_all() {
    for (int c = 0; c < class_count; ++c) {
      for (void* memory : cached[static_cast<std::size_t>(c)]) {
        const std::size_t block = size_of_class(c);
        unpoison(memory, block);
        unmap_block(memory, block);
        statistics.reserved -= block;
      }
      cached[static_cast<std::size_t>(c)].clear();
    }
  }

  static std::size_t size_of_class(int c) {
    if (c <= 16) return static_cast<std::size_t>(c) * 64;
    const int log2 = (c - 16) / 4 + 10, quarter = (c - 16) % 4;
    return (std::size_t{4} + static_cast<std::size_t>(quarter)) << (log2 - 2);
  }
};

Allocator::Allocator() : state_(new State) {}

Allocator& Allocator::cpu() {
  static Allocator* const allocator = new Allocator;
  return *allocator;
}

std::size_t Allocator::block_size(std::size_t bytes) {
  if (bytes <= 1024) return std::max<std::size_t>((bytes + 63) / 64, 1) * 64;
  const std::size_t step = std::bit_floor(bytes - 1) / 4;
  const std::size_t block = (bytes + step - 1) / step * step;
  return block;
}

void* Allocator::allocate(std::size_t bytes) {
  if (bytes > (std::size_t{1} << 60)) fail("allocate", concat(bytes, " bytes asked; no machine has them; check the shape"));
  const std::size_t block = block_size(bytes);
  State& state = *state_;
  const std::scoped_lock lock(state.mutex);
  auto& cached = state.cached[static_cast<std::size_t>(class_of(block))];
  void* memory = nullptr;
  if (!cached.empty()) {
    memory = cached.back();
    cached.pop_back();
  } else {
    memory = map_block(block);
    if (!memory) {
      state.release_all();
      memory = map_block(block);
    }
    if (!memory) {
      fail("allocate", concat("out of memory: ", bytes, " bytes asked with ", state.statistics.live, " live (peak ", state.statistics.peak,
                              "); use a smaller batch or length, or checkpoint()"));
    }
    state.statistics.reserved += block;
  }
  state.statistics.live += block;
  state.statistics.peak = std::max(state.statistics.peak, state.statistics.live);
  unpoison(memory, block);
  poison(static_cast<char*>(memory) + (bytes + 7) / 8 * 8, block - (bytes + 7) / 8 * 8);
  return memory;
}

void Allocator::deallocate(void* block, std::size_t bytes) noexcept {
  const std::size_t size = block_size(bytes);
  State& state = *state_;
  const std::scoped_lock lock(state.mutex);
  state.statistics.live -= size;
  poison(block, size);
  state.cached[static_cast<std::size_t>(class_of(size))].push_back(block);
}

MemoryStatistics Allocator::statistics() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->statistics;
}

void Allocator::reset_peak() {
  const std::scoped_lock lock(state_->mutex);
  state_->statistics.peak = state_->statistics.live;
}

void Allocator::release_cached() {
  const std::scoped_lock lock(state_->mutex);
  state_->release_all();
}

}  // namespace whence
