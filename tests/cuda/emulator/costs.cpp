// What kernels ask of memory, in sectors and in turns of the banks: planted kernels of which it is known, and every
// kernel of cuda/kernels/ against cuda/memory_budgets.txt. The counts need no GPU, and are the same in every order.
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

#include "cuda/emulator/counters.h"
#include "cuda/emulator/settings.h"
#include "cuda/vocabulary/launch_kernel.h"
#include "cuda/vocabulary/packs.h"
#include "tensor/adam.h"
#include "tensor/convolution.h"
#include "tensor/index_check.h"
#include "tensor/pairs.h"
#include "tests/support/device.h"
#include "tests/support/places.h"

using namespace whence;
using namespace whence::test;
using gpu::Global, gpu::global, gpu::launch_kernel, gpu::load, gpu::Number, gpu::Shared, gpu::shared_bytes_for,
    gpu::store, gpu::Thread;
using gpu::emulator::Counters, gpu::emulator::settings;

namespace {

const Device device = Device::cuda(0);

double ratio(std::uint64_t a, std::uint64_t b) { return b == 0 ? 1 : static_cast<double>(a) / static_cast<double>(b); }

// ---- Planted kernels: 32 threads, each reads and writes what `kind` says.

struct Walks {
  static constexpr const char* name = "walks";
  static constexpr int threads = 32;
  Global<float> x;
  index_t stride, offset;  // lane k reads element offset + k stride
  void operator()(Thread& t) const { static_cast<void>(load<float>(x, offset + t.lane() * stride)); }
};

struct WalksInPacks {
  static constexpr const char* name = "walks in packs";
  static constexpr int threads = 32;
  Global<float> x;
  void operator()(Thread& t) const { static_cast<void>(gpu::load_pack<4>(x, t.lane() * 4)); }
};

// Even lanes read once more than odd ones, in every turn of a loop.
struct Parts {
  static constexpr const char* name = "parts";
  static constexpr int threads = 32;
  Global<float> x;
  void operator()(Thread& t) const {
    for (index_t turn = 0; turn < 3; ++turn) {
      if (t.lane() % 2 == 0) static_cast<void>(load<float>(x, turn * 32 + t.lane()));
      static_cast<void>(load<float>(x, turn * 32 + t.lane()));
    }
  }
};

// A table of 32 columns that is written by rows and read by columns: every lane asks the same bank, unless `padding`
// moves the rows apart.
struct Turned {
  static constexpr const char* name = "turned";
  static constexpr int threads = 32;
  Global<float> y;
  int padding;
  void operator()(Thread& t) const {
    const Shared<float> table = t.shared<float>(32 * (32 + padding));
    for (int row = 0; row < 32; ++row) store(table, row * (32 + padding) + t.lane(), Number<float>(1.0f));
    t.sync_warp();
    Number<float> sum = load<float>(table, 0);  // the same word for all
    for (int column = 0; column < 32; ++column) sum += load<float>(table, t.lane() * (32 + padding) + column);
    store(y, t.lane(), sum);
  }
};

// ---- Every kernel once, in shapes of a transformer.

struct Shapes {
  DType dtype;
  Tensor random(const Shape& shape, std::uint64_t seed) const { return on_gpu(random_contiguous(shape, dtype, seed)); }
  Tensor numbers(const Shape& shape, DType of) const { return on_gpu(random_contiguous(shape, of, 9)); }
  Tensor like(const Tensor& x) const { return Tensor::zeros(x.shape(), x.dtype(), device); }
  // Numbers of [0, below), in no order.
  Tensor indices(const Shape& shape, index_t below) const {
    const Tensor index = Tensor::empty(shape, DType::i64);
    for (index_t i = 0; i < index.numel(); ++i) index.data<index_t>()[i] = i * 7919 % below;
    return on_gpu(index);
  }

  void of_elements(JoinedKernels& k) const {
    const Tensor x = random({64, 768}, 1), y = like(x), row = random({768}, 2);
    const Tensor mask = Tensor::zeros({64, 768}, DType::boolean, device);
    k.unary(functions::Exp{}, {}, x, y);
    k.unary_backward(functions::Exp{}, {}, x, x, y);
    k.binary(functions::Add{}, x, x, y);
    k.binary(functions::Add{}, x, raw::expand(row, x.shape()), y);
    k.masked(x, mask, 0, y);
    k.fill(y, 1);
    k.copy(x, Tensor::empty(x.shape(), dtype == DType::f32 ? DType::bf16 : DType::f32, device));
    const Tensor heads = random({2, 64, 12, 64}, 3);  // [b t h d] to [b h t d], and to [b h d t]
    for (const Tensor& turned : {raw::transpose(heads, 1, 2), raw::transpose(raw::transpose(heads, 1, 2), 2, 3)})
      k.copy(turned, Tensor::empty(turned.shape(), dtype, device));
    const std::vector<Tensor> from{raw::transpose(heads, 1, 2), x}, to{like(from[0]), y};
    k.copy_all(from, to);
  }

  void of_rows(JoinedKernels& k) const {
    const Tensor x = random({64, 768}, 1), dy = random({64, 768}, 2), y = like(x), weight = random({768}, 3);
    const Tensor scores = random({64, 1024}, 4), probabilities = like(scores);
    const Tensor mask = Tensor::zeros({64, 1024}, DType::boolean, device);
    const Tensor mean = numbers({64}, DType::f32), rstd = numbers({64}, DType::f32), dweight = like(weight);
    k.softmax(scores, {}, probabilities);
    k.softmax(scores, mask, probabilities);
    const Tensor duals = numbers({16, 256}, DType::dual);
    k.softmax(duals, {}, like(duals));
    k.softmax_backward(probabilities, scores, like(scores));
    k.norm(x, {}, weight, weight, 1e-5, {}, y, mean, rstd);
    k.norm_backward(x, weight, mean, rstd, {}, dy, y, dweight, like(weight));
    k.reduce(Reduction::sum, x, Tensor::empty({64, 1}, dtype, device));
    k.reduce(Reduction::sum, x, Tensor::empty({1, 768}, dtype, device));
    k.argmax(x, Tensor::empty({64}, DType::i64, device));
    k.cumulative_sum(scores, false, like(scores));
    const Tensor target = indices({64}, 1024), loss = like(mean), one = numbers({1}, DType::f32);
    k.cross_entropy(scores, target, -100, mean, loss);
    k.cross_entropy_backward(scores, target, -100, mean, one, 1, like(scores));
  }

  void of_indices(JoinedKernels& k) const {
    const Tensor index = indices({64, 256}, 32), table = random({64, 32}, 1), x = random({64, 256}, 2);
    const Tensor position = numbers({64, 256}, DType::f32);
    const IndexCheck allowed{"planted", "index", 32, -1};
    static_cast<void>(k.checked_index(allowed, index));
    k.sum_by_index(x, index, 1, like(table));
    if (dtype == DType::f32) k.lerp_at_backward(table, position, x, like(table), like(x));
    const Tensor rows = random({4096, 64}, 3);
    k.scatter_add_rows(indices({4096}, 100), rows, Tensor::zeros({100, 64}, dtype, device));
  }

  void of_pairs(JoinedKernels& k) const {
    const auto from = [](index_t begin, index_t end) {
      return raw::slice(raw::unsqueeze(Tensor::arange(end, DType::i64), 0), 1, begin, end);
    };
    const Steps steps = Steps::of(from(448, 512), from(0, 512), true).on(device);
    const Tensor table = random({12, 512}, 1), bias = random({1, 12, 64, 512}, 2);
    k.read_by_distance(steps, table, bias);
    k.sum_by_distance(steps, bias, like(table));
    k.causal_softmax_by_distance(bias, steps, table, 448, like(bias));
    k.causal_mask(448, {}, Tensor::empty({1, 1, 64, 512}, DType::boolean, device));
  }

  void of_convolution(JoinedKernels& k) const {
    const Convolution at{1, 12, 16, 256, 12, 256, 5, 4};
    const Tensor x = random({1, 12, 16, 256}, 1), weight = random({12, 12, 1, 5}, 2);
    k.convolve_keys(at, x, weight, false, {}, like(x));
    k.convolve_keys_weight(at, x, x, like(weight));
  }

  void of_steps(JoinedKernels& k) const {
    const AdamStep step{1e-2, 0.9, 0.99, 1e-8, 0.1, 0.01, 0.5, 3};
    const Tensor gradient = random({65536}, 1), weight = numbers({65536}, DType::f32);
    const std::vector<AdamEntry> entries{
        {gradient, weight, like(weight), like(weight), dtype == DType::f32 ? Tensor() : like(gradient), true}};
    const auto numbers_of_step = step_controls(step, 1, 1);
    const Tensor total = Tensor::zeros({1}, DType::f64, device),
                 controls =
                     on_gpu(Tensor::of({numbers_of_step.begin(), numbers_of_step.end()}, {control_count}, DType::f64));
    k.adam_all(step, controls, entries);
    const std::vector<Tensor> gradients{gradient};
    k.sum_of_squares(gradients, 1, total);
    k.clip_scale(total, controls);
  }

  void run(JoinedKernels& k) const {
    of_elements(k), of_rows(k), of_indices(k), of_pairs(k), of_convolution(k), of_steps(k);
  }
};

// The names that kernels give themselves.
std::set<std::string> names_of_kernels() {
  std::set<std::string> names;
  const std::regex name(R"(static constexpr const char\* name = "([^"]*)\")");
  for (const auto& file : std::filesystem::directory_iterator(source_folder() + "/cuda/kernels")) {
    std::ifstream text(file.path());
    std::smatch found;
    for (std::string line; std::getline(text, line);)
      if (std::regex_search(line, found, name)) names.insert(found[1]);
  }
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

// "" or what is over the budget.
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
    const Counters c = counted(Walks{global<float>(x), each.stride, each.offset});
    CHECK(c.global_requests == 1);
    CHECK(c.sectors == each.sectors);
    CHECK(c.least_sectors == each.least);
  }
  const Counters packs = counted(WalksInPacks{global<float>(x)});
  CHECK(packs.global_requests == 1);
  CHECK(packs.sectors == 16);
  in_every_order([&] {
    const Counters parts = counted(Parts{global<float>(x)});
    CHECK(parts.global_requests == 6);
    CHECK(parts.sectors == 3 * 4 + 3 * 4);
    CHECK(parts.least_sectors == 3 * 4 + 3 * 2);
  });
  const Counters turned = counted(Walks{global<float>(x), 33, 0});
  CHECK(over("walks", turned, {4, 1}).find("walks: 8 times the least sectors, worst at emulator_costs.cpp:") == 0);
  CHECK(over("walks", turned, {8, 1}).empty());
}

TEST_CASE("emulator: conflicts of banks in planted kernels") {
  const With counting(settings().costs, true);
  gpu::emulator::reset_counters();
  const Tensor y = Tensor::empty({32}, DType::f32, device);
  in_every_order([&] {
    for (const int padding : {0, 1, 2}) {
      CAPTURE(padding);
      gpu::emulator::reset_counters();
      launch_kernel(Turned{global<float>(y), padding},
          {.shared_bytes = shared_bytes_for<float>(static_cast<std::size_t>(32 * (32 + padding)))});
      const Counters c = gpu::emulator::counters().at("turned");
      const std::uint64_t ways = padding == 0 ? 32 : static_cast<std::uint64_t>(padding);
      CHECK(c.shared_requests == 32 + 1 + 32);
      CHECK(c.least_wavefronts == 32 + 1 + 32);
      CHECK(c.wavefronts == 32 + 1 + 32 * ways);
      CHECK(c.most_ways == ways);
      CHECK(over("turned", c, {1, 1}).empty() == (padding == 1));
    }
  });
}

TEST_CASE("emulator: norms are one launch, and two with all gradients") {
  JoinedKernels& k = joined_kernels(device);
  const auto launches = [](const auto& run) {
    gpu::emulator::reset_counters();
    run();
    std::uint64_t all = 0;
    for (const auto& [name, counted] : gpu::emulator::counters()) all += counted.launches;
    return all;
  };
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Shapes of{dtype};
    for (const index_t width : {64, 768, 1024, 6144, 6145, 8192}) {
      for (const index_t rows : {1, 40}) {
        CAPTURE(width);
        CAPTURE(rows);
        const Tensor x = of.random({rows, width}, 1), dy = of.random({rows, width}, 2), sum = of.like(x),
                     y = of.like(x), dx = of.like(x), w = of.random({width}, 3), dw = of.like(w), db = of.like(w);
        const Tensor mean = of.numbers({rows}, DType::f32), rstd = of.numbers({rows}, DType::f32);
        CHECK(launches([&] { k.norm(x, {}, w, w, 1e-5, {}, y, mean, rstd); }) == 1);
        CHECK(launches([&] { k.norm(x, {}, w, {}, 1e-5, {}, y, {}, rstd); }) == 1);
        CHECK(launches([&] { k.norm(x, dy, w, w, 1e-5, sum, y, mean, rstd); }) == 1);
        CHECK(launches([&] { k.norm(x, dy, w, {}, 1e-5, sum, y, {}, rstd); }) == 1);
        CHECK(launches([&] { k.norm_backward(x, w, mean, rstd, {}, dy, dx, dw, db); }) == 2);
        CHECK(launches([&] { k.norm_backward(x, w, mean, rstd, {}, dy, {}, {}, db); }) == 2);
        CHECK(launches([&] { k.norm_backward(x, w, {}, rstd, {}, dy, dx, dw, {}); }) == 2);
        CHECK(launches([&] { k.norm_backward(x, w, {}, rstd, {}, dy, dx, {}, {}); }) == 1);
        CHECK(launches([&] { k.norm_backward(sum, w, mean, rstd, x, dy, dx, dw, db); }) == 2);
      }
    }
  }
}

TEST_CASE("emulator: no kernel asks more of memory than its budget") {
  const With counting(settings().costs, true);
  gpu::emulator::reset_counters();
  for (const DType dtype : {DType::f32, DType::bf16}) Shapes{dtype}.run(joined_kernels(device));
  const auto counted = gpu::emulator::counters();
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
