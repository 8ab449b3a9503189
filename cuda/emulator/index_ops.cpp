#include "cuda/emulator/index_ops.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "cuda/emulator/arena.h"
#include "cuda/emulator/run.h"
#include "cuda/emulator/settings.h"
#include "cuda/runtime/backend.h"

namespace whence::gpu::emulator {

// Padding is indeterminate: a 4-byte member and old padding next to it may look like a device address, and be
// translated. That is harmless: both mappings agree in the low 32 bits.
BodyCopy::BodyCopy(const IndexBody& body)
    : bytes_(static_cast<std::byte*>(::operator new(body.bytes, std::align_val_t{64})),
          [](std::byte* memory) { ::operator delete(memory, std::align_val_t{64}); }),
      call_(body.call) {
  std::memcpy(bytes_.get(), body.body, body.bytes);
  const Arena& arena = Arena::instance();
  uses_ = arena.uses_in(body.body, body.bytes);
  for (std::size_t at = 0; at + sizeof(void*) <= body.bytes; at += sizeof(void*)) {
    void* word = nullptr;
    std::memcpy(&word, bytes_.get() + at, sizeof word);
    if (!arena.contains(word)) continue;
    word = arena.bytes_at(word);
    std::memcpy(bytes_.get() + at, &word, sizeof word);
  }
}

namespace {

using Bytes = std::vector<std::byte>;

void run_all(const BodyCopy& body, index_t indices, std::uint64_t seed, std::uint64_t launch) {
  Order order(seed, launch);
  IndexOrder in_order(indices, order);
  for (index_t k = 0; k < indices; ++k) body.call(in_order.next());
}

std::byte* memory_of(const Arena::Use& use) { return Arena::instance().bytes_of(use); }
std::vector<Bytes> numbers_of(const std::vector<Arena::Use>& uses) {
  std::vector<Bytes> all;
  for (const Arena::Use& use : uses) all.emplace_back(memory_of(use), memory_of(use) + use.bytes);
  return all;
}
void put_back(const std::vector<Arena::Use>& uses, const std::vector<Bytes>& numbers) {
  for (std::size_t k = 0; k < uses.size(); ++k) std::memcpy(memory_of(uses[k]), numbers[k].data(), numbers[k].size());
}
bool holds(const Arena::Use& use, const Bytes& numbers) {
  return std::memcmp(memory_of(use), numbers.data(), numbers.size()) == 0;
}

// Returns "index 3 and 17 write it": the indices that change one byte, whatever it was.
std::string writers(const BodyCopy& body, index_t indices, std::byte* byte) {
  std::string text;
  int found = 0;
  for (index_t i = 0; i < indices && found < 2; ++i) {
    const std::byte before = *byte;
    bool writes = false;
    for (const std::byte other : {std::byte{0x55}, std::byte{0xAA}}) {
      *byte = other;
      body.call(i);
      writes |= *byte != other;
    }
    *byte = before;
    if (writes) text += to_text(found++ == 0 ? "index " : " and ", i);
  }
  return text + (found < 2 ? " writes it" : " write it");
}

using Guards = std::vector<Arena::Guard>;
void fill(const Guards& guards, std::byte value) {
  for (const Arena::Guard& guard : guards) std::fill_n(guard.first, guard.bytes, value);
}

void require_untouched(const char* op, const Guards& guards) {
  for (const Arena::Guard& guard : guards) {
    if (std::memcmp(guard.first, guard.first + 1, guard.bytes - 1) == 0 && *guard.first == std::byte{0xFF}) continue;
    std::byte* const written =
        std::find_if(guard.first, guard.first + guard.bytes, [](std::byte byte) { return byte != std::byte{0xFF}; });
    fill(guards, std::byte{0xFF});
    const std::byte* const tensor = memory_of(guard.of);
    const auto distance = guard.behind ? written - (tensor + guard.of.bytes) : tensor - written;
    fail(op, "writes ", distance, guard.behind ? " bytes after" : " bytes before", " a tensor of ", guard.of.bytes,
        " bytes");
  }
}

// Repeats the work in another order, and with other bytes next to its tensors. If the results differ, throws Error with
// one of the places.
void compare_orders(const char* op, const BodyCopy& body, index_t indices, std::uint64_t launch,
    const std::vector<Bytes>& before, const Guards& guards) {
  const std::vector<Arena::Use>& uses = body.uses();
  std::vector<Bytes> first(uses.size());  // empty where the first run changed nothing
  for (std::size_t k = 0; k < uses.size(); ++k) {
    if (holds(uses[k], before[k])) continue;
    first[k].assign(memory_of(uses[k]), memory_of(uses[k]) + uses[k].bytes);
    std::memcpy(memory_of(uses[k]), before[k].data(), before[k].size());
  }
  // Returns the first tensor with different numbers, or uses.size() if there is none.
  const auto run_again = [&](std::byte next_to_them) {
    fill(guards, next_to_them);
    run_all(body, indices, settings().order == 1 ? 0 : 1, launch);
    fill(guards, std::byte{0xFF});
    std::size_t k = 0;
    while (k < uses.size() && holds(uses[k], first[k].empty() ? before[k] : first[k])) ++k;
    return k;
  };
  const std::size_t wrong = run_again(std::byte{0});
  if (wrong == uses.size()) return;
  std::byte* const memory = memory_of(uses[wrong]);
  const Bytes& expected = first[wrong].empty() ? before[wrong] : first[wrong];
  const auto at = std::mismatch(expected.begin(), expected.end(), memory).second - memory;
  put_back(uses, before);
  const bool by_order = run_again(std::byte{0xFF}) < uses.size();
  put_back(uses, before);
  fail(op, "what it writes ", at, " bytes into ", bytes_text(uses[wrong].bytes), " depends on ",
      by_order ? "the order of its indices: " : "bytes next to its tensors: ", writers(body, indices, memory + at),
      by_order ? "; an index that writes its own numbers, and reads none that another writes, is required"
               : "; an index that reads inside of its tensors is required");
}

}  // namespace

void Launcher::run(const char* op, index_t indices, const IndexBody& body) {
  const LaunchFacts facts{op, 0, 0, 0};
  submit(op, {body.body, body.bytes}, [facts, indices, copy = BodyCopy(body)] {
    const OneLaunch launch;
    Counters counted;
    counted.launches = 1, counted.indices = static_cast<std::uint64_t>(indices);
    count(facts.kernel, counted);
    if (settings().dry) return;
    const std::vector<Bytes> before = numbers_of(copy.uses());
    run_all(copy, indices, settings().order, launch.number);
    running.last_kernel = facts.kernel;
    const Guards guards = Arena::instance().guards_of(copy.uses());
    require_untouched(facts.kernel, guards);
    compare_orders(facts.kernel, copy, indices, launch.number, before, guards);
  });
  gpu::launched(facts);
}

bool Launcher::recording() const { return gpu::capturing(); }
CUstream_st* Launcher::stream() { return gpu::stream(); }
void Launcher::launched(const char* op, index_t blocks, int threads) { gpu::launched({op, blocks, threads, 0}); }

}  // namespace whence::gpu::emulator

namespace whence {

IndexLauncher& index_launcher() {
  static gpu::emulator::Launcher& launcher = *new gpu::emulator::Launcher;
  return launcher;
}

gpu::emulator::Settings* emulator_settings() { return &gpu::emulator::settings(); }

}  // namespace whence
