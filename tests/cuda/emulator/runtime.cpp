// Reports of the emulator about index-style ops, products, graphs and freed memory; work that is counted and not done;
// and the program with an emulated GPU.
#include <cmath>

#include "cuda/emulator/arena.h"
#include "cuda/emulator/counters.h"
#include "cuda/emulator/run.h"
#include "cuda/library/blas.h"
#include "cuda/vocabulary/launch_kernel.h"
#include "nn/training/training.h"
#include "nn/transformer.h"
#include "tensor/device/allocator.h"
#include "tensor/device/device_runtime.h"
#include "tensor/launch.h"
#include "tests/cuda/emulator/says.h"
#include "tests/support/device.h"

using namespace whence;
using namespace whence::test;
using gpu::Global, gpu::global, gpu::launch_kernel, gpu::load, gpu::Number, gpu::store, gpu::Thread;
using gpu::emulator::settings;

namespace {

const Device device = Device::cuda(0);

Tensor zeros(index_t count, DType dtype = DType::f32) { return Tensor::zeros({count}, dtype, device); }

auto shifts(const float* x, float* y, index_t by) {
  return [=](index_t i) { y[i + by] = x[i]; };
}
auto is_number(const float* x, bool* y, index_t by) {
  return [=](index_t i) { y[i] = x[i + by] == x[i + by]; };
}
auto fills(float* y, float value) {
  return [=](index_t i) { y[i] = value; };
}

// The work of the third training step on the device, when everything that is made once exists.
struct Asked {
  std::map<std::string, gpu::emulator::Counters> by_kernel;
  DeviceTraffic traffic;
};
Asked asked_in_a_step(bool dry, bool recorded) {
  const With chosen(settings().dry, dry);
  TransformerOptions options;
  options.vocabulary = 11, options.dim = 16, options.heads = 2, options.layers = 2, options.length = 12;
  options.scheme = "kerple";
  Transformer model(options);
  model.initialise(0);
  model.to(device);
  MixedPrecision precision(model, DType::bf16, {});
  const Tensor tokens = Tensor::zeros({3, 12}, DType::i64);
  const TrainingBatch batch{{tokens, tokens}, 36, 36};
  TrainingStep step(precision, [&](std::int64_t) { return batch; }, token_loss(model, 0), {.recorded = recorded});
  for (std::int64_t n = 1; n <= 2; ++n) (void)step.take(n, 1e-3);
  gpu::emulator::reset_counters();
  const DeviceTraffic before = runtime_of(device).traffic();
  CHECK((step.take(3, 1e-3).loss == 0) == dry);
  const DeviceTraffic after = runtime_of(device).traffic();
  return {
      gpu::emulator::counters(), {after.launches - before.launches, after.bytes_to_device - before.bytes_to_device}};
}

std::size_t resident_bytes() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// Returns the report about a launch that touches `count` indices.
template <class F> std::string report_of(index_t count, const F& f) {
  return error_text([&] { launch("planted", device, count, f); });
}

const BlasMatrix matrix_of(const Tensor& x, index_t leading) { return {x.bytes(), false, leading, 0}; }

}  // namespace

TEST_CASE("emulator: what an index writes behind its tensor is reported, and the tensor before it is watched too") {
  const Tensor x = zeros(1000);
  const Tensor y = zeros(1000), z = zeros(1000);
  in_every_order([&] {
    CHECK(report_of(999, shifts(x.data<float>(), y.data<float>(), 1)) == "");
    says(report_of(1000, shifts(x.data<float>(), y.data<float>(), 1)),
        {"planted: writes 0 bytes after a tensor of 4000 bytes"});
    says(report_of(10, shifts(x.data<float>(), y.data<float>() + 1000, 50)),
        {"planted: writes 200 bytes after a tensor of 4000 bytes"});
    says(report_of(10, shifts(x.data<float>(), z.data<float>(), -3)),
        {"planted: writes 12 bytes before a tensor of 4000 bytes"});
  });
}

TEST_CASE("emulator: what an index reads next to its tensor is reported, though it makes nothing of it") {
  const Tensor x = zeros(1000), y = zeros(1000), z = zeros(1000, DType::boolean);
  in_every_order([&] {
    CHECK(report_of(1000, is_number(x.data<float>(), z.data<bool>(), 0)) == "");
    says(report_of(900, is_number(x.data<float>(), z.data<bool>(), 101)),
        {"planted: what it writes 899 bytes into 1000 bytes depends on the order of its indices, or on bytes next to"});
    says(report_of(900, is_number(y.data<float>(), z.data<bool>(), -1)),
        {"planted: what it writes 0 bytes into 1000 bytes depends on"});
  });
}

TEST_CASE("emulator: indices that touch one number are reported") {
  const Tensor x = zeros(64);
  float* const y = x.data<float>();
  const auto halves = [=](index_t i) { y[i / 2] = static_cast<float>(i); };
  const auto follows = [=](index_t i) { y[i + 1] = y[i] + 1; };
  in_every_order([&] {
    says(report_of(64, halves), {"planted: what it writes ", "depends on the order of its indices"});
    says(report_of(63, follows), {"planted: what it writes ", "depends on the order of its indices"});
    CHECK(report_of(64, fills(y, 3)) == "");
  });
}

TEST_CASE("emulator: memory is written and copied only while a tensor holds it") {
  float* stale = nullptr;
  { stale = zeros(777).data<float>(); }
  launch("planted", device, 10, fills(stale + 5, 1));
  says(error_text([] { (void)zeros(777); }), {"allocate", "was written while it was free, 20 bytes from its start"});
  CHECK(zeros(777).to_vector() == std::vector<double>(777, 0.0));
  std::vector<float> here(2000);
  const Tensor x = zeros(1000);
  says(error_text([&] { memory_of(device).source().copy_to_cpu(x.bytes(), here.data(), 4004); }),
      {"copy", "4004 bytes that are not all of one tensor on cuda:0"});
  says(error_text([&] { memory_of(device).source().copy_from_cpu(here.data(), x.bytes() + 8, 4000); }),
      {"copy", "4000 bytes that are not all of one tensor on cuda:0"});
}

TEST_CASE("emulator: products by the library's rules") {
  const Tensor a = zeros(6 * 8), b = zeros(8 * 4), out = zeros(6 * 4);
  const BlasProduct right{DType::f32, 6, 4, 8, matrix_of(a, 8), matrix_of(b, 4), out.bytes(), 1, 0, 1};
  const auto said = [&](const auto& change) {
    BlasProduct product = right;
    change(product);
    return error_text([&] { multiply(product); });
  };
  CHECK(said([](BlasProduct&) {}) == "");
  says(said([](BlasProduct& p) { p.a.leading = 7; }),
      {"matmul: a [6 8] has rows that begin 7 numbers apart; at least 8 is required"});
  says(said([](BlasProduct& p) { p.b.transposed = true; }), {"matmul: b [8 4] has rows that begin 4 numbers apart"});
  says(said([](BlasProduct& p) { p.a.leading = 9; }), {"matmul: a [6 8] is not all in memory of one tensor"});
  says(said([&](BlasProduct& p) { p.out = out.bytes() + 4; }), {"matmul: out [6 4] is not all in memory"});
  says(said([](BlasProduct& p) { p.leading = 5; }), {"matmul: out [6 4] is not all in memory of one tensor"});
  says(said([](BlasProduct& p) { p.leading = 3; }), {"matmul: out [6 4] has rows that begin 3 numbers apart"});

  const Tensor square = zeros(8 * 8), wide = zeros(6 * 8), sums = zeros(8);  // an epilogue's matrix has rows of 8
  const BlasProduct of_8{DType::f32, 6, 8, 8, matrix_of(a, 8), matrix_of(square, 8), wide.bytes(), 1, 0, 1};
  const auto said_of = [&](const BlasEpilogue& epilogue) {
    return error_text([&] { static_cast<void>(multiply_fused(of_8, epilogue)); });
  };
  CHECK(said_of({.row_sums = sums.bytes()}) == "");
  says(said_of({.row_sums = sums.bytes() + 16}), {"matmul: row_sums [1 6] is not all in memory of one tensor"});
}

TEST_CASE("emulator: a graph's pointers live as long as it does") {
  const Tensor y = zeros(500), kept = zeros(500);
  std::optional<Tensor> input = Tensor::ones({500}, DType::f32, device);
  const auto work = runtime_of(device).record([&] {
    const Tensor held = zeros(500);  // of the graph's own memory
    kernels(device).binary(functions::Add{}, *input, held, y);
  });
  work->replay();
  CHECK(y.to_vector() == std::vector<double>(500, 1.0));
  input.reset();
  says(error_text([&] { work->replay(); }), {"replay", "binary was recorded with memory that has been freed since"});

  // Numbers that a step leaves in memory it has freed are gone in the next one.
  const auto reads_freed = runtime_of(device).record([&] {
    float* stale = nullptr;
    {
      const Tensor temporary = Tensor::ones({500}, DType::f32, device);
      stale = temporary.data<float>();
    }
    launch("planted", device, 500, shifts(stale, kept.data<float>(), 0));
  });
  reads_freed->replay();
  CHECK(std::isnan(kept.to_vector()[7]));
}

TEST_CASE("emulator: the library of products is not set up while work is recorded") {
  const Tensor a = zeros(16), out = zeros(16);
  const BlasProduct product{DType::f32, 4, 4, 4, matrix_of(a, 4), matrix_of(a, 4), out.bytes(), 1, 0, 1};
  const With not_yet(gpu::emulator::products_are_set_up, false);
  says(error_text([&] { (void)runtime_of(device).record([&] { multiply(product); }); }),
      {"matmul", "the library of products is set up while work is being recorded; run the work once before"});
  multiply(product);
  CHECK(error_text([&] { (void)runtime_of(device).record([&] { multiply(product); }); }) == "");
}

TEST_CASE("emulator: a dry step is counted as one that computes") {
  const auto shape = [](const gpu::emulator::Counters& c) {
    return std::vector<std::uint64_t>{c.launches, c.blocks, c.threads, c.shared_bytes};
  };
  const auto work = [](const gpu::emulator::Counters& c) {
    return std::vector<std::uint64_t>{c.arithmetic, c.global_read, c.global_written};
  };
  for (const bool recorded : {false, true}) {
    CAPTURE(recorded);
    // The dry one second: tensors that are made once and kept, such as the record of wrong indices, have no numbers if
    // they are made dry.
    const Asked wet = asked_in_a_step(false, recorded), dry = asked_in_a_step(true, recorded);
    REQUIRE(dry.by_kernel.size() == wet.by_kernel.size());
    std::uint64_t launches = 0;
    for (const auto& each : dry.by_kernel) {
      const std::string kernel(each.first);
      CAPTURE(kernel);
      const bool copies = kernel.starts_with("copy from cpu") || kernel.starts_with("copy to cpu");
      CHECK(shape(each.second) == shape(wet.by_kernel.at(each.first)));
      if (copies || kernel.starts_with("matmul ")) CHECK(work(each.second) == work(wet.by_kernel.at(each.first)));
      if (!copies) launches += each.second.launches;
    }
    CHECK(dry.traffic.bytes_to_device > 0);
    CHECK(dry.traffic.bytes_to_device == dry.by_kernel.at("copy from cpu").global_written);
    CHECK(dry.traffic.bytes_to_device == wet.traffic.bytes_to_device);
    CHECK(dry.traffic.launches == wet.traffic.launches);
    CHECK((recorded ? dry.traffic.launches < launches / 2 : dry.traffic.launches == launches));  // a graph is one
  }
}

TEST_CASE("emulator: dry, device memory is not touched, and what is read from it is 0; it is as ever afterwards") {
  const index_t many = index_t{1} << 28;
  {
    const With dry(settings().dry, true);
    const std::size_t before = resident_bytes();
    const Tensor x = Tensor::full({many}, 3, DType::f32, device), y = Tensor::empty({many}, DType::f32, device);
    kernels(device).binary(functions::Add{}, x, x, y);
    CHECK(y.view({4}, {1}, many - 4).to_vector() == std::vector<double>(4, 0.0));
    CHECK(resident_bytes() < before + (std::size_t{64} << 20));
  }
  CHECK(zeros(777).to_vector() == std::vector<double>(777, 0.0));
  memory_of(device).release_cached();
}

TEST_CASE("emulator: train says once why its steps are not recorded, and nothing if they are") {
  const Scratch out("recorded");
  const auto notes_with = [&](const std::string& option) {
    const Outcome train = RunningProgram(
        words("train flip_flop --length 16 --dim 16 --layers 1 --heads 2 --batch 4 --test-sequences 8 --device cuda "
              "--precision bf16 --steps 4 --out " +
              out / (option.empty() ? "graph" : "alone") + option),
        program_with_gpu())
                              .finish_within(120);
    CHECK_MESSAGE(train.code == 0, train.err);
    return count(train.err, "not recorded");
  };
  CHECK(notes_with("") == 0);
  CHECK(notes_with(" --check-finite") == 1);
}

TEST_CASE("emulator: gradcheck --against-cpu has a row for every dtype, and all agree") {
  const Outcome all = RunningProgram(
      words("gradcheck softmax linear_gelu_linear --against-cpu --device cuda --quiet"), program_with_gpu())
                          .finish_within(300);
  CHECK_MESSAGE(all.code == 0, all.out, all.err);
  CHECK(has(all.out, "; 0 failed"));
  for (const char* row : {"softmax ", "linear_gelu_linear "}) CHECK(count(all.out, "\n" + std::string(row)) == 4);
}
