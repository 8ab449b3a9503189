// Reports of the emulator about planted errors with asynchronous copies, fragments and tensor cores, and its counts.
#include "cuda/vocabulary/tensor_cores.h"

#include "cuda/emulator/counters.h"
#include "tests/cuda/emulator/says.h"
#include "tests/cuda/tensor_cores.h"
#include "tests/support/device.h"

using namespace whence;
using namespace whence::test;
using gpu::cp_async, gpu::cp_async_commit, gpu::cp_async_wait, gpu::FragmentA, gpu::FragmentC, gpu::Global, gpu::global,
    gpu::ldmatrix, gpu::ldmatrix_trans, gpu::load, gpu::Nth, gpu::Shared, gpu::shared_bytes_for, gpu::store,
    gpu::Thread;
using gpu::emulator::settings;

namespace {

const std::vector<std::uint64_t> orders{0, 1, 2, 1234567};

std::string line_of(const std::string& mark) { return test::line_of(mark, "emulator/tensor_cores.cpp"); }

// Blocks of 64 packs go through two stages of shared memory, one copied while the other is used. The first warp copies
// all; every thread reads a pack of its neighbour in the other warp.
enum class Left { nothing, wait, barrier_behind_wait, barrier_before_copy, last_wait };
constexpr int threads_of_stages = 64, stage = threads_of_stages * 8;
auto two_stages(const Tensor& of, const Tensor& to, Left out) {
  return planted<threads_of_stages>([=, x = global<const Float16>(of), y = global<float>(to)](Thread& t) {
    constexpr int threads = threads_of_stages, blocks = 3;
    const Shared<Float16> memory = t.shared<Float16>(2 * stage);
    const auto fetch = [&](int block) {
      for (int pack = t.index(); pack < threads && t.warp() == 0; pack += 32)
        cp_async(t, memory, block % 2 * stage + pack * 8, x, block * stage + pack * 8);  // line: copy
      cp_async_commit(t);
    };
    fetch(0);
    for (int block = 0; block < blocks; ++block) {
      if (block > 0 && out != Left::barrier_before_copy) t.sync();
      const bool more = block + 1 < blocks;
      if (more) fetch(block + 1);
      if (!more && out == Left::last_wait) return;
      if (more && out != Left::wait) cp_async_wait<1>(t);
      if (!more) cp_async_wait<0>(t);
      if (out != Left::barrier_behind_wait) t.sync();
      const int neighbour = (t.index() + 32) % threads;
      store(y, block * threads + t.index(), load<float>(memory, block % 2 * stage + neighbour * 8));  // line: use
    }
  });
}

// Copies and loads that do not begin at a multiple of 16 bytes.
auto misaligned(const Tensor& of, int to, int from, int matrix) {
  return planted<32>([=, x = global<const Float16>(of)](Thread& t) {
    const Shared<Float16> memory = t.shared<Float16>(34 * 8);
    cp_async(t, memory, t.lane() * 8 + to, x, t.lane() * 8 + from);  // line: misaligned copy
    cp_async_commit(t);
    cp_async_wait<0>(t);
    t.sync_warp();
    if (matrix > 0)
      static_cast<void>(ldmatrix(t, memory, t.lane() * 8 - t.lane() / 31 * matrix));  // line: misaligned load
  });
}

auto mixed_warp(int kind) {
  return planted<32>([=](Thread& t) {
    const Shared<Float16> memory = t.shared<Float16>(32 * 8);
    for (int k = 0; k < 8; ++k) store(memory, t.lane() * 8 + k, gpu::Number<float>(1.0f));
    t.sync_warp();
    FragmentC<Float16> c;
    const FragmentA<Float16> a;
    if (kind == 0 && t.lane() < 16) gpu::mma<Float16>(t, c, a, 0, 0);                 // line: mma of half
    if (kind == 1 && t.lane() != 3) static_cast<void>(ldmatrix(t, memory, 0));        // line: straight
    if (kind == 1 && t.lane() == 3) static_cast<void>(ldmatrix_trans(t, memory, 0));  // line: transposed
    if (kind == 2) t.lane() == 9 ? t.sync_warp() : gpu::mma<Float16>(t, c, a, 0, 0);  // line: mma of most
  });
}

// The thread's own copy is touched, and its source is changed before the thread waits.
auto touches(const Tensor& of, const Tensor& to, int kind) {
  return planted<32>([=, x = global<float>(of), y = global<float>(to)](Thread& t) {
    const Shared<float> memory = t.shared<float>(32 * 4);
    cp_async(t, memory, t.lane() * 4, x, t.lane() * 4);  // line: own copy
    cp_async_commit(t);
    if (kind == 0) memory[t.lane() * 4 + 1] = 1.0f;                       // line: own write
    if (kind == 1) static_cast<void>(ldmatrix(t, memory, t.lane() * 4));  // line: own load
    if (kind == 2) cp_async(t, memory, t.lane() * 4, x, t.lane() * 4);    // line: own second copy
    if (kind == 3) x[t.lane() * 4] = -1.0f;
    cp_async_wait<0>(t);
    store(y, t.lane(), load<float>(memory, t.lane() * 4));
  });
}

// Rows of matrices that are `apart` packs apart.
auto far_rows(int apart) {
  return planted<32>([=](Thread& t) {
    const Shared<Float16> memory = t.shared<Float16>(512);
    for (int k = t.lane(); k < 512; k += 32) store(memory, k, gpu::Number<float>(0.0f));
    t.sync_warp();
    static_cast<void>(ldmatrix(t, memory, t.lane() % 8 * apart * 8));  // line: far rows
  });
}

}  // namespace

TEST_CASE("emulator: copies ahead in two stages, and each wait and barrier that may be forgotten") {
  const Tensor x = on_gpu(Tensor::arange(3 * stage, DType::f16));
  const auto said = [&](Left out, std::uint64_t order) {
    const Tensor y = Tensor::empty({192}, DType::f32, Device::cuda(0));
    const std::string text =
        report(two_stages(x, y, out), {.shared_bytes = shared_bytes_for<Float16>(2 * stage)}, order);
    if (text.empty())
      for (std::size_t i = 0; i < 192; ++i)
        CHECK(y.to_vector()[i] == static_cast<double>(i / 64 * 512 + (i + 32) % 64 * 8));
    return text;
  };
  for (const std::uint64_t order : orders) {
    CAPTURE(order);
    CHECK(said(Left::nothing, order) == "");
    says(said(Left::wait, order),
        {"planted: " + line_of("use"), "reads 2 bytes of shared memory that the copy at " + line_of("copy"),
            " is still bringing; cp_async_wait of the thread that asked for it is required"});
    const std::string unseen = said(Left::barrier_behind_wait, order);
    says(unseen, {"planted: " + line_of("use")});
    if (order == 0)
      says(unseen,
          {"reads 2 bytes of shared memory that thread 0 wrote at " + line_of("copy") + ", with no barrier between"});
    const std::string early = said(Left::barrier_before_copy, order);  // reported at the later of the two
    says(early, {"planted: ", line_of("copy"), line_of("use")});
    if (order == 1)
      says(early, {line_of("copy") + ": thread 31 of block 0: writes 2 bytes of shared memory that thread 63 read at " +
                      line_of("use") + ", with no barrier between"});
    says(said(Left::last_wait, order),
        {"planted: " + line_of("copy"), "ends while 2 of its copies are in flight", "cp_async_wait<0> is required"});
  }
}

TEST_CASE("emulator: what is in flight may not be touched, not even by its own thread") {
  for (const std::uint64_t order : orders) {
    const auto said = [&](int kind) {
      const Tensor x = on_gpu(Tensor::arange(128, DType::f32)), y = Tensor::empty({32}, DType::f32, Device::cuda(0));
      const std::string text = report(touches(x, y, kind), {.shared_bytes = shared_bytes_for<float>(128)}, order);
      return text.empty() ? to_text("lane 1 has ", y.to_vector()[1]) : text;
    };
    const std::string flies = "4 bytes of shared memory that the copy at " + line_of("own copy") + " is still bringing";
    says(said(0), {"planted: " + line_of("own write"), "writes " + flies});
    says(said(1), {"planted: " + line_of("own load"), "reads " + flies});
    says(said(2), {"planted: " + line_of("own second copy"), "writes " + flies});
    says(said(3), {"planted: " + line_of("own copy"), "the source of this copy has changed before its cp_async_wait"});
    CHECK(said(4) == "lane 1 has 4");
  }
}

TEST_CASE("emulator: misaligned copies and fragment loads, and a warp that meets with different instructions") {
  const Tensor x = on_gpu(Tensor::arange(34 * 8, DType::f16));
  const auto said = [&](int to, int from, int matrix) {
    return report(misaligned(x, to, from, matrix), {.shared_bytes = shared_bytes_for<Float16>(34 * 8)}, 0);
  };
  CHECK(said(0, 0, 0) == "");
  CHECK(said(8, 16, 0) == "");
  CHECK(said(0, 0, 8) == "");
  const std::string beside = "an access of 16 bytes at an address that is 4 bytes past a multiple of them";
  says(said(2, 0, 0), {"planted: " + line_of("misaligned copy"), beside});
  says(said(0, 2, 0), {"planted: " + line_of("misaligned copy"), beside});
  says(said(0, 0, 6), {"planted: " + line_of("misaligned load"), "thread 31", beside});
  for (const std::uint64_t order : orders) {
    const auto mixed = [&](int kind) {
      return report(mixed_warp(kind), {.shared_bytes = shared_bytes_for<Float16>(256)}, order);
    };
    says(mixed(0), {"planted: " + line_of("mma of half"), "wait in mma", "ended without it"});
    says(mixed(1), {"planted: ", line_of("straight"), line_of("transposed"), "ldmatrix_trans",
                       "all lanes of a warp are required in the same one"});
    says(mixed(2), {"planted: " + line_of("mma of most"), "mma", "sync_warp()"});
    CHECK(mixed(3) == "");
  }
}

TEST_CASE("emulator: tensor cores and copies ahead are counted, and fragment loads take the turns of their banks") {
  const With costs(settings().costs, true);
  const auto counted = [](const char* kernel, const auto& run) {
    gpu::emulator::reset_counters();
    run();
    return gpu::emulator::counters().at(kernel);
  };
  const auto of_product = [&](DType operand, index_t depth) {
    const auto some = [](const Shape& shape) { return on_gpu(Tensor::ones(shape)); };
    const Tensor a = some({16, depth}), b = some({depth, 8}), c = some({16, 8});
    return counted("product by maps", [&] { static_cast<void>(product_by_maps(operand, a, b, c)); });
  };
  CHECK(of_product(DType::bf16, 16).mma_16 == 1);
  CHECK(of_product(DType::f32, 8).mma_8 == 1);
  const auto held = counted("held matrices", [] {
    static_cast<void>(held_matrices(on_gpu(Tensor::arange(256, DType::f16)).view({32, 8}, {8, 1})));
  });
  CHECK(held.fragment_loads == 2);
  CHECK(held.copied_ahead == 512);
  for (const int apart : {1, 2, 8}) {  // a row of 16 bytes is in four banks
    const auto loads = counted(
        "planted", [&] { gpu::launch_kernel(far_rows(apart), {.shared_bytes = shared_bytes_for<Float16>(512)}); });
    CHECK(loads.most_ways == apart);
    if (apart > 1) CHECK(gpu::emulator::worst_place(loads.worst_wavefronts) == "worst at " + line_of("far rows"));
  }
  const std::string table = gpu::emulator::counters_table();
  says(table, {"mma k16", "mma k8", "frag. loads", "ahead"});
}
