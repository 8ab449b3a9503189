// bench gemm: matrix products of the shapes that a GPT-2 of 124M parameters multiplies, as shares of the multiply-adds
// in f32 that this machine can do; in bf16 too, where it can multiply that, with what the rounding changes.
#include <iostream>
#include <memory>
#include <tuple>

#include "examples/whence/bench/peer.h"
#include "examples/whence/cli/command.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/statistics.h"
#include "examples/whence/machine/device_choice.h"
#include "examples/whence/report/table.h"
#include "nn/io/json.h"
#include "tensor/device/device_runtime.h"
#include "tensor/parallel.h"
#include "tensor/products.h"
#include "tensor/random.h"
#include "tensor/raw.h"

namespace whence::bench {
namespace {

struct Options {
  std::int64_t rows = 1024;
  std::string only;
  Settings settings;
};

// batch x [rows inner] [inner columns]. A transposed operand lies the other way in memory and is read through a view.
struct Product {
  std::string name;
  index_t batch, rows, inner, columns;
  bool a_transposed = false, b_transposed = false;

  [[nodiscard]] double operations() const { return 2.0 * static_cast<double>(batch * rows * inner * columns); }
  [[nodiscard]] std::string shape() const {
    return (batch > 1 ? to_text(batch, " x ") : std::string()) + to_text(rows, "x", inner, "x", columns);
  }
};

// Weights lie as [outputs inputs]: y = x W', dx = dy W, dW = dy' x.
std::vector<Product> products(const Options& options) {
  const index_t rows = options.rows;
  std::vector<Product> list;
  for (const auto& [name, inputs, outputs] :
      {std::tuple("projection", 768, 768), std::tuple("query, key, value as one", 768, 2304),
          std::tuple("MLP, in", 768, 3072), std::tuple("MLP, out", 3072, 768), std::tuple("head", 768, 50304)}) {
    const std::string text = name;
    list.push_back({text, 1, rows, inputs, outputs, false, true});
    list.push_back({text + ": dx", 1, rows, outputs, inputs});
    list.push_back({text + ": dW", 1, outputs, rows, inputs, true, false});
  }
  for (const auto& [batch, length] : {std::pair(48, 256), std::pair(12, 1024)}) {
    list.push_back({"scores, q k'", batch, length, 64, length, false, true});
    list.push_back({"output, p v", batch, length, length, 64});
    list.push_back({"dv, p' do", batch, length, length, 64, true, false});
  }
  std::erase_if(list, [&](const Product& each) { return each.name.find(options.only) == std::string::npos; });
  return list;
}

struct Row {
  std::string name, shape, engine;
  Median time;
  double gflops = 0, fraction = 0, ratio = 0, relative = -1;
};

class GemmBench {
 public:
  GemmBench(const Options& options, Device device)
      : options_(options),
        device_(device),
        list_(products(options)),
        ways_(chosen_ways(options.settings, "all", {"eager"}, device.is_cpu())),
        bench_("gemm", options.settings, device.is_cpu(),
            static_cast<std::int64_t>(list_.size() * (1 + bf16_ + ways_.size())), peer_version(options.settings)) {}

  void run() {
    bench_.run(
        [&] {
          for (const Product& product : list_) measure(product);
        },
        [&] { show(); });
  }

 private:
  void measure(const Product& product) {
    bench_.begin(to_text(product.name, ", ", product.shape()));
    const auto drawn = [&](const char* name, index_t rows, index_t columns, bool transposed) {
      const Shape shape{product.batch, transposed ? columns : rows, transposed ? rows : columns};
      return raw::to_device(Tensor::normal(shape, 0, 1, Stream(0, name)), device_);
    };
    const Tensor a = drawn("a", product.rows, product.inner, product.a_transposed);
    const Tensor b = drawn("b", product.inner, product.columns, product.b_transposed);
    Tensor out;
    const auto ours = [&]() -> Repetition {
      synchronise(device_);
      const double start = steady_seconds();
      out = raw::matmul(product.a_transposed ? raw::transpose(a) : a, product.b_transposed ? raw::transpose(b) : b);
      synchronise(device_);
      return {(steady_seconds() - start) * 1e3, 0};
    };
    const auto timed = [&] {
      (void)ours();
      Times times;
      for (int round = 0; round < options_.settings.repetitions; ++round) stop_if_asked(), times.add(ours());
      return times;
    };
    keep(product, "whence", timed(), 0, -1);
    if (bf16_) {
      bench_.begin(to_text(product.name, ", ", product.shape(), ", bf16"));
      const Tensor in_f32 = out;
      set_product_numbers(DType::bf16);
      const Times times = timed();
      set_product_numbers(DType::f32);
      keep(product, "whence, bf16", times, 0, largest_difference({{"product", out}}, {{"product", in_f32}}).relative);
      out = in_f32;
    }
    for (const PeerWay& way : ways_) {
      bench_.begin(to_text(product.name, ", ", product.shape(), ", ", way.text()));
      std::unique_ptr<Peer>& started = peers_[way.tuned];
      if (!started) started = std::make_unique<Peer>(options_.settings, way.tuned);
      Peer& peer = *started;
      (void)peer.ask({{"do", std::string("prepare")}, {"bench", std::string("gemm")},
                         {"device", std::string(device_.is_cpu() ? "cpu" : "cuda")},
                         {"a_transposed", product.a_transposed}, {"b_transposed", product.b_transposed}},
          {{"a", a}, {"b", b}});
      const Difference difference =
          largest_difference({{"product", out}}, peer.ask({{"do", std::string("results")}}).tensors);
      require_equal(product.name, difference);
      const Turns turns = in_turn(peer, options_.settings.repetitions, ours, true);
      keep(product, way.text(), turns.theirs, turns.ratio(), difference.relative);
    }
  }

  void keep(const Product& product, const std::string& engine, const Times& times, double ratio, double relative) {
    Row row{product.name, product.shape(), engine, median(times.both)};
    row.gflops = product.operations() / row.time.value / 1e6, row.ratio = ratio, row.relative = relative;
    if (device_.is_cpu()) row.fraction = row.gflops / bench_.ceilings().fma_gflops;
    Json record{{"product", row.name}, {"engine", engine}, {"batch", product.batch}, {"rows", product.rows},
        {"inner", product.inner}, {"columns", product.columns}, {"a_transposed", product.a_transposed},
        {"b_transposed", product.b_transposed}, {"device", to_string(device_)}, {"dtype", std::string("f32")},
        {"threads", std::int64_t{threads()}}, {"ms", row.time.value}, {"spread_ms", row.time.spread},
        {"gflops", row.gflops}};
    if (device_.is_cpu()) record.add("fraction", row.fraction);
    if (ratio > 0) record.add("ratio", ratio);
    if (relative >= 0) record.add("difference", relative);
    bench_.record(record);
    rows_.push_back(row);
  }

  void show() const {
    std::vector<std::string> header{
        "product", "rows x inner x columns", "by", "ms", "GFLOP/s", "of FMA peak", "off by"};
    if (!ways_.empty()) header.emplace_back("theirs / ours");
    Table table(header);
    for (const Row& row : rows_) {
      std::vector<std::string> cells{row.name, row.shape, row.engine, text_of(row.time), fixed(row.gflops, 0),
          row.fraction > 0 ? fixed(100 * row.fraction, 0) + " %" : "-",
          row.relative < 0 ? "-" : fixed(100 * row.relative, 4) + " %"};
      if (!ways_.empty()) cells.push_back(row.ratio > 0 ? fixed(row.ratio, 2) : "-");
      table.row(cells);
    }
    std::cout << table.text();
  }

  const Options& options_;
  Device device_;
  bool bf16_ = device_.is_cpu() && can_multiply_bf16();
  std::vector<Product> list_;
  std::vector<PeerWay> ways_;
  Bench bench_;
  std::unique_ptr<Peer> peers_[2];  // as installed, tuned
  std::vector<Row> rows_;
};

int run(int argc, char** argv) {
  Options options;
  CommandLine line("whence bench gemm", "Times matrix products of the shapes that a GPT-2 of 124M parameters has.");
  line.heading("What is measured")
      .integer("rows", &options.rows, Range<std::int64_t>{1, 65536}, {"tokens of a step, batch times length"})
      .text(
          "only", &options.only, {.help = "products with this in their name: projection, MLP, head, scores, dW, ..."});
  declare(line, options.settings);
  declare_peer(line, options.settings);
  if (line.shows_page(argc, argv)) return 0;
  line.refuse_unless("python", options.settings.with_peer(), "--peer");
  set_threads(options.settings.threads);
  GemmBench(options, choose_device(options.settings.device).device).run();
  return 0;
}

const RegisterCommand registered{
    {"bench gemm", Purpose::machine, "matrix products at model shapes, as shares of the ceiling", run}};

}  // namespace
}  // namespace whence::bench
