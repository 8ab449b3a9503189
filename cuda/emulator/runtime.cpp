// The emulated twin of cuda/runtime/runtime.cpp: every launch and every copy has ended when its call returns.
#include "cuda/runtime/runtime.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <utility>

#include "cuda/emulator/arena.h"
#include "cuda/emulator/run.h"
#include "cuda/emulator/settings.h"

namespace whence::gpu {

// The work that was submitted during the recording, in order.
struct Graph {
  struct Work {
    const char* name;
    std::vector<emulator::Arena::Use> uses;  // of memory that the graph does not own
    std::function<void()> run;
  };
  std::vector<Work> work;
};

namespace {

std::unique_ptr<Graph>& under_way() {
  static std::unique_ptr<Graph>& graph = *new std::unique_ptr<Graph>;
  return graph;
}

std::atomic<std::uint64_t> launches_so_far = 0;

std::byte* device_bytes(const char* op, const void* address, std::size_t bytes) {
  const emulator::Arena& arena = emulator::Arena::instance();
  if (!arena.in_use(address, bytes))
    fail(op, bytes, " bytes that are not all of one tensor on cuda:0; those of one in use are required");
  return arena.bytes_at(address);
}

void count_copy(const char* name, std::size_t read, std::size_t written) {
  emulator::Counters counted;
  counted.launches = 1, counted.global_read = read, counted.global_written = written;
  emulator::count(name, counted);
}

}  // namespace

const DeviceFacts& device_facts() {
  static const DeviceFacts& facts = *[] {
    auto* known = new DeviceFacts;
    known->emulated = true, known->name = "emulator", known->count = 1;
    known->memory = emulator::settings().memory;
    return known;
  }();
  return facts;
}

void* allocate(std::size_t bytes) { return emulator::Arena::instance().allocate(bytes); }
void deallocate(void* block) noexcept { emulator::Arena::instance().deallocate(block); }

void unset(void* block, std::size_t bytes) {
  emulator::Arena& arena = emulator::Arena::instance();
  const std::size_t all = arena.hand_out(block, bytes, under_way().get());
  if (capturing())
    emulator::submit("allocate", {}, [memory = arena.bytes_at(block), all] { emulator::Arena::fill(memory, all); });
}

void retire(void* block) noexcept {
  emulator::Arena& arena = emulator::Arena::instance();
  const std::size_t bytes = arena.retire(block, under_way().get());
  if (bytes > 0)
    emulator::submit("free", {}, [memory = arena.bytes_at(block), bytes] { emulator::Arena::fill(memory, bytes); });
}

BlockSource::Room memory_room() {
  const emulator::Arena& arena = emulator::Arena::instance();
  return {arena.capacity() - std::min(arena.capacity(), arena.used()), arena.capacity()};
}

void copy_to_cpu(const void* from, void* to, std::size_t bytes) {
  const std::byte* const there = device_bytes("copy", from, bytes);
  emulator::settings().dry ? std::memset(to, 0, bytes) : std::memcpy(to, there, bytes);
  count_copy("copy to cpu", bytes, 0);
  emulator::watch_host_accesses();
}

void copy_from_cpu(const void* from, void* to, std::size_t bytes) {
  std::byte* const there = device_bytes("copy", to, bytes);
  const auto* const first = static_cast<const std::byte*>(from);
  const auto send = [there](const std::byte* numbers, std::size_t count) {
    if (!emulator::settings().dry) std::memcpy(there, numbers, count);
    count_copy("copy from cpu", 0, count);
  };
  if (!capturing()) return send(first, bytes);
  emulator::submit("copy from cpu", {&to, sizeof to},
      [send, constant = std::vector<std::byte>(first, first + bytes)] { send(constant.data(), constant.size()); });
}

CUstream_st* stream() { return nullptr; }

// The limit of the target GPUs. Tiles of f64 exceed all of them.
std::size_t most_shared_bytes() { return tiles_in_f64() ? std::size_t{1} << 20 : emulator::settings().shared; }

bool tiles_in_f64() { return emulator::settings().tiles_in_f64; }

void require_launchable(const LaunchFacts& facts, const void*) {
  const std::size_t most_shared = most_shared_bytes();
  if (facts.shared_bytes > most_shared)
    fail("launch", to_string(facts), " given; at most ", most_shared, " bytes required on ", device_facts().name);
}

void launched(const LaunchFacts&) { ++launches_so_far; }
std::uint64_t launches() { return launches_so_far; }

void synchronise() {}

bool capturing() { return under_way() != nullptr; }

void begin_capture() { under_way() = std::make_unique<Graph>(); }

Graph* end_capture() { return under_way().release(); }
void abandon_capture() noexcept { destroy_graph(under_way().release()); }
void launch_graph(const Graph& graph) {
  for (const Graph::Work& work : graph.work) {
    for (const emulator::Arena::Use& use : work.uses)
      if (!emulator::Arena::instance().holds(use))
        fail("replay", work.name,
            " was recorded with memory that has been freed since; what it reads and writes must live as long as the "
            "recorded work");
    work.run();
  }
  launched({"a replayed graph", 0, 0, 0});
}
void destroy_graph(Graph* graph) noexcept {
  emulator::Arena::instance().forget_graph(graph);
  delete graph;
}

namespace emulator {

void submit(const char* name, Arguments arguments, std::function<void()> work) {
  if (!capturing()) return work();
  Graph& graph = *under_way();
  graph.work.push_back({name, Arena::instance().uses_in(arguments.first, arguments.bytes, &graph), std::move(work)});
}

}  // namespace emulator
}  // namespace whence::gpu
