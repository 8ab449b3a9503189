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

// A body's bytes, as a GPU receives them, with every device address changed to the one that kernels use. Padding next
// to a 4-byte member may look like a device address. That is harmless: both mappings agree in the low 32 bits.
class BodyCopy {
 public:
  explicit BodyCopy(const IndexBody& body)
      : words_((body.bytes + sizeof(Word) - 1) / sizeof(Word)),
        uses_(Arena::instance().uses_in(body.body, body.bytes)),
        call_(body.call) {
    std::memcpy(words_.data(), body.body, body.bytes);
    auto* const addresses = reinterpret_cast<std::byte**>(words_.data());
    for (std::size_t k = 0; k < body.bytes / sizeof(void*); ++k)
      if (Arena::instance().contains(addresses[k])) addresses[k] = Arena::instance().bytes_at(addresses[k]);
  }
  void call(index_t i) const { call_(words_.data(), i); }
  const Uses& uses() const { return uses_; }  // the blocks that it points at

 private:
  using Word = std::max_align_t;
  std::vector<Word> words_;
  Uses uses_;
  void (*call_)(const void* body, index_t i);
};

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

void run_all(const BodyCopy& body, index_t indices, std::uint64_t seed, std::uint64_t launch) {
  Order order(seed, launch);
  IndexOrder in_order(indices, order);
  for (index_t k = 0; k < indices; ++k) body.call(in_order.next());
}

class Launcher final : public IndexLauncher {
 public:
  bool recording() const override { return gpu::capturing(); }
  CUstream_st* stream() override { return gpu::stream(); }
  void launched(const char* op, index_t blocks, int threads) override { gpu::launched({op, blocks, threads, 0}); }
  // In the order of settings(), and from the same numbers in another, with other bytes next to the tensors.
  void run(const char* op, index_t indices, const IndexBody& body) override {
    const LaunchFacts facts{op, 0, 0, 0};
    submit(op, {body.body, body.bytes}, [facts, indices, copy = BodyCopy(body)] {
      const OneLaunch launch;
      Counters counted;
      counted.launches = 1, counted.threads = static_cast<std::uint64_t>(indices);
      count(facts.kernel, counted);
      if (settings().dry) return;
      const Uses& uses = copy.uses();
      const std::vector<Bytes> before = numbers_of(uses);
      run_all(copy, indices, settings().order, launch.number);
      running.last_kernel = facts.kernel;
      require_untouched(facts.kernel, uses);
      const std::vector<Bytes> after = numbers_of(uses);
      for (std::size_t k = 0; k < uses.size(); ++k) std::ranges::copy(before[k], memory_of(uses[k]));
      fill_bands(uses, std::byte{0});
      run_all(copy, indices, settings().order == 1 ? 0 : 1, launch.number);
      fill_bands(uses, std::byte{0xFF});
      for (std::size_t k = 0; k < uses.size(); ++k) {
        const auto at = std::ranges::mismatch(after[k], std::span(memory_of(uses[k]), uses[k].bytes)).in1;
        if (at != after[k].end())
          fail(facts.kernel, "what it writes ", at - after[k].begin(), " bytes into ", bytes_text(uses[k].bytes),
              " depends on the order of its indices, or on bytes next to its tensors; an index that reads inside of "
              "them, "
              "writes its own numbers, and reads none that another writes is required");
      }
    });
    gpu::launched(facts);
  }
};

}  // namespace
}  // namespace whence::gpu::emulator

namespace whence {

IndexLauncher& index_launcher() {
  static gpu::emulator::Launcher& launcher = *new gpu::emulator::Launcher;
  return launcher;
}

gpu::emulator::Settings* emulator_settings() { return &gpu::emulator::settings(); }

}  // namespace whence
