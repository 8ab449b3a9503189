// Tiled attention on the GPU, or on the emulated one, against the CPU's: every program, in sizes off every tile.
#include "autograd/recording.h"
#include "autograd/tiled/tiled_ops.h"
#include "nn/transformer.h"
#include "tensor/device/device_runtime.h"
#include "tensor/tiles/gpu_programs.h"
#include "tests/cuda/tiles.h"

using namespace whence;
using namespace whence::test;

namespace {

using At = TiledCall;

struct Case {
  std::string name;
  index_t batch = 1, heads = 1, key_heads = 1, queries = 17, keys = 17, d = 8;
  std::function<void(At&, At::Operands&)> more = [](At&, At::Operands&) {};
  double wider = 1;  // factor on the bound of errors
};

// Heads inside tokens, as in the layers around attention.
Tensor by_token(const Tensor& x) { return raw::permute(raw::copy(raw::permute(x, {0, 2, 1, 3})), {0, 2, 1, 3}); }

void add_other_gates(At& at, At::Operands& x) {
  at.gate_scale = 0.6;
  x[At::gate_query] = by_token(drawn(x[At::query].shape(), x[0].dtype(), "gate q"));
  x[At::gate_key] = drawn(x[At::key].shape(), x[0].dtype(), "gate k");
}

// [heads rows d]: row n is at.lowest + n steps away.
void add_relative_keys(At& at, At::Operands& x, index_t heads, index_t rows) {
  const Shape shape = x[At::query].shape();
  at.relative_scale = 0.3;
  x[At::relative_query] = by_token(drawn(shape, x[0].dtype(), "p"));
  x[At::relative_keys] = drawn({heads, rows, shape[3]}, x[0].dtype(), "r");
}
// Returns bin(m) for each distance m of relative keys.
void add_bins(At& at, const At::Operands& x, index_t bins, const std::function<index_t(index_t)>& bin) {
  std::vector<double> of;
  for (index_t n = 0; n < x[At::relative_keys].size(1); ++n) of.push_back(static_cast<double>(bin(at.lowest + n)));
  at.bins = bins, at.bin_of = Tensor::of(of, {static_cast<index_t>(of.size())}, DType::i64);
}

std::vector<Case> cases() {
  std::vector<Case> all{{.name = "one token", .queries = 1, .keys = 1},
      {.name = "heads of 20", .heads = 3, .queries = 64, .keys = 64, .d = 20},
      {.name = "several tiles", .heads = 2, .queries = 200, .keys = 200, .d = 64},
      {.name = "heads of 128", .heads = 2, .queries = 129, .keys = 129, .d = 128},
      {.name = "heads of 72", .queries = 70, .keys = 70, .d = 72},
      {.name = "heads of 11", .heads = 2, .queries = 40, .keys = 40, .d = 11},
      {.name = "heads that share keys", .batch = 2, .heads = 6, .key_heads = 2, .queries = 65, .keys = 65, .d = 16}};
  all.push_back({"fewer queries than keys", 1, 2, 2, 5, 150, 32, [](At& at, At::Operands&) { at.first_row = 145; }});
  all.push_back({"a tile that ends one key behind the first row", 1, 1, 1, 2, 64, 16,
      [](At& at, At::Operands&) { at.first_row = 62; }});
  all.push_back({"not causal", 1, 1, 1, 30, 140, 16, [](At& at, At::Operands&) { at.causal = false; }});
  all.push_back({"a window", 1, 1, 1, 200, 200, 16, [](At& at, At::Operands&) { at.window = 7; }});
  all.push_back({"a window on both sides", 1, 1, 1, 150, 150, 16,
      [](At& at, At::Operands&) { at.causal = false, at.window = 70; }});
  all.push_back({"padding on both sides", 2, 2, 2, 140, 140, 24,
      [](At& at, At::Operands&) { at.present = present_from(2, 140, 66, 133); }});
  all.push_back({"a table", 1, 2, 2, 200, 200, 16, [](At&, At::Operands& x) {
                   x[At::distance_table] = drawn({2, 150}, x[0].dtype(), "table");
                 }});
  all.push_back({"a table on both sides", 1, 2, 2, 90, 130, 16, [](At& at, At::Operands& x) {
                   at.causal = false, at.lowest = -129;
                   x[At::distance_table] = drawn({2, 219}, x[0].dtype(), "table");
                 }});
  all.push_back(
      {"a table, rows that begin between packs, wide heads", 1, 1, 1, 70, 99, 100, [](At& at, At::Operands& x) {
         at.first_row = 29, at.lowest = -2;
         x[At::distance_table] = drawn({1, 101}, x[0].dtype(), "table");
       }});
  all.push_back({"a table, a window and padding", 2, 2, 1, 300, 300, 64, [](At& at, At::Operands& x) {
                   at.window = 100, at.present = present_from(2, 300, 3, 290);
                   x[At::distance_table] = drawn({2, 300}, x[0].dtype(), "table");
                 }});
  all.push_back({"a column, which grows", 2, 2, 2, 130, 130, 16, [](At&, At::Operands& x) {
                   const Tensor steps = raw::cast(Tensor::arange(130, DType::f64), x[0].dtype());
                   x[At::column_term] = raw::copy(raw::expand(raw::reshape(steps, {1, 1, 130}), {2, 2, 130}));
                 }});
  all.push_back({"a column, which grows, and what f32 lost of it", 2, 2, 2, 130, 130, 16, [](At&, At::Operands& x) {
                   const Tensor steps = raw::cast(Tensor::arange(130, DType::f64), x[0].dtype());
                   x[At::column_term] = raw::copy(raw::expand(raw::reshape(steps, {1, 1, 130}), {2, 2, 130}));
                   x[At::column_rest] = drawn({2, 2, 130}, x[0].dtype(), "rest", 0.5);
                 }});
  all.push_back({"a sink and a table", 1, 3, 1, 100, 100, 16, [](At&, At::Operands& x) {
                   x[At::sink] = drawn({3}, x[0].dtype(), "sink");
                   x[At::distance_table] = drawn({3, 100}, x[0].dtype(), "table");
                 }});
  all.push_back({"gates that move to the end", 1, 2, 2, 200, 200, 16, [](At&, At::Operands& x) {
                   x[At::position_logits] = drawn({1, 2, 200, 120}, x[0].dtype(), "z");
                 }});
  all.push_back({"gates that are soon full, keys of positions", 2, 2, 1, 200, 200, 24, [](At& at, At::Operands& x) {
                   at.position_scale = 0.7;
                   x[At::position_keys] = drawn({17, 24}, x[0].dtype(), "e", 0.3);
                 }});
  all.push_back({"keys of positions in two tiles", 1, 2, 2, 150, 150, 16, [](At&, At::Operands& x) {
                   x[At::position_keys] = drawn({45, 16}, x[0].dtype(), "e", 0.3);
                 }});
  all.push_back({"gates in heads of 128", 1, 2, 2, 70, 70, 128, [](At&, At::Operands& x) {
                   x[At::position_logits] = drawn({1, 2, 70, 9}, x[0].dtype(), "z");
                 }});
  all.push_back({"one position", 1, 1, 1, 40, 40, 16, [](At&, At::Operands& x) {
                   x[At::position_logits] = drawn({1, 1, 40, 1}, x[0].dtype(), "z");
                 }});
  all.push_back({"gates, a table and a column", 1, 2, 2, 130, 130, 16, [](At&, At::Operands& x) {
                   x[At::position_logits] = drawn({1, 2, 130, 40}, x[0].dtype(), "z");
                   x[At::distance_table] = drawn({2, 100}, x[0].dtype(), "table");
                   x[At::column_term] = drawn({1, 2, 130}, x[0].dtype(), "column");
                 }});
  all.push_back({"gates in a window, padding", 2, 1, 1, 140, 140, 24, [](At& at, At::Operands& x) {
                   at.window = 50, at.present = present_from(2, 140, 66, 133);
                   x[At::position_logits] = drawn({2, 1, 140, 21}, x[0].dtype(), "z");
                 }});
  all.push_back({"gates, fewer queries than keys", 1, 2, 2, 21, 150, 32, [](At& at, At::Operands& x) {
                   at.first_row = 129;
                   x[At::position_logits] = drawn({1, 2, 21, 65}, x[0].dtype(), "z");
                 }});
  // The gradient of slopes: errors of dA are multiplied by the number of keys, while dA itself sums to about 0 in a
  // row.
  all.push_back({"gates by slopes, a sink", 1, 2, 2, 100, 100, 16,
      [](At&, At::Operands& x) {
        x[At::position_slopes] = drawn({2}, x[0].dtype(), "slopes", 0.2);
        x[At::sink] = drawn({2}, x[0].dtype(), "sink");
      },
      2});
  for (const char* name : {"gates that move to the end", "gates that are soon full, keys of positions",
           "keys of positions in two tiles", "gates in heads of 128", "gates, a table and a column",
           "gates in a window, padding", "gates, fewer queries than keys", "gates by slopes, a sink"}) {
    Case other = *std::ranges::find(all, name, &Case::name);
    other.name += ", of others";
    other.more = [before = other.more](At& at, At::Operands& x) { before(at, x), add_other_gates(at, x); };
    all.push_back(other);
  }
  const auto relative = [&all](Case of, index_t heads, index_t rows) {
    of.more = [=, more = of.more](At& at, At::Operands& x) { add_relative_keys(at, x, heads, rows), more(at, x); };
    all.push_back(of);
  };
  relative({"relative keys of each head", 1, 2, 2, 200, 200, 64}, 2, 200);
  relative({"relative keys that heads share, of some distances, a window", 2, 4, 2, 130, 130, 20,
               [](At& at, At::Operands&) { at.lowest = 3, at.window = 90; }},
      1, 70);
  relative({"relative keys in heads of 128, fewer queries than keys", 1, 2, 2, 70, 99, 128,
               [](At& at, At::Operands&) { at.lowest = -3, at.first_row = 29; }},
      1, 102);
  relative({"relative keys, a table and a column", 1, 2, 2, 100, 130, 16,
               [](At& at, At::Operands& x) {
                 at.first_row = 30, at.window = 110;
                 x[At::distance_table] = drawn({2, 120}, x[0].dtype(), "table");
                 x[At::column_term] = drawn({1, 2, 130}, x[0].dtype(), "column");
               }},
      1, 120);
  relative({"relative keys and bins, a table and a sink", 2, 2, 1, 100, 100, 11,
               [](At& at, At::Operands& x) {
                 add_bins(at, x, 10, [](index_t m) { return std::min<index_t>(m, 9); });
                 x[At::distance_table] = drawn({2, 95}, x[0].dtype(), "table");
                 x[At::sink] = drawn({2}, x[0].dtype(), "sink");
               }},
      2, 95);
  relative({"relative keys and bins in no order, beyond distances on both sides, padding", 2, 2, 2, 90, 130, 64,
               [](At& at, At::Operands& x) {
                 at.causal = false, at.lowest = -90, at.present = present_from(2, 130, 66, 120);
                 add_bins(at, x, 70, [](index_t m) { return m < 0 ? 69 : m % 17; });
               }},
      1, 150);
  // Parts of the keys: one query and several, the last part incomplete and full, some of them out of sight.
  const auto few = [&](const char* name, index_t queries, index_t keys, index_t d,
                       const std::function<void(At&, At::Operands&)>& more, double wider = 1) {
    all.push_back({name, 2, 4, 2, queries, keys, d,
        [=](At& at, At::Operands& x) {
          at.first_row = keys - queries;
          more(at, x);
        },
        wider});
  };
  const auto gates = [](index_t positions, index_t queries) {
    return [=](At&, At::Operands& x) {
      x[At::position_logits] = drawn({2, 4, queries, positions}, x[0].dtype(), "z", 0.5);
    };
  };
  few("parts of keys", 1, 129, 64, [](At&, At::Operands&) {});
  few("parts of keys, 16 queries, wide heads", 16, 300, 72, [](At&, At::Operands&) {});
  few("parts of keys, a table, a sink, padding", 3, 400, 20, [](At& at, At::Operands& x) {
    at.present = present_from(2, 400, 270, 399);
    x[At::distance_table] = drawn({4, 390}, x[0].dtype(), "table");
    x[At::sink] = drawn({4}, x[0].dtype(), "sink");
  });
  few("parts of keys, a column in a window", 16, 520, 16, [](At& at, At::Operands& x) {
    at.window = 200;
    x[At::column_term] = drawn({2, 4, 520}, x[0].dtype(), "column");
  });
  few("parts of keys, not causal", 2, 256, 16, [](At& at, At::Operands&) { at.causal = false, at.first_row = 100; });
  few("parts of keys, gates that move to the end", 3, 390, 16, gates(120, 3));
  few("parts of keys, gates that are soon full", 16, 390, 16, gates(30, 16));
  few("parts of keys, gates, a table, padding", 1, 300, 24, [](At& at, At::Operands& x) {
    at.present = present_from(2, 300, 66, 200);
    x[At::position_keys] = drawn({100, 24}, x[0].dtype(), "e", 0.3);
    x[At::distance_table] = drawn({4, 300}, x[0].dtype(), "table");
  });
  few(
      "parts of keys, gates of others by slopes, a window", 3, 300, 16,
      [](At& at, At::Operands& x) {
        at.window = 180;
        x[At::position_slopes] = drawn({4}, x[0].dtype(), "slopes", 0.1);
        add_other_gates(at, x);
      },
      2);
  // With dropout as well. Rows of keys begin at every place of the four numbers of a call.
  for (const char* name : {"several tiles", "heads that share keys", "heads of 128", "fewer queries than keys",
           "a window on both sides", "padding on both sides", "a table, rows that begin between packs, wide heads",
           "a sink and a table", "gates, a table and a column", "gates in heads of 128", "gates by slopes, a sink",
           "gates that are soon full, keys of positions", "gates, a table and a column, of others",
           "relative keys, a table and a column", "relative keys and bins, a table and a sink",
           "parts of keys, gates, a table, padding"}) {
    Case dropped = *std::ranges::find(all, name, &Case::name);
    dropped.name += ", dropout";
    dropped.more = [before = dropped.more](At& at, At::Operands& x) {
      before(at, x);
      at.dropout = 0.3, at.stream = Stream(7, "pairs", 3), at.total_rows += at.first_row + 2;
    };
    all.push_back(dropped);
  }
  return all;
}

std::vector<Tensor> results(const At& at, const At::Operands& x, const Tensor& cotangent) {
  return output_and_gradients(x, cotangent, [&](const At::Operands& leaves) {
    const TiledResult found = tiled_attention(at, leaves);
    return at.bins ? concat_along(3, {found.output, found.bin_sums}) : found.output;
  });
}

}  // namespace

TEST_CASE("cuda tiles: attention of heads has the CPU's numbers and gradients, in every order of threads") {
  gpu::emulator::Settings* const settings = emulator_settings();
  std::optional<With<std::size_t>> shared;
  std::optional<With<bool>> tiles_in_f64;
  if (settings) shared.emplace(settings->shared, std::size_t(227) << 10);
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    if (dtype == DType::f64 && !settings) continue;
    if (dtype == DType::f64) tiles_in_f64.emplace(settings->tiles_in_f64, true);
    for (const Case& each : cases()) {
      CAPTURE(std::string(to_string(dtype)));
      CAPTURE(each.name);
      At at;
      at.scale = 0.4, at.total_rows = each.queries;
      At::Operands x, wide, there;
      x[At::query] = by_token(drawn({each.batch, each.heads, each.queries, each.d}, dtype, "q"));
      x[At::key] = by_token(drawn({each.batch, each.key_heads, each.keys, each.d}, dtype, "k"));
      x[At::value] = drawn({each.batch, each.key_heads, each.keys, each.d}, dtype, "v");
      each.more(at, x);
      Shape of_output = x[At::query].shape();
      of_output[3] += at.bins;
      const Tensor cotangent = by_token(drawn(of_output, dtype, "cotangent"));
      for (std::size_t k = 0; k < x.size(); ++k)
        if (x[k].defined()) wide[k] = raw::cast(x[k], DType::f64), there[k] = on_gpu(x[k]);
      if (x[At::column_rest].defined() && size_of(dtype) == 2) continue;  // refused
      const bool third = x[At::gate_query].defined() || x[At::relative_query].defined();
      if (third && dtype == DType::f32 && !gpu_refusal(at, there).empty()) continue;  // too wide
      const std::vector<Tensor> wanted = results(at, wide, raw::cast(cotangent, DType::f64));
      At on_there = at;
      on_there.present = on_gpu(at.present), on_there.bin_of = on_gpu(at.bin_of);
      // The pattern, its gradient and their sums are rounded; in f32 an H200 has an error of 3.2e-5 if gates have
      // parts.
      const double allowed = each.wider * (dtype == DType::f64      ? 1e-12
                                              : dtype == DType::f32 ? 4e-5
                                              : dtype == DType::f16 ? 2e-3
                                                                    : 1.6e-2);
      std::vector<std::vector<double>> before;
      const auto check = [&] { compare(results(on_there, there, on_gpu(cotangent)), wanted, allowed, before); };
      if (dtype == DType::bf16 && each.queries <= 100)
        in_every_order(check);
      else
        in_order(dtype == DType::f16 ? 1 : 20, check);
    }
  }
}

TEST_CASE("cuda tiles: a first row that the device alone knows gives the bits of one that the host knows") {
  const NoGrad forward_alone;
  for (const index_t capacity : {100, 413}) {  // with parts of the keys and without
    for (const bool scans : {false, true}) {
      At at;
      At::Operands x;
      x[At::query] = on_gpu(drawn({2, 2, 3, 16}, DType::bf16, "q"));
      for (const std::size_t k : {At::key, At::value}) x[k] = on_gpu(drawn({2, 2, capacity, 16}, DType::bf16, "k"));
      x[At::distance_table] = on_gpu(drawn({2, capacity}, DType::f32, "table"));
      x[At::column_term] = on_gpu(drawn({2, 2, capacity}, DType::f32, "column"));
      if (scans) x[At::position_logits] = on_gpu(drawn({2, 2, 3, 60}, DType::bf16, "z"));
      at.present = on_gpu(present_from(2, capacity, 5, capacity));
      const auto numbers = [&] { return raw::to_device(tiled_attention(at, x).output, Device::cpu()).to_vector(); };
      for (const index_t first : {index_t(0), index_t(30), index_t(61), capacity - 3}) {
        CAPTURE(first);
        at.row = {}, at.first_row = first;
        const std::vector<double> known = numbers();
        at.row = on_gpu(Tensor::of({static_cast<double>(first)}, {1}, DType::i64)), at.first_row = capacity - 3;
        CHECK(numbers() == known);
      }
    }
  }
}

TEST_CASE("cuda tiles: each gradient alone has the bits that it has with all others") {
  At at;
  At::Operands x;
  std::vector<Tensor> leaves;
  for (const std::size_t k : {At::query, At::key, At::value, At::gate_query, At::gate_key, At::distance_table}) {
    const Shape shape = k == At::distance_table ? Shape{2, 90} : Shape{1, 2, 90, 16};
    leaves.push_back(x[k] = requires_grad(on_gpu(drawn(shape, DType::bf16, At::info[k].name))));
  }
  x[At::position_logits] = on_gpu(drawn({1, 2, 90, 20}, DType::bf16, "z"));
  const Tensor cotangent = on_gpu(drawn({1, 2, 90, 16}, DType::bf16, "cotangent"));
  const auto numbers = [&](std::span<const Tensor> asked) {
    std::vector<std::vector<double>> all;
    for (const Tensor& each : grad(tiled_attention(at, x).output, cotangent, {asked.begin(), asked.end()}))
      all.push_back(raw::to_device(each, Device::cpu()).to_vector());
    return all;
  };
  const auto together = numbers(leaves);
  for (std::size_t k = 0; k < leaves.size(); ++k) CHECK(numbers({&leaves[k], 1}).front() == together[k]);
}

TEST_CASE("cuda tiles: what padding has in a column changes no bit of the rows behind it") {
  constexpr index_t keys = 140, first = 5;
  for (const auto& [queries, first_row] : {std::pair<index_t, index_t>{keys, 0}, {3, 3}}) {
    At at;
    At::Operands x;
    at.present = on_gpu(present_from(1, keys, first, keys)), at.first_row = first_row;
    std::vector<Tensor> leaves;
    for (const std::size_t k : {At::query, At::key, At::value}) {
      const Shape shape{1, 2, k == At::query ? queries : keys, 16};
      leaves.push_back(x[k] = requires_grad(on_gpu(drawn(shape, DType::bf16, At::info[k].name))));
    }
    const Tensor cotangent = on_gpu(drawn({1, 2, queries, 16}, DType::bf16, "cotangent"));
    const auto numbers = [&](double of_padding) {
      const Tensor column = drawn({1, 2, keys}, DType::f32, "column");
      kernels(Device::cpu()).fill(raw::slice(column, 2, 0, first), of_padding);
      x[At::column_term] = on_gpu(column);
      const Tensor output = tiled_attention(at, x).output;
      std::vector<std::vector<double>> all{raw::to_device(output, Device::cpu()).to_vector()};
      for (const Tensor& each : grad(output, cotangent, leaves))
        all.push_back(raw::to_device(each, Device::cpu()).to_vector());
      return all;
    };
    CHECK(numbers(0) == numbers(1e30));
  }
}

TEST_CASE("cuda tiles: rows that see nothing are 0, and numbers behind the last key reach no row") {
  const NoGrad forward_alone;
  At at;
  at.present = on_gpu(present_from(1, 80, 30, 80));
  At::Operands x;
  for (const std::size_t k : {At::query, At::key, At::value}) {
    const Tensor longer = Tensor::full({1, 1, 96, 64}, std::nan(""), DType::bf16);
    raw::copy_into(drawn({1, 1, 80, 64}, DType::bf16, "x"), raw::slice(longer, 2, 0, 80));
    x[k] = raw::slice(on_gpu(longer), 2, 0, 80);
  }
  const std::vector<double> found = raw::to_device(tiled_attention(at, x).output, Device::cpu()).to_vector();
  for (std::size_t n = 0; n < found.size(); ++n) CHECK((n < 30 * 64 ? found[n] == 0 : std::isfinite(found[n])));
}

TEST_CASE("cuda tiles: a model drops pairs where it computes them, with not one launch more") {
  Transformer model({.vocabulary = 11, .length = 8, .dim = 16, .layers = 1, .heads = 2, .pattern_dropout = 0.25});
  model.to(DType::bf16), model.to(Device::cuda(0));
  const Tensor tokens = Tensor::of({1, 2, 3, 4, 5, 6}, {1, 6}, DType::i64);
  const auto launches = [&](bool training) {
    const std::uint64_t before = runtime_of(Device::cuda(0)).traffic().launches;
    (void)model(tokens, {.training = training});
    return runtime_of(Device::cuda(0)).traffic().launches - before;
  };
  (void)launches(false);  // prepares tables
  CHECK(launches(true) == launches(false));
}

TEST_CASE("cuda tiles: what has no program is refused before anything runs, with the reason") {
  const auto refusal = [](DType dtype, index_t d, const std::function<void(At&, At::Operands&)>& more) {
    At at;
    At::Operands x;
    for (const std::size_t k : {At::query, At::key, At::value})
      x[k] = Tensor::zeros({1, 1, 4, d}, dtype, Device::cuda(0));
    more(at, x);
    return message([&] { (void)tiled_attention(at, x); });
  };
  const auto nothing = [](At&, At::Operands&) {};
  CHECK(refusal(DType::f64, 8, nothing) == "tiled_attention: f64 given to tiles on a GPU; f16, bf16 or f32 required");
  CHECK(refusal(DType::bf16, 136, nothing).find("at most 128, required") != std::string::npos);
  CHECK(refusal(DType::bf16, 8, [](At&, At::Operands& x) { x[At::gate_query] = x[At::query]; }) ==
        "tiled_attention: gate_query given, which has no program on a GPU; undefined required");
  CHECK(refusal(DType::bf16, 8, [](At& at, At::Operands&) {
    at.bins = 3, at.bin_of = Tensor::zeros({4}, DType::i64, Device::cuda(0));
  }) == "tiled_attention: 3 bins given to tiles on a GPU; at most 256, and only with relative keys, required");
  CHECK(refusal(DType::bf16, 8, [](At&, At::Operands& x) {
    x[At::column_term] = x[At::column_rest] = Tensor::zeros({1, 1, 4}, DType::f32, Device::cuda(0));
  }) == "tiled_attention: column_rest given to tiles of bf16 on a GPU; undefined required");
  CHECK(refusal(DType::f32, 8, [](At&, At::Operands& x) {
    x[At::column_term] = x[At::column_slope] = Tensor::zeros({1, 1, 4}, DType::f32, Device::cuda(0));
  }) == "tiled_attention: column_slope given, which has no program on a GPU; undefined required");
  const auto relative = [](At&, At::Operands& x) {
    x[At::relative_query] = x[At::query], x[At::relative_keys] = raw::select(x[At::query], 0, 0);
  };
  CHECK(refusal(DType::bf16, 8, [&](At& at, At::Operands& x) { relative(at, x), at.relative_scale = -1; }) ==
        "tiled_attention: relative_scale -1 given to tiles on a GPU; more than 0 required");
  std::string in_recording;
  (void)runtime_of(Device::cuda(0)).record([&] {
    in_recording = refusal(DType::bf16, 8, [](At& at, At::Operands&) { at.dropout = 0.1, at.total_rows = 4; });
  });
  CHECK(in_recording.find("drop the same pairs at each replay; no dropout required") != std::string::npos);
  gpu::emulator::Settings* const settings = emulator_settings();
  if (!settings) return;
  for (const auto& [dtype, d, positions, others] : std::vector<std::tuple<DType, index_t, index_t, bool>>{
           {DType::bf16, 64, 65, false}, {DType::bf16, 128, 65, false}, {DType::f32, 64, 65, false},
           {DType::f32, 128, 65, false}, {DType::f32, 64, 0, false}, {DType::f32, 128, 0, false},
           {DType::bf16, 128, 65, true}, {DType::f32, 64, 65, true}}) {  // allowed sizes fit
    const With<std::size_t> just(
        settings->shared, static_cast<std::size_t>(shared_bytes_of_tiles(dtype, d, positions, true, others)));
    At at;
    At::Operands x;
    for (const std::size_t k : {At::query, At::key, At::value}) x[k] = drawn({1, 1, 40, d}, dtype, "x");
    x[At::distance_table] = drawn({1, 40}, dtype, "table");
    if (positions) x[At::position_keys] = drawn({positions, d}, dtype, "e");
    if (others) add_other_gates(at, x);
    for (Tensor& each : x)
      if (each.defined()) each = on_gpu(each);
    CHECK(results(at, x, x[At::query]).size() == (others ? 8 : positions ? 6 : 5));
    if (positions || d > 64) continue;
    add_relative_keys(at, x, 1, 40);
    for (const std::size_t k : {At::relative_query, At::relative_keys}) x[k] = on_gpu(x[k]);
    const With<std::size_t> relative_fits(
        settings->shared, static_cast<std::size_t>(shared_bytes_of_relative_tiles(dtype, d, 0, true)));
    CHECK(results(at, x, x[At::query]).size() == 7);
  }
  const With<std::size_t> small(settings->shared, std::size_t(99) << 10);
  CHECK(refusal(DType::f32, 128, relative).find("heads of 128 numbers in f32 with relative keys given") <
        std::string::npos);
  CHECK(refusal(DType::bf16, 128,
            [](At&, At::Operands& x) {
              x[At::position_keys] = Tensor::zeros({65, 128}, DType::bf16, Device::cuda(0));
            }) ==
        "tiled_attention: 116 KiB of shared memory for heads of 128 numbers in bf16 and gates of 65 positions given; "
        "this GPU has 99");
  CHECK(refusal(DType::f32, 128, nothing) ==
        "tiled_attention: 162 KiB of shared memory for heads of 128 numbers in f32 given; this GPU has 99");
  CHECK(refusal(DType::bf16, 8, [](At& at, At::Operands&) { at.scale = -0.5; }) ==
        "tiled_attention: scale -0.5 given to tiles on a GPU; more than 0 required");
}
