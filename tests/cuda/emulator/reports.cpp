// The emulator of GPUs: reports of planted bugs name kernel, block, thread and line.
#include <fcntl.h>

#include "cuda/emulator/counters.h"
#include "tensor/device/allocator.h"
#include "tensor/device/device_runtime.h"
#include "tensor/launch.h"
#include "tests/cuda/emulator/says.h"
#include "tests/support/device.h"

using namespace whence;
using namespace whence::test;
using gpu::convert, gpu::Global, gpu::global, gpu::launch_kernel, gpu::load, gpu::Number, gpu::Shared,
    gpu::shared_bytes_for, gpu::store, gpu::Thread;
using gpu::emulator::settings;

namespace {

const Device device = Device::cuda(0);
const std::vector<std::uint64_t> orders{0, 1, 2, 3, 1234567};

std::string line_of(const std::string& mark) { return test::line_of(mark, "emulator/reports.cpp"); }

// ---- Kernels, correct ones and wrong ones.

// Twice: every thread writes a number and reads its neighbour's. `barriers` of the three that are needed are there.
auto neighbours(const Tensor& of, const Tensor& to, int barriers) {
  return planted<96>([=, x = global<const float>(of), y = global<float>(to)](Thread& t) {
    const Shared<float> numbers = t.shared<float>(96);
    const int next = (t.index() + 1) % 96;
    store(numbers, t.index(), load<float>(x, t.index()));
    if (barriers > 0) t.sync();
    const Number<float> other = load<float>(numbers, next);  // line: first read
    if (barriers > 1) t.sync();
    store(numbers, t.index(), other);  // line: second write
    if (barriers > 2) t.sync();
    store(y, t.index(), load<float>(numbers, next));  // line: second read
  });
}

enum class Where { global_write, shared_write, global_read };
auto outside(Global<float> x, index_t offset, Where where) {
  return planted<32>([=](Thread& t) {
    const index_t i = t.block() * 32 + t.index() + offset;
    const Shared<float> numbers = t.shared<float>(32);
    if (where == Where::global_write) x[i] = 1.0f;                          // line: global write
    if (where == Where::shared_write) numbers[i] = 1.0f;                    // line: shared write
    if (where == Where::global_read) static_cast<void>(load<float>(x, i));  // line: global read
  });
}

// Every block adds to the same number, by reading and writing it.
auto same_number(const Tensor& of) {
  return planted<32>([x = global<float>(of)](Thread& t) {
    if (t.index() == 0) x[0] += 1.0f;  // line: same number
  });
}

auto divergent(int kind) {
  return planted<64>([=](Thread& t) {
    if (kind == 0) {
      if (t.index() < 32)
        t.sync();  // line: one sync
      else
        t.sync();  // line: other sync
    }
    if (kind == 1 && t.index() != 40) t.sync();  // line: sync of most
  });
}

auto wrong_shuffle(int kind) {
  return planted<32>([=](Thread& t) {
    if (kind == 0 && t.lane() < 16) static_cast<void>(t.shuffle_xor(t.lane(), 1));     // line: shuffle of half
    if (kind == 1 && t.lane() % 2 == 0) static_cast<void>(t.shuffle_up(t.lane(), 1));  // line: shuffle of even
    if (kind == 1 && t.lane() % 2 == 1) t.sync_warp();                                 // line: sync of odd
  });
}

auto unset(const Tensor& to) {
  return planted<32>([y = global<float>(to)](Thread& t) {
    const Shared<float> numbers = t.shared<float>(32);     // line: part of shared memory
    store(y, t.index(), load<float>(numbers, t.index()));  // line: unset read
  });
}

// Lane 0 writes, all lanes of the warp read: sync_warp orders them, a shuffle does not.
auto within_warp(const Tensor& to, bool by_sync) {
  return planted<64>([=, y = global<float>(to)](Thread& t) {
    const Shared<float> numbers = t.shared<float>(64);
    const Number<float> own(static_cast<float>(t.index()));
    store(numbers, t.index(), own);  // line: lane write
    by_sync ? t.sync_warp() : static_cast<void>(t.shuffle(own, 0));
    store(y, t.index(), load<float>(numbers, t.warp() * 32));  // line: lane read
  });
}

// Sums of rows of 64 numbers by a warp's shuffles, and how many are positive by atomic additions.
auto row_sums(const Tensor& of, const Tensor& to, const Tensor& count) {
  return planted<64>([x = global<const float>(of), sums = global<float>(to), positive = global<int>(count)](Thread& t) {
    const Shared<float> of_warp = t.shared<float>(2);
    Number<float> sum = load<float>(x, t.block() * 64 + t.index());
    if (sum > 0.0f) static_cast<void>(t.atomic_add(positive, 0, 1));
    for (int mask = 16; mask > 0; mask /= 2) sum += t.shuffle_xor(sum, mask);
    if (t.lane() == 0) store(of_warp, t.warp(), sum);
    t.sync();
    if (t.index() == 0) store(sums, t.block(), load<float>(of_warp, 0) + load<float>(of_warp, 1));
  });
}

}  // namespace

TEST_CASE("emulator: a missing barrier is reported with both lines") {
  const Tensor x = on_gpu(Tensor::arange(96, DType::f32)), y = Tensor::empty({96}, DType::f32, device);
  const gpu::Grid grid{.shared_bytes = shared_bytes_for<float>(96)};
  for (const std::uint64_t order : orders) {
    CAPTURE(order);
    const std::string none = report(neighbours(x, y, 0), grid, order);
    says(none, {"planted: ", "thread ", "of block 0", line_of("first read"), "shared memory"});
    const std::string one = report(neighbours(x, y, 1), grid, order);
    says(one,
        {"planted: ", "thread ", "of block 0", "no barrier between", line_of("first read"), line_of("second write")});
    const std::string two = report(neighbours(x, y, 2), grid, order);
    says(two, {"planted: ", "no barrier between", line_of("second write"), line_of("second read")});
    CHECK(report(neighbours(x, y, 3), grid, order).empty());
  }
  const std::string ascending = report(neighbours(x, y, 1), grid, 0);
  CHECK(ascending == to_text("planted: ", line_of("second write"),
                         ": thread 1 of block 0: writes 4 bytes of shared memory that thread 0 read at ",
                         line_of("first read"), ", with no barrier between; a barrier is required"));
}

TEST_CASE("emulator: an access outside of its memory is reported") {
  const Tensor x = Tensor::zeros({64}, DType::f32, device);
  const gpu::Grid grid{.blocks = 2, .shared_bytes = shared_bytes_for<float>(32)};
  CHECK(report(outside(global<float>(x), 0, Where::global_write), grid, 0).empty());
  CHECK(report(outside(global<float>(x), 3, Where::global_write), grid, 0) ==
        to_text("planted: ", line_of("global write"),
            ": thread 29 of block 1: writes element 64 of global memory that has 64 elements of 4 bytes"));
  says(report(outside(global<float>(x), 3, Where::global_read), grid, 3),
      {line_of("global read"), "of block 1: reads element 6"});
  says(report(outside(global<float>(x), -1, Where::global_read), grid, 1),
      {line_of("global read"), "thread 0 of block 0: reads element -1 "});
  says(report(outside(global<float>(x), 0, Where::shared_write), grid, 0),
      {line_of("shared write"), "writes element 32 of shared memory"});
  says(report(outside(nullptr, 0, Where::global_read), grid, 0),
      {line_of("global read"), "reads through a null pointer"});
}

TEST_CASE("emulator: two blocks that touch one number are reported") {
  const Tensor x = Tensor::zeros({1}, DType::f32, device);
  for (const std::uint64_t order : orders) {
    CHECK(report(same_number(x), {.blocks = 1}, order).empty());
    const std::string text = report(same_number(x), {.blocks = 2}, order);
    says(text,
        {"planted: ", line_of("same number"), "thread 0 of block ", "reads 4 bytes of global memory (0 bytes into ",
            "wrote at " + line_of("same number"), "blocks of one launch have no order"});
  }
}

TEST_CASE("emulator: barriers that not all threads meet are reports and no hang") {
  for (const std::uint64_t order : orders) {
    const std::string two_places = report(divergent(0), {}, order);
    says(two_places, {"planted: ", line_of("one sync"), line_of("other sync"), "sync()"});
    const std::string never = report(divergent(1), {}, order);
    says(never,
        {"planted: ", line_of("sync of most"), "thread 0 and 62 others wait in sync()", "thread 40 ended without it"});
    CHECK(report(divergent(2), {}, order).empty());
    const std::string part = report(wrong_shuffle(0), {}, order);
    says(part, {"planted: ", line_of("shuffle of half"), "wait in shuffle_xor", "ended without it"});
    const std::string two_kinds = report(wrong_shuffle(1), {}, order);
    says(two_kinds, {"planted: ", line_of("shuffle of even"), line_of("sync of odd"), "shuffle_up", "sync_warp()"});
  }
}

TEST_CASE("emulator: unwritten shared memory, and a shuffle used as a barrier") {
  const Tensor y = Tensor::empty({64}, DType::f32, device);
  for (const std::uint64_t order : orders) {
    says(report(unset(y), {.shared_bytes = shared_bytes_for<float>(32)}, order),
        {"planted: ", line_of("unset read"), "that no thread of the block has written"});
    CHECK(report(within_warp(y, true), {.shared_bytes = shared_bytes_for<float>(64)}, order).empty());
    says(report(within_warp(y, false), {.shared_bytes = shared_bytes_for<float>(64)}, order),
        {"planted: ", line_of("lane read"), line_of("lane write"), "no barrier between"});
  }
  says(report(unset(y), {.shared_bytes = 64}, 0),
      {line_of("part of shared memory"), "128 bytes of shared memory asked for; the launch gives 64"});
}

TEST_CASE("emulator: counts") {
  gpu::emulator::reset_counters();
  const Tensor x = on_gpu(Tensor::arange(192, DType::f32));
  const Tensor sums = Tensor::empty({3}, DType::f32, device), positive = Tensor::zeros({1}, DType::i32, device);
  for (const std::uint64_t order : orders) {
    const With chosen(settings().order, order);
    launch_kernel(row_sums(x, sums, positive), {.blocks = 3, .shared_bytes = shared_bytes_for<float>(2)});
  }
  const auto counted = gpu::emulator::counters().at("planted");
  const std::uint64_t n = orders.size(), blocks = 3 * n, threads = 64 * blocks, warps = 2 * blocks, positives = 191 * n;
  CHECK(counted.launches == n);
  CHECK(counted.blocks == blocks);
  CHECK(counted.threads == threads);
  CHECK(counted.arithmetic == threads + 5 * threads + blocks);  // a comparison, five additions, and one for the block
  CHECK(counted.special == 0);
  CHECK(counted.global_read == 4 * threads + 4 * positives);
  CHECK(counted.global_written == 4 * blocks + 4 * positives);
  CHECK(counted.shared_read == 8 * blocks);
  CHECK(counted.shared_written == 4 * warps);
  CHECK(counted.barriers == blocks);
  CHECK(counted.shuffles == 5 * warps);
  CHECK(counted.atomics == positives);
  CHECK(counted.shared_bytes == 16);
  CHECK(gpu::emulator::counters_table().find("planted") != std::string::npos);
  gpu::emulator::reset_counters();
  CHECK(gpu::emulator::counters().empty());
}

TEST_CASE("emulator: a host that touches device memory gets a report and ends") {
  const Tensor x = Tensor::ones({3}, DType::f32, device);  // by a kernel
  const std::string file = to_text("host_access_", getpid(), ".txt");
  static_cast<void>(x.to_vector());  // the emulator's handler comes before doctest's; the child allocates no memory
  for (const bool writes : {false, true}) {
    const pid_t child = fork();
    if (child == 0) {
      const int out = open(file.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0644);
      dup2(out, 1), dup2(out, 2);
      const Site here = Site::current();
      const CallSite site(here, "planted");
      volatile float* number = x.data<float>() + 2;
      if (writes) *number = 1;
      _exit(*number > 0 ? 77 : 78);
    }
    int status = 0;
    waitpid(child, &status, 0);
    CHECK((WIFSIGNALED(status) || WEXITSTATUS(status) < 77));  // AddressSanitizer turns it into an exit
    const std::string text = text_of(file);
    says(text, {"reports.cpp:", ": planted: host code ", writes ? "wrote" : "read",
                   " device memory, 8 bytes into a block of ", "; the last kernel was fill", "must be copied first"});
  }
  unlink(file.c_str());
}

TEST_CASE("emulator: fresh memory is NaN") {
  { const Tensor used = on_gpu(Tensor::arange(50, DType::f32)); }
  for (const double value : Tensor::empty({50}, DType::f32, device).to_vector()) CHECK(std::isnan(value));
}

TEST_CASE("emulator: a block has the shared memory of the GPU that is chosen, and no more") {
  for (const std::size_t limit : {std::size_t{99} << 10, std::size_t{163} << 10, std::size_t{227} << 10}) {
    const With chosen(settings().shared, limit);
    CHECK_NOTHROW(gpu::require_launchable({"planted", 1, 32, limit}, nullptr));
    const std::string text = error_text([&] { gpu::require_launchable({"planted", 1, 32, limit + 1}, nullptr); });
    says(text, {"planted", to_text("at most ", limit, " bytes required")});
  }
}
