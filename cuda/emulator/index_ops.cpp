// Index-style ops (tensor/launch.h) on the emulated device. Their bodies hold plain pointers, so single accesses are
// not checked. But writes next to a tensor are found, and each op runs in two orders of its indices, which must agree.
#include <algorithm>
#include <cstring>
#include <span>

#include "cuda/emulator/arena.h"
#include "cuda/emulator/run.h"
#include "cuda/emulator/settings.h"
#include "cuda/runtime/backend.h"

namespace whence::gpu::emulator {
namespace {

using Uses = std::vector<Arena::Use>;
using Bytes = std::vector<std::byte>;

// Returns a body's bytes, as a GPU receives them, with every device address changed to the one that kernels use. Padding
// next to a 4-byte member may look like a device address. That is harmless: both mappings agree in the low 32 bits.
std::vector<std::max_align_t> as_kernels_see(const IndexBody& body) {
  std::vector<std::max_align_t> copy((body.bytes + sizeof(std::max_align_t) - 1) / sizeof(std::max_align_t));
  std::memcpy(copy.data(), body.body, body.bytes);
  auto* const addresses = reinterpret_cast<std::byte**>(copy.data());
  for (std::size_t k = 0; k < body.bytes / sizeof(void*); ++k)
    if (Arena::instance().contains(addresses[k])) addresses[k] = Arena::instance().bytes_at(addresses[k]);
  return copy;
}

std::byte* memory_of(const Arena::Use& use) { return Arena::instance().bytes_of(use); }
std::vector<Bytes> numbers_of(const Uses& uses) {
  std::vector<Bytes> all;
  for (const Arena::Use& use : uses) all.emplace_back(memory_of(use), memory_of(use) + use.bytes);
  return all;
}

// The bytes before and behind each tensor, which belong to none.
template <class F> void for_each_band(const Uses& uses, const F& f) {
  constexpr std::size_t band = Arena::band;
  for (const Arena::Use& use : uses) {
    f(use, memory_of(use) - band, band);
    f(use, memory_of(use) + use.bytes, (use.bytes + band - 1) / band * band - use.bytes + band);
  }
}
void fill_bands(const Uses& uses, std::byte value) {
  for_each_band(
      uses, [value](const Arena::Use&, std::byte* first, std::size_t bytes) { std::fill_n(first, bytes, value); });
}
void require_untouched(const char* op, const Uses& uses) {
  for_each_band(uses, [&](const Arena::Use& use, std::byte* first, std::size_t bytes) {
    const std::byte* const written =
        std::find_if(first, first + bytes, [](std::byte byte) { return byte != std::byte{0xFF}; });
    if (written == first + bytes) return;
    fill_bands(uses, std::byte{0xFF});
    const auto behind = written - (memory_of(use) + use.bytes);
    fail(op, "writes ", behind < 0 ? memory_of(use) - written : behind, behind < 0 ? " bytes before" : " bytes after",
        " a tensor of ", use.bytes, " bytes");
  });
}

// In the order of settings(), and from the same numbers in another, with other bytes next to the tensors.
void run_twice(const char* op, index_t indices, const Uses& uses, const std::function<void(index_t)>& body) {
  const auto in_order = [&](std::uint64_t seed) {
    Order order(seed);
    IndexOrder all(indices, order);
    for (index_t k = 0; k < indices; ++k) body(all.next());
  };
  const std::vector<Bytes> before = numbers_of(uses);
  in_order(settings().order);
  running.last_kernel = op;
  require_untouched(op, uses);
  const std::vector<Bytes> after = numbers_of(uses);
  for (std::size_t k = 0; k < uses.size(); ++k) std::ranges::copy(before[k], memory_of(uses[k]));
  fill_bands(uses, std::byte{0});
  in_order(settings().order == 1 ? 0 : 1);
  fill_bands(uses, std::byte{0xFF});
  for (std::size_t k = 0; k < uses.size(); ++k) {
    const auto at = std::ranges::mismatch(after[k], std::span(memory_of(uses[k]), uses[k].bytes)).in1;
    if (at != after[k].end())
      fail(op, "what it writes ", at - after[k].begin(), " bytes into ", bytes_text(uses[k].bytes),
          " depends on the order of its indices, or on bytes next to its tensors; an index that reads inside of "
          "them, "
          "writes its own numbers, and reads none that another writes is required");
  }
}

}  // namespace
}  // namespace whence::gpu::emulator

void whence::gpu::run_indices(const char* op, index_t count, const IndexBody& body) {
  emulator::submit(op, {body.body, body.bytes},
      [op, count, call = body.call, uses = emulator::Arena::instance().uses_in(body.body, body.bytes),
          copy = emulator::as_kernels_see(body)] {
        const auto one = emulator::one_launch();
        emulator::Counters counted;
        counted.launches = 1, counted.threads = static_cast<std::uint64_t>(count);
        emulator::count(op, counted);
        if (emulator::settings().dry) return;
        emulator::run_twice(op, count, uses, [&](index_t i) { call(copy.data(), i); });
      });
  launched({op, 0, 0, 0});
}

whence::gpu::emulator::Settings* whence::emulator_settings() { return &gpu::emulator::settings(); }
