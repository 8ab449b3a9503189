// Memory accesses of kernels, in sectors and in passes of the banks: planted kernels with known costs, and every kernel
// of cuda/kernels/ against cuda/memory_budgets.txt. The counts need no GPU, and are the same in every order.
#include <set>

#include "cuda/emulator/counters.h"
#include "cuda/vocabulary/packs.h"
#include "tensor/tiled_call.h"
#include "tests/cuda/emulator/says.h"
#include "tests/cuda/walk.h"

using namespace whence;
using namespace whence::test;
using gpu::Global, gpu::global, gpu::launch_kernel, gpu::load, gpu::Number, gpu::Shared, gpu::shared_bytes_for,
    gpu::store, gpu::Thread;
using gpu::emulator::Counters, gpu::emulator::settings;

namespace {

const Device device = Device::cuda(0);

double ratio(std::uint64_t a, std::uint64_t b) { return b == 0 ? 1 : static_cast<double>(a) / static_cast<double>(b); }

// ---- Planted kernels, of 32 threads.

// Lane k reads element offset + k stride.
auto walks(const Tensor& of, index_t stride, index_t offset) {
  return planted<32>(
      [=, x = global<float>(of)](Thread& t) { static_cast<void>(load<float>(x, offset + t.lane() * stride)); });
}

auto walks_in_packs(const Tensor& of) {
  return planted<32>([x = global<float>(of)](Thread& t) { static_cast<void>(gpu::load_pack<4>(x, t.lane() * 4)); });
}

// Each lane writes 16 neighbouring bytes: in one access, or number by number.
auto writes(const Tensor& to, bool in_parts) {
  return planted<32>([=, y = global<Float16>(to)](Thread& t) {
    if (!in_parts) return store_pack<8>(y, t.lane() * 8, gpu::Pack<Float16, 8>{});
    for (int n = 0; n < 8; ++n) y[t.lane() * 8 + n] = Float16{};
  });
}

// Even lanes read once more than odd ones, in every iteration of a loop.
auto parts(const Tensor& of) {
  return planted<32>([x = global<float>(of)](Thread& t) {
    for (index_t turn = 0; turn < 3; ++turn) {
      if (t.lane() % 2 == 0) static_cast<void>(load<float>(x, turn * 32 + t.lane()));
      static_cast<void>(load<float>(x, turn * 32 + t.lane()));
    }
  });
}

// A table of 32 columns that is written by rows and read by columns: every lane accesses the same bank, unless
// `padding` separates the rows.
auto turned(const Tensor& to, int padding) {
  return planted<32>([=, y = global<float>(to)](Thread& t) {
    const Shared<float> table = t.shared<float>(32 * (32 + padding));
    for (int row = 0; row < 32; ++row) store(table, row * (32 + padding) + t.lane(), Number<float>(1.0f));
    t.sync_warp();
    Number<float> sum = load<float>(table, 0);  // the same word for all
    for (int column = 0; column < 32; ++column) sum += load<float>(table, t.lane() * (32 + padding) + column);
    store(y, t.lane(), sum);
  });
}

// The names that kernels give themselves.
std::set<std::string> names_of_kernels() {
  std::set<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(source_folder() + "/cuda/kernels"))
    for (const auto& found : all_matches(text_of(file.path()), R"(static constexpr const char\* name = "([^"]*)\")"))
      names.insert(found[1]);
  return names;
}

struct Budget {
  double sectors;
  std::uint64_t ways;
};
std::map<std::string, Budget> budgets() {
  std::ifstream file(source_folder() + "/cuda/memory_budgets.txt");
  std::map<std::string, Budget> all;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    Budget budget{};
    std::string name;
    if (!(words >> budget.sectors >> budget.ways) || !std::getline(words >> std::ws, name))
      fail("memory_budgets.txt", "'", line, "' given; 'SECTORS WAYS KERNEL' required");
    all[name] = budget;
  }
  return all;
}

std::string over(const std::string& name, const Counters& counted, const Budget& budget) {
  using gpu::emulator::worst_place;
  std::string text;
  const double sectors = std::round(100 * ratio(counted.sectors, counted.least_sectors)) / 100;
  if (sectors > budget.sectors)
    text += to_text(name, ": ", sectors, " times the least sectors, ", worst_place(counted.worst_sectors), "; ",
        budget.sectors, " allowed\n");
  if (counted.most_ways > budget.ways)
    text += to_text(name, ": ", counted.most_ways, " words of one bank for one request, ",
        worst_place(counted.worst_wavefronts), "; ", budget.ways, " allowed\n");
  if (counted.not_noted > 0) text += to_text(name, ": ", counted.not_noted, " accesses were not counted\n");
  return text;
}

}  // namespace

TEST_CASE("emulator: sectors of planted kernels") {
  const With counting(settings().costs, true);
  gpu::emulator::reset_counters();
  const Tensor x = Tensor::zeros({2048}, DType::f32, device);
  const auto counted = [&](const auto& body) {
    gpu::emulator::reset_counters();
    launch_kernel(body, {});
    return gpu::emulator::counters().begin()->second;
  };
  struct Expected {
    index_t stride, offset;
    std::uint64_t sectors, least;
  };
  for (const Expected& each : std::vector<Expected>{
           {1, 0, 4, 4}, {1, 3, 5, 4}, {2, 0, 8, 4}, {8, 0, 32, 4}, {33, 0, 32, 4}, {0, 5, 1, 1}, {-1, 31, 4, 4}}) {
    CAPTURE(each.stride);
    const Counters c = counted(walks(x, each.stride, each.offset));
    CHECK(c.global_requests == 1);
    CHECK(c.sectors == each.sectors);
    CHECK(c.least_sectors == each.least);
  }
  const Counters packs = counted(walks_in_packs(x));
  CHECK(packs.global_requests == 1);
  CHECK(packs.sectors == 16);
  CHECK(packs.sectors_written == 0);
  const Tensor y = Tensor::zeros({256}, DType::f16, device);
  for (const bool in_parts : {false, true}) {
    const Counters c = counted(writes(y, in_parts));
    CHECK(c.global_written == 512);
    CHECK(c.sectors_written == (in_parts ? 128 : 16));
  }
  in_every_order([&] {
    const Counters of_parts = counted(parts(x));
    CHECK(of_parts.global_requests == 6);
    CHECK(of_parts.sectors == 3 * 4 + 3 * 4);
    CHECK(of_parts.least_sectors == 3 * 4 + 3 * 2);
  });
  const Counters far = counted(walks(x, 33, 0));
  CHECK(over("walks", far, {4, 1}).find("walks: 8 times the least sectors, worst at costs.cpp:") == 0);
  CHECK(over("walks", far, {8, 1}).empty());
}

TEST_CASE("emulator: conflicts of banks in planted kernels") {
  const With counting(settings().costs, true);
  gpu::emulator::reset_counters();
  const Tensor y = Tensor::empty({32}, DType::f32, device);
  in_every_order([&] {
    for (const int padding : {0, 1, 2}) {
      CAPTURE(padding);
      gpu::emulator::reset_counters();
      launch_kernel(
          turned(y, padding), {.shared_bytes = shared_bytes_for<float>(static_cast<std::size_t>(32 * (32 + padding)))});
      const Counters c = gpu::emulator::counters().at("planted");
      const std::uint64_t ways = padding == 0 ? 32 : static_cast<std::uint64_t>(padding);
      CHECK(c.shared_requests == 32 + 1 + 32);
      CHECK(c.least_wavefronts == 32 + 1 + 32);
      CHECK(c.wavefronts == 32 + 1 + 32 * ways);
      CHECK(c.most_ways == ways);
      CHECK(over("turned", c, {1, 1}).empty() == (padding == 1));
    }
  });
}

TEST_CASE("emulator: pairs of a head mix fill the sectors that a warp writes at once") {
  const With counting(settings().costs, true);
  const With shared(settings().shared, std::size_t(227) << 10);
  const auto zeros = [](const Shape& shape) { return Tensor::zeros(shape, DType::bf16, device); };
  using At = TiledCall;
  At at;
  At::Operands x, d;
  at.mixes = true;
  for (const std::size_t k : {At::query, At::key, At::value})
    x[k] = zeros({1, 12, 70, 64}), d[k] = zeros({1, 12, 70, 64});
  x[At::mix_input] = zeros({32, 12, 1}), x[At::mix_table] = zeros({1, 32, 70}), x[At::mix_output] = zeros({12, 32, 1});
  const Tensor y = zeros({1, 12, 70, 64}), norms = Tensor::zeros({1, 12, 70, 2}, DType::f32, device);
  gpu::emulator::reset_counters();
  at.forward(x, y, {}, norms), at.backward(x, y, {}, norms, y, {}, d);
  for (const char* const name : {"products of pairs", "logits of the mix", "gradient of the mix"}) {
    CAPTURE(name);
    const Counters of = gpu::emulator::counters().at(name);
    CHECK(of.global_written > 0);
    CHECK(32 * of.sectors_written == of.global_written);
  }
}

template <class F> static void run_on_gpu(const KernelCase& row, const Draw& draw, const F& f) {
  const Given start = given(row, draw);
  const Tensors in = on_gpu(start.in, 0), out = on_gpu(start.out, 0);
  gpu::emulator::reset_counters();
  row.call(kernels(device), in, out);
  f();
}

TEST_CASE("emulator: a call takes the number of launches in its row of the table") {
  for (const KernelCase& row : all_kernel_cases()) {
    if (row.launches == 0) continue;
    for_each_way(row, [&](const Draw& draw) {
      if (!row.of_a_transformer && draw.dtype != DType::f32 && draw.dtype != DType::bf16) return;
      run_on_gpu(row, draw, [&] {
        std::uint64_t launches = 0;
        for (const auto& [name, counted] : gpu::emulator::counters())
          if (!name.starts_with("copy from cpu")) launches += counted.launches;
        CHECK(launches == row.launches);
      });
    });
  }
}

TEST_CASE("emulator: no kernel exceeds its memory budget") {
  const With counting(settings().costs, true);
  std::map<std::string, Counters> counted;
  for (const KernelCase& row : all_kernel_cases())
    if (row.of_a_transformer)
      for_each_way(row, [&](const Draw& draw) {
        run_on_gpu(row, draw, [&] {
          for (const auto& [name, more] : gpu::emulator::counters()) counted[name] += more;
        });
      });
  const auto allowed = budgets();
  for (const std::string& name : names_of_kernels()) {
    CAPTURE(name);
    CHECK(counted.count(name) == 1);
    CHECK(allowed.count(name) == 1);
    if (!counted.count(name) || !allowed.count(name)) continue;
    CHECK(over(name, counted.at(name), allowed.at(name)) == "");
  }
  for (const auto& each : allowed) {
    CAPTURE(each.first);
    CHECK(names_of_kernels().count(each.first) == 1);
  }
}
