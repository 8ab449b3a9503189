// Reports of the emulator about index-style ops, products, graphs, freed memory and late errors; work that is counted
// and not done; and the programs that record a step, with an emulated GPU.
#include <unistd.h>
#include <cmath>
#include <fstream>
#include <optional>

#include "autograd/ops.h"
#include "cuda/emulator/arena.h"
#include "cuda/emulator/counters.h"
#include "cuda/emulator/late_line.h"
#include "cuda/emulator/run.h"
#include "cuda/emulator/settings.h"
#include "cuda/library/blas.h"
#include "cuda/runtime/staging.h"
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

struct Shifts {  // y[i + by] = x[i]
  const float* x;
  float* y;
  index_t by;
  void operator()(index_t i) const { y[i + by] = x[i]; }
};
struct IsNumber {
  const float* x;
  bool* y;
  index_t by;
  void operator()(index_t i) const { y[i] = x[i + by] == x[i + by]; }
};
struct Halves {  // two indices write one number
  float* y;
  void operator()(index_t i) const { y[i / 2] = static_cast<float>(i); }
};
struct Follows {  // an index reads what another writes
  float* y;
  void operator()(index_t i) const { y[i + 1] = y[i] + 1; }
};
struct Fills {
  float* y;
  float value;
  void operator()(index_t i) const { y[i] = value; }
};

struct Outside {
  static constexpr const char* name = "outside";
  static constexpr int threads = 32;
  Global<float> x;
  void operator()(Thread& t) const { store(x, t.index(), Number<float>(1.0f)); }
};

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
  TrainingStep step(
      precision,
      [&](std::int64_t) {
        return TrainingBatch{{tokens, tokens}, 36, 36};
      },
      [&](const TrainingBatch& batch, std::int64_t) {
        return cross_entropy_sum(model(batch.tensors[0]), batch.tensors[1]);
      },
      {.recorded = recorded});
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
template <class F> std::string planted(index_t count, const F& f) {
  return error_text([&] { launch("planted", device, count, f); });
}

const BlasMatrix matrix_of(const Tensor& x, index_t leading) { return {x.bytes(), false, leading, 0}; }

}  // namespace

TEST_CASE("emulator: what an index writes behind its tensor is reported, and the tensor before it is watched too") {
  const Tensor x = zeros(1000);
  const Tensor y = zeros(1000), z = zeros(1000);
  in_every_order([&] {
    CHECK(planted(999, Shifts{x.data<float>(), y.data<float>(), 1}) == "");
    says(planted(1000, Shifts{x.data<float>(), y.data<float>(), 1}),
        {"planted: writes 0 bytes after a tensor of 4000 bytes"});
    says(planted(10, Shifts{x.data<float>(), y.data<float>() + 1000, 50}),
        {"planted: writes 200 bytes after a tensor of 4000 bytes"});
    says(planted(10, Shifts{x.data<float>(), z.data<float>(), -3}),
        {"planted: writes 12 bytes before a tensor of 4000 bytes"});
  });
}

TEST_CASE("emulator: what an index reads next to its tensor is reported, though it makes nothing of it") {
  const Tensor x = zeros(1000), y = zeros(1000), z = zeros(1000, DType::boolean);
  in_every_order([&] {
    CHECK(planted(1000, IsNumber{x.data<float>(), z.data<bool>(), 0}) == "");
    says(planted(900, IsNumber{x.data<float>(), z.data<bool>(), 101}),
        {"planted: what it writes 899 bytes into 1000 bytes depends on bytes next to its tensors: index 899 writes "
         "it"});
    says(planted(900, IsNumber{y.data<float>(), z.data<bool>(), -1}),
        {"planted: what it writes 0 bytes into 1000 bytes depends on bytes next to its tensors: index 0"});
  });
}

TEST_CASE("emulator: indices that touch one number are reported") {
  const Tensor y = zeros(64);
  in_every_order([&] {
    says(planted(64, Halves{y.data<float>()}),
        {"planted: what it writes ", "depends on the order of its indices: index ", " and ", " write it; "});
    says(planted(63, Follows{y.data<float>()}),
        {"planted: what it writes ", "depends on the order of its indices: index ", " writes it"});
    CHECK(planted(64, Fills{y.data<float>(), 3}) == "");
  });
}

TEST_CASE("emulator: memory is written and copied only while a tensor holds it") {
  float* stale = nullptr;
  { stale = zeros(777).data<float>(); }
  launch("planted", device, 10, Fills{stale + 5, 1});
  says(error_text([] { (void)zeros(777); }), {"allocate", "was written while it was free, 20 bytes from its start"});
  CHECK(zeros(777).to_vector() == std::vector<double>(777, 0.0));
  std::vector<float> here(2000);
  const Tensor x = zeros(1000);
  says(error_text([&] { memory_of(device).source().copy_to_cpu(x.bytes(), here.data(), 4004); }),
      {"copy", "4004 bytes that are not all of one tensor on cuda:0"});
  says(error_text([&] { memory_of(device).source().copy_from_cpu(here.data(), x.bytes() + 8, 4000); }),
      {"copy", "4000 bytes that are not all of one tensor on cuda:0"});
}

TEST_CASE("emulator: products by the library's rules, and shapes that it has no kernel for") {
  const Tensor a = zeros(6 * 8), b = zeros(8 * 4), out = zeros(6 * 4), bias = zeros(4);
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
  says(said([&](BlasProduct& p) { p.a.first = a.bytes() + 2; }), {"matmul: a [6 8] begins inside a number"});
  says(said([](BlasProduct& p) { p.m = index_t{1} << 31; }), {"matmul: [2147483648 8] [8 4] given; extents up to"});

  says(said([](BlasProduct& p) { p.leading = 5; }), {"matmul: out [6 4] is not all in memory of one tensor"});
  says(said([](BlasProduct& p) { p.leading = 3; }), {"matmul: out [6 4] has rows that begin 3 numbers apart"});

  const Tensor square = zeros(8 * 8), wide = zeros(6 * 8), before = zeros(6 * 8),
               sums = zeros(8);  // an epilogue's matrix has rows of 8
  const BlasProduct of_8{DType::f32, 6, 8, 8, matrix_of(a, 8), matrix_of(square, 8), wide.bytes(), 1, 0, 1};
  const auto said_of = [&](const BlasEpilogue& epilogue) {
    return error_text([&] { static_cast<void>(multiply_fused(of_8, epilogue)); });
  };
  CHECK(said_of({.row_sums = sums.bytes()}) == "");
  says(said_of({.bias = sums.bytes(), .gelu = true, .before_gelu = before.bytes()}),
      {"matmul: GELU with a product of f32 given; f16 or bf16 required; the library approximates it"});
  says(said_of({.row_sums = sums.bytes() + 16}), {"matmul: row_sums [1 6] is not all in memory of one tensor"});
  says(said_of({.bias = sums.bytes(), .row_sums = sums.bytes()}), {"matmul: an epilogue of several kinds given"});

  const BlasEpilogue epilogue{.bias = bias.bytes()};
  int done = 0;
  for (std::uint64_t seed = 0; seed < 64; ++seed) {
    const With refusing(settings().refusals, seed);
    const bool fused = multiply_fused(right, epilogue);
    CHECK(fused == multiply_fused(right, epilogue));
    if (seed == 0) CHECK(fused);
    done += fused;
  }
  CHECK(done > 16);
  CHECK(done < 48);
}

TEST_CASE("emulator: a graph's pointers live as long as it does, and nothing is taken while it is replayed") {
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
    launch("planted", device, 500, Shifts{stale, kept.data<float>(), 0});
  });
  reads_freed->replay();
  CHECK(std::isnan(kept.to_vector()[7]));

  const auto allocates =
      runtime_of(device).record([&] { gpu::emulator::submit("planted", {}, [] { (void)zeros(10); }); });
  says(error_text([&] { allocates->replay(); }), {"allocate", "asked for while a graph is replayed"});
  CHECK(zeros(10).to_vector() == std::vector<double>(10, 0.0));
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

TEST_CASE("emulator: a late error is reported by a later call, once") {
  const Tensor x = zeros(16), y = zeros(500);
  for (const std::uint64_t seed : std::initializer_list<std::uint64_t>{1, 2, 3, 4}) {
    CAPTURE(seed);
    const With comes_late(settings().late, seed);
    const auto plant = [&] { launch_kernel(Outside{global<float>(x)}, {}); };
    CHECK_NOTHROW(plant());
    says(error_text([] { synchronise(device); }), {"outside: runtime.cpp:", "writes element "});
    CHECK_NOTHROW(synchronise(device));
    CHECK_NOTHROW(plant());
    says(error_text([&] { (void)y.to_vector(); }), {"outside: runtime.cpp:", "writes element "});
    CHECK_NOTHROW(plant());
    std::string told;
    for (int call = 0; call < 3 && told.empty(); ++call) told = error_text([&] { kernels(device).fill(y, call); });
    says(told, {"outside: runtime.cpp:", "writes element "});
    kernels(device).fill(y, 5);
    CHECK(y.to_vector() == std::vector<double>(500, 5.0));
  }
}

namespace {

// A line that does not wait.
struct Hasty : gpu::emulator::LateLine {
  static void wait(const Mark&) {}
};

}  // namespace

TEST_CASE("emulator: numbers that arrive late are those that were sent; a buffer that is filled too early is seen") {
  const With comes_late(settings().late, 4);
  const auto numbers = static_cast<index_t>(gpu::staging_bytes / sizeof(float)) * 7 / 2;  // three buffers and a half
  const Tensor from = raw::cast(Tensor::arange(numbers), DType::f32), there = raw::to_device(from, device);
  CHECK(same_bits(raw::to_device(there, Device::cpu()), from));
  const Tensor hasty = zeros(numbers);
  static auto& staging = *new gpu::Staging<Hasty>;  // pinned memory is never given back
  staging.send(reinterpret_cast<const char*>(from.bytes()), reinterpret_cast<char*>(hasty.bytes()),
      static_cast<std::size_t>(numbers) * sizeof(float));
  CHECK(raw::to_device(hasty, Device::cpu()).at({0}) == static_cast<double>(numbers) / 7 * 4);  // of the third buffer
}

TEST_CASE("emulator: a dry step is counted as one that computes") {
  const auto shape = [](const gpu::emulator::Counters& c) {
    return std::vector<std::uint64_t>{c.launches, c.shapes, c.blocks, c.threads, c.indices, c.shared_bytes};
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

TEST_CASE("emulator: train records its steps or says once why not, to the bits of unrecorded steps, also resumed") {
  const Scratch out("recorded");
  const auto train = [&](const std::string& options) {
    const Outcome outcome = RunningProgram(words("train " + options), program_with_gpu()).finish_within(120);
    CHECK_MESSAGE(outcome.code == 0, outcome.err);
    return outcome;
  };
  const std::string run =
      "flip_flop --length 16 --dim 16 --layers 1 --heads 2 --batch 4 --test-sequences 8 --device "
      "cuda --precision bf16 --steps 6 --save-every 2 --keep-checkpoints 0 --accumulate 3 --clip "
      "0.1 --validate-every 3 --out ";
  const std::string graph = out / "graph", alone = out / "alone";
  const Outcome recorded = train(run + graph);
  CHECK(has(recorded.out, ", executor tiled\n"));
  CHECK(!has(recorded.err, "not recorded"));
  train(run + alone + " --check-finite");
  const std::string weights = text_of(alone + "/weights.safetensors");
  CHECK(text_of(graph + "/weights.safetensors") == weights);
  for (const std::string more : {"", " --check-finite"}) {
    for (const char* step : {"4", "6"}) std::filesystem::remove_all(graph + "/checkpoints/step-00000" + step);
    train("--resume --quiet --device cuda --out " + graph + more);
    CHECK(text_of(graph + "/weights.safetensors") == weights);
  }
  const std::string composed = out / "composed";
  CHECK(has(train(run + composed + " --scheme fire").out, ", executor reference\n"));
  CHECK(has(text_of(composed + "/run.json"),
      "\"executor\": \"reference (not tiled: a piecewise term outside a head mix given, "));
  const Outcome refused = train(run + out / "dropout" + " --dropout 0.1");
  CHECK_MESSAGE(
      count(refused.err, "steps are not recorded as a graph, as dropout draws anew at each step\n") == 1, refused.err);
}

TEST_CASE("emulator: bench step measures unrecorded steps and one graph") {
  for (const std::string recorded : {"", " --cuda-graph"}) {
    const Outcome step = RunningProgram(words("bench step --models toy --schemes 'none, cope(p_max=8)' --repetitions 1 "
                                              "--device cuda --precision bf16 --json" +
                                              recorded),
        program_with_gpu())
                             .finish_within(120);
    CHECK_MESSAGE(step.code == 0, step.err);
    CHECK(has(step.out, "\"both_ms\""));
    CHECK(has(step.out, "\"bytes_to_device\""));
    CHECK(has(step.out, recorded.empty() ? "\"form\":\"steps\"" : "\"form\":\"graph\""));
  }
}

TEST_CASE("emulator: gradcheck --against-cpu has a row for every op and dtype, and all agree") {
  const Outcome all =
      RunningProgram(words("gradcheck all --device cuda --against-cpu --quiet"), program_with_gpu()).finish_within(300);
  CHECK_MESSAGE(all.code == 0, all.out, all.err);
  CHECK(all.err.empty());
  CHECK(has(all.out, "; 0 failed"));
  for (const char* row : {"softmax ", "lerp_at ", "linear_gelu_linear ", "divide "})
    CHECK_MESSAGE(count(all.out, "\n" + std::string(row)) == 4, row);
  const Outcome on_cpu = RunningProgram(words("gradcheck softmax --against-cpu"), program_with_gpu()).finish_within(60);
  CHECK(on_cpu.code == 2);
  CHECK_MESSAGE(has(on_cpu.err, "--against-cpu: given with the CPU"), on_cpu.err);
}
