// Blocks of the emulated device's memory, first fit.
#include "cuda/emulator/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "cuda/emulator/settings.h"
#include "tensor/error.h"

namespace whence::gpu::emulator {
namespace {

constexpr std::size_t alignment = 256;
constexpr int unset = 0xFF;
std::size_t rounded(std::size_t bytes) {
  return bytes == 0 ? alignment : (bytes + alignment - 1) / alignment * alignment;
}

// An address that no integer or floating member of a kernel has by chance: its upper half is no plausible extent, and
// as a double it is a denormal. The system may give another one.
void* const wished = reinterpret_cast<void*>(0x6A5D'0000'0000);

// Returns the first of these bytes that was written; null: none.
const std::byte* first_written(const std::byte* memory, std::size_t bytes) {
  const std::byte* const end = memory + bytes;
  if (bytes == 0 || (*memory == std::byte{unset} && std::memcmp(memory, memory + 1, bytes - 1) == 0)) return nullptr;
  return std::find_if(memory, end, [](std::byte byte) { return byte != std::byte{unset}; });
}

}  // namespace

std::byte* reserve(std::size_t bytes, void* where, bool accessible) {
  const int access = accessible ? PROT_READ | PROT_WRITE : PROT_NONE;
  void* const memory = mmap(where, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    fail("emulator", bytes_text(bytes), " of addresses are refused by the system (", std::strerror(errno),
        "); set WHENCE_EMULATOR_MEMORY to less, as in 512M");
  return static_cast<std::byte*>(memory);
}

// Never destroyed: tensors in static storage are freed after any destructor here.
Arena& Arena::instance() {
  static Arena* const arena = new Arena;
  return *arena;
}

Arena::Arena() : reserved_(rounded(settings().memory)) {
  first_ = reserve(reserved_, wished, false);
  // Both addresses of a byte agree in the lower half: see BodyCopy.
  constexpr std::uintptr_t half = std::uintptr_t{1} << 32;
  std::byte* const somewhere = reserve(reserved_ + half);
  memory_ = somewhere + (reinterpret_cast<std::uintptr_t>(first_) - reinterpret_cast<std::uintptr_t>(somewhere)) % half;
  std::memset(memory_, unset, band);
  watch_host_accesses();
}

std::size_t Arena::capacity() const { return settings().memory < reserved_ ? settings().memory : reserved_; }

void* Arena::allocate(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::size_t size = rounded(bytes), taken = size + band;
  if (used_ + size > capacity()) return nullptr;
  std::size_t at = band;
  for (const auto& [begin, block] : blocks_) {
    if (begin - at >= taken) break;
    at = begin + block.size + band;
  }
  if (at + taken > reserved_) return nullptr;
  blocks_[at] = {.size = size, .poisoned = fill(memory_ + at, size)};
  std::memset(memory_ + at + size, unset, band);
  used_ += size;
  return first_ + at;
}

bool Arena::fill(std::byte* bytes, std::size_t count) {
  if (!settings().dry) std::memset(bytes, unset, count);
  return !settings().dry;
}

void Arena::deallocate(void* block) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(offset(block));
  if (found == blocks_.end()) return;
  used_ -= found->second.size;
  blocks_.erase(found);
}

std::size_t Arena::hand_out(void* block, std::size_t bytes, const void* graph) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(offset(block));
  if (found == blocks_.end()) return 0;
  Block& given = found->second;
  std::byte* const memory = memory_ + found->first;
  const std::byte* const written = given.poisoned ? first_written(memory, given.size + band) : nullptr;
  if (written || !given.poisoned) fill(memory, given.size + band);
  if (written)
    fail("allocate", "a block of ", bytes_text(given.size), " was written while it was free, ", written - memory,
        " bytes from its start; memory may be written only while a tensor holds it");
  given.used = bytes, given.number = ++numbers_, given.graph = graph, given.poisoned = false;
  return given.size + band;
}

std::size_t Arena::retire(void* block, const void* graph) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(offset(block));
  if (found == blocks_.end()) return 0;
  Block& freed = found->second;
  if (graph && freed.graph == graph) return freed.used;
  if (freed.graph || graph) return 0;  // a graph may read the block
  freed.poisoned = fill(memory_ + found->first, freed.used);
  freed.used = 0, freed.number = ++numbers_;
  return 0;
}

void Arena::forget_graph(const void* graph) {
  const std::lock_guard lock(mutex_);
  for (auto& [begin, block] : blocks_)
    if (block.graph == graph) block.graph = nullptr;
}

const Arena::Blocks::value_type* Arena::block_at(std::size_t offset) const {
  auto after = blocks_.upper_bound(offset);
  if (after == blocks_.begin()) return nullptr;
  --after;
  return offset - after->first < after->second.size ? &*after : nullptr;
}

std::vector<Arena::Use> Arena::uses_in(const void* memory, std::size_t bytes, const void* graph) const {
  const std::lock_guard lock(mutex_);
  std::vector<Use> uses;
  for (std::size_t at = 0; at + sizeof(void*) <= bytes; at += sizeof(void*)) {
    const std::byte* word = nullptr;
    std::memcpy(&word, static_cast<const std::byte*>(memory) + at, sizeof word);
    const auto kernels_offset = reinterpret_cast<std::uintptr_t>(word) - reinterpret_cast<std::uintptr_t>(memory_);
    const auto* const block = block_at(contains(word) ? offset(word) : kernels_offset);
    if (!block || block->second.used == 0 || (graph && block->second.graph == graph)) continue;
    const auto same = [&](const Use& use) { return use.begin == block->first; };
    if (std::none_of(uses.begin(), uses.end(), same))
      uses.push_back({block->first, block->second.used, block->second.number});
  }
  return uses;
}

bool Arena::holds(const Use& use) const {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(use.begin);
  return found != blocks_.end() && found->second.number == use.number;
}

bool Arena::in_use(const void* address, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto* const block = block_at(offset(address));
  return block && offset(address) - block->first + bytes <= block->second.used;
}

bool Arena::find_block(const void* address, std::size_t* offset_in_block, std::size_t* block_bytes) const {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  const auto* const block = block_at(offset(address));
  if (!block) return false;
  *offset_in_block = offset(address) - block->first, *block_bytes = block->second.size;
  return true;
}

}  // namespace whence::gpu::emulator
