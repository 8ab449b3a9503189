// Blocks of the emulated device's memory, first fit.
#include "cuda/emulator/arena.h"

#include <sys/mman.h>

#include <cstring>

#include "cuda/emulator/settings.h"
#include "tensor/error.h"

namespace whence::gpu::emulator {
namespace {

constexpr std::size_t alignment = 256;
std::size_t rounded(std::size_t bytes) {
  return bytes == 0 ? alignment : (bytes + alignment - 1) / alignment * alignment;
}

// Addresses that no integer or floating member of a kernel looks like by chance: its upper half is no sensible extent,
// and as a double it is a denormal. The system may give others.
void* const wished = reinterpret_cast<void*>(0x6A5D'0000'0000);

std::byte* map(void* where, std::size_t bytes, int access) {
  void* const memory = mmap(where, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    fail("emulator", bytes_text(bytes), " of addresses are refused by the system (", std::strerror(errno),
        "); set WHENCE_EMULATOR_MEMORY to less, as in 512M");
  }
  return static_cast<std::byte*>(memory);
}

}  // namespace

// Never destroyed: tensors in static storage are freed after any destructor here.
Arena& Arena::instance() {
  static Arena* const arena = new Arena;
  return *arena;
}

Arena::Arena() : reserved_(rounded(settings().memory)) {
  first_ = map(wished, reserved_, PROT_NONE);
  // Both faces agree in the lower half of an address: see BodyCopy.
  constexpr std::uintptr_t half = std::uintptr_t{1} << 32;
  std::byte* const somewhere = map(nullptr, reserved_ + half, PROT_READ | PROT_WRITE);
  memory_ = somewhere + (reinterpret_cast<std::uintptr_t>(first_) - reinterpret_cast<std::uintptr_t>(somewhere)) % half;
  watch_host_accesses();
}

std::size_t Arena::capacity() const { return settings().memory < reserved_ ? settings().memory : reserved_; }

void* Arena::allocate(std::size_t bytes) {
  const std::size_t size = rounded(bytes);
  if (used_ + size > capacity()) return nullptr;
  std::size_t at = 0;
  for (const auto& [begin, extent] : blocks_) {
    if (begin - at >= size) break;
    at = begin + extent;
  }
  if (at + size > reserved_) return nullptr;
  blocks_[at] = size;
  used_ += size;
  std::memset(memory_ + at, 0xFF, size);
  return first_ + at;
}

void Arena::deallocate(void* block) {
  const auto found = blocks_.find(offset(block));
  if (found == blocks_.end()) return;
  used_ -= found->second;
  blocks_.erase(found);
}

bool Arena::find_block(const void* address, std::size_t* offset_in_block, std::size_t* block_bytes) const {
  const std::size_t at = offset(address);
  auto after = blocks_.upper_bound(at);
  if (after == blocks_.begin()) return false;
  --after;
  *offset_in_block = at - after->first, *block_bytes = after->second;
  return at - after->first < after->second;
}

}  // namespace whence::gpu::emulator
