// The CPU's memory: small blocks from the heap, large ones mapped with huge pages.
#include <sys/mman.h>

#include <cstdlib>

#include "tensor/device/allocator.h"

namespace whence {
namespace {

constexpr std::size_t huge_page = std::size_t{2} << 20;

class CpuBlocks final : public BlockSource {
 public:
  void* take(std::size_t bytes) override {
    if (bytes < huge_page) return std::aligned_alloc(64, bytes);
    void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
#if defined(__linux__) && !defined(WHENCE_PLAIN_SYSTEM)
    madvise(mapped, bytes, MADV_HUGEPAGE);
#endif
    return mapped;
  }
  void give_back(void* block, std::size_t bytes) noexcept override {
    if (bytes < huge_page)
      std::free(block);
    else
      munmap(block, bytes);
  }
  // The memory still free depends on limits that cannot be queried, so it stays unknown.
  Room room() const override { return {}; }
  const char* name() const override { return "memory"; }
  bool host_may_read() const override { return true; }
};

}  // namespace

// Never destroyed: tensors in static storage may be freed after any destructor here.
Allocator& Allocator::cpu() {
  static Allocator* const allocator = new Allocator(*new CpuBlocks);
  return *allocator;
}

}  // namespace whence
