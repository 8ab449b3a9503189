// Tiled attention on the GPU, or on the emulated one, against the CPU's: every program, in sizes off every tile.
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
  index_t batch, heads, key_heads, queries, keys, d;
  std::vector<Term> terms = {};
  double wider = 1;  // factor on the bound of errors
};

Term from(index_t row) {
  return fact([=](At& at) { at.first_row = row; });
}
Term lowest(index_t distance) {
  return fact([=](At& at) { at.lowest = distance; });
}
Term window(index_t keys) {
  return fact([=](At& at) { at.window = keys; });
}
Term operand(At::Operand k, const Shape& shape, const char* purpose, double deviation = 1) {
  return [=](At&, At::Operands& x) { x[k] = drawn(shape, x[0].dtype(), purpose, deviation); };
}
Term table(const Shape& shape) { return operand(At::distance_table, shape, "table"); }
Term column(const Shape& shape) { return operand(At::column_term, shape, "column"); }
Term sink(index_t heads) { return operand(At::sink, {heads}, "sink"); }
Term logits(const Shape& shape, double deviation = 1) { return operand(At::position_logits, shape, "z", deviation); }
Term keys_of_positions(const Shape& shape) { return operand(At::position_keys, shape, "e", 0.3); }
Term slopes(index_t heads, double deviation) { return operand(At::position_slopes, {heads}, "slopes", deviation); }

void growing_column(At&, At::Operands& x) {
  const Shape shape{x[At::key].size(0), x[At::key].size(1), x[At::key].size(2)};
  const Tensor steps = raw::cast(Tensor::arange(shape[2], DType::f64), x[0].dtype());
  x[At::column_term] = raw::copy(raw::expand(raw::reshape(steps, {1, 1, shape[2]}), shape));
}

// Heads inside tokens, as in the layers around attention.
Tensor by_token(const Tensor& x) { return raw::permute(raw::copy(raw::permute(x, {0, 2, 1, 3})), {0, 2, 1, 3}); }

void other_gates(At& at, At::Operands& x) {
  at.gate_scale = 0.6;
  x[At::gate_query] = by_token(drawn(x[At::query].shape(), x[0].dtype(), "gate q"));
  x[At::gate_key] = drawn(x[At::key].shape(), x[0].dtype(), "gate k");
}

// [heads rows d]: row n is at.lowest + n steps away.
Term relative_keys(index_t heads, index_t rows) {
  return [=](At& at, At::Operands& x) {
    const Shape shape = x[At::query].shape();
    at.relative_scale = 0.3;
    x[At::relative_query] = by_token(drawn(shape, x[0].dtype(), "p"));
    x[At::relative_keys] = drawn({heads, rows, shape[3]}, x[0].dtype(), "r");
  };
}
// Returns bin(m) for each distance m of relative keys, which come before.
Term bins(index_t count, const std::function<index_t(index_t)>& bin) {
  return [=](At& at, At::Operands& x) {
    std::vector<double> of;
    for (index_t n = 0; n < x[At::relative_keys].size(1); ++n) of.push_back(static_cast<double>(bin(at.lowest + n)));
    at.bins = count, at.bin_of = Tensor::of(of, {static_cast<index_t>(of.size())}, DType::i64);
  };
}

std::vector<Case> cases() {
  const auto first_ten = [](index_t m) { return std::min<index_t>(m, 9); };
  const auto in_no_order = [](index_t m) { return m < 0 ? 69 : m % 17; };
  std::vector<Case> all{{"one token", 1, 1, 1, 1, 1, 8}, {"heads of 20", 1, 3, 1, 64, 64, 20},
      {"several tiles", 1, 2, 1, 200, 200, 64}, {"heads of 128", 1, 2, 1, 129, 129, 128},
      {"heads of 72", 1, 1, 1, 70, 70, 72}, {"heads of 11", 1, 2, 1, 40, 40, 11},
      {"heads that share keys", 2, 6, 2, 65, 65, 16}, {"fewer queries than keys", 1, 2, 2, 5, 150, 32, {from(145)}},
      {"a tile that ends one key behind the first row", 1, 1, 1, 2, 64, 16, {from(62)}},
      {"not causal", 1, 1, 1, 30, 140, 16, {not_causal}}, {"a window", 1, 1, 1, 200, 200, 16, {window(7)}},
      {"a window on both sides", 1, 1, 1, 150, 150, 16, {not_causal, window(70)}},
      {"padding on both sides", 2, 2, 2, 140, 140, 24, {present(66, 133)}},
      {"a table", 1, 2, 2, 200, 200, 16, {table({2, 150})}},
      {"a table on both sides", 1, 2, 2, 90, 130, 16, {not_causal, lowest(-129), table({2, 219})}},
      {"a table, rows that begin between packs, wide heads", 1, 1, 1, 70, 99, 100,
          {from(29), lowest(-2), table({1, 101})}},
      {"a table, a window and padding", 2, 2, 1, 300, 300, 64, {window(100), present(3, 290), table({2, 300})}},
      {"a column, which grows", 2, 2, 2, 130, 130, 16, {growing_column}},
      {"a column, which grows, and what f32 lost of it", 2, 2, 2, 130, 130, 16,
          {growing_column, operand(At::column_rest, {2, 2, 130}, "rest", 0.5)}},
      {"a sink and a table", 1, 3, 1, 100, 100, 16, {sink(3), table({3, 100})}},
      {"gates that move to the end", 1, 2, 2, 200, 200, 16, {logits({1, 2, 200, 120})}},
      {"gates that are soon full, keys of positions", 2, 2, 1, 200, 200, 24,
          {fact([](At& at) { at.position_scale = 0.7; }), keys_of_positions({17, 24})}},
      {"keys of positions in two tiles", 1, 2, 2, 150, 150, 16, {keys_of_positions({45, 16})}},
      {"gates in heads of 128", 1, 2, 2, 70, 70, 128, {logits({1, 2, 70, 9})}},
      {"one position", 1, 1, 1, 40, 40, 16, {logits({1, 1, 40, 1})}},
      {"gates, a table and a column", 1, 2, 2, 130, 130, 16,
          {logits({1, 2, 130, 40}), table({2, 100}), column({1, 2, 130})}},
      {"gates in a window, padding", 2, 1, 1, 140, 140, 24, {window(50), present(66, 133), logits({2, 1, 140, 21})}},
      {"gates, fewer queries than keys", 1, 2, 2, 21, 150, 32, {from(129), logits({1, 2, 21, 65})}},
      // The gradient of slopes: errors of dA are multiplied by the number of keys, while dA itself sums to about 0 in a
      // row.
      {"gates by slopes, a sink", 1, 2, 2, 100, 100, 16, {slopes(2, 0.2), sink(2)}, 2},
      {"relative keys of each head", 1, 2, 2, 200, 200, 64, {relative_keys(2, 200)}},
      {"relative keys that heads share, of some distances, a window", 2, 4, 2, 130, 130, 20,
          {relative_keys(1, 70), lowest(3), window(90)}},
      {"relative keys in heads of 128, fewer queries than keys", 1, 2, 2, 70, 99, 128,
          {relative_keys(1, 102), lowest(-3), from(29)}},
      {"relative keys, a table and a column", 1, 2, 2, 100, 130, 16,
          {relative_keys(1, 120), from(30), window(110), table({2, 120}), column({1, 2, 130})}},
      {"relative keys and bins, a table and a sink", 2, 2, 1, 100, 100, 11,
          {relative_keys(2, 95), bins(10, first_ten), table({2, 95}), sink(2)}},
      {"relative keys and bins in no order, beyond distances on both sides, padding", 2, 2, 2, 90, 130, 64,
          {relative_keys(1, 150), not_causal, lowest(-90), present(66, 120), bins(70, in_no_order)}},
      // Parts of the keys: one query and several, the last part incomplete and full, some of them out of sight.
      {"parts of keys", 2, 4, 2, 1, 129, 64, {from(128)}},
      {"parts of keys, 16 queries, wide heads", 2, 4, 2, 16, 300, 72, {from(284)}},
      {"parts of keys, a table, a sink, padding", 2, 4, 2, 3, 400, 20,
          {from(397), present(270, 399), table({4, 390}), sink(4)}},
      {"parts of keys, a column in a window", 2, 4, 2, 16, 520, 16, {from(504), window(200), column({2, 4, 520})}},
      {"parts of keys, not causal", 2, 4, 2, 2, 256, 16, {from(100), not_causal}},
      {"parts of keys, gates that move to the end", 2, 4, 2, 3, 390, 16, {from(387), logits({2, 4, 3, 120}, 0.5)}},
      {"parts of keys, gates that are soon full", 2, 4, 2, 16, 390, 16, {from(374), logits({2, 4, 16, 30}, 0.5)}},
      {"parts of keys, gates, a table, padding", 2, 4, 2, 1, 300, 24,
          {from(299), present(66, 200), keys_of_positions({100, 24}), table({4, 300})}},
      {"parts of keys, gates of others by slopes, a window", 2, 4, 2, 3, 300, 16,
          {from(297), window(180), slopes(4, 0.1), other_gates}, 2}};
  const auto also = [&all](const char* more, const Term& term, std::initializer_list<const char*> names) {
    for (const char* name : names) {
      Case other = *std::ranges::find(all, name, &Case::name);
      other.name += more, other.terms.push_back(term);
      all.push_back(other);
    }
  };
  also(", of others", other_gates,
      {"gates that move to the end", "gates that are soon full, keys of positions", "keys of positions in two tiles",
          "gates in heads of 128", "gates, a table and a column", "gates in a window, padding",
          "gates, fewer queries than keys", "gates by slopes, a sink"});
  // Rows of keys begin at every place of the four numbers of a call.
  also(", dropout", dropped,
      {"several tiles", "heads that share keys", "heads of 128", "fewer queries than keys", "a window on both sides",
          "padding on both sides", "a table, rows that begin between packs, wide heads", "a sink and a table",
          "gates, a table and a column", "gates in heads of 128", "gates by slopes, a sink",
          "gates that are soon full, keys of positions", "gates, a table and a column, of others",
          "relative keys, a table and a column", "relative keys and bins, a table and a sink",
          "parts of keys, gates, a table, padding"});
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
  for_each_tiled_dtype({DType::f16, DType::bf16, DType::f32, DType::f64}, [](DType dtype) {
    for (const Case& each : cases()) {
      CAPTURE(each.name);
      At at;
      at.scale = 0.4, at.total_rows = each.queries;
      At::Operands x, there;
      x[At::query] = by_token(drawn({each.batch, each.heads, each.queries, each.d}, dtype, "q"));
      x[At::key] = by_token(drawn({each.batch, each.key_heads, each.keys, each.d}, dtype, "k"));
      x[At::value] = drawn({each.batch, each.key_heads, each.keys, each.d}, dtype, "v");
      for (const Term& term : each.terms) term(at, x);
      if (x[At::column_rest].defined() && size_of(dtype) == 2) continue;  // refused
      std::ranges::transform(x, there.begin(), on_gpu);
      const bool third = x[At::gate_query].defined() || x[At::relative_query].defined();
      if (third && dtype == DType::f32 && !gpu_refusal(at, there).empty()) continue;  // too wide
      Shape of_output = x[At::query].shape();
      of_output[3] += at.bins;
      // The pattern, its gradient and their sums are rounded; in f32 an H200 has an error of 3.2e-5 if gates have
      // parts.
      const double allowed = each.wider * (dtype == DType::f64      ? 1e-12
                                              : dtype == DType::f32 ? 4e-5
                                              : dtype == DType::f16 ? 2e-3
                                                                    : 1.6e-2);
      expect_exact(at, x, by_token(drawn(of_output, dtype, "cotangent")), allowed, each.queries <= 100, results);
    }
  });
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
      const auto numbers = [&] { return tiled_attention(at, x).output.to_vector(); };
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
    return numbers_of(grad(tiled_attention(at, x).output, cotangent, {asked.begin(), asked.end()}));
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
      std::vector<Tensor> all = grad(output, cotangent, leaves);
      all.push_back(output);
      return numbers_of(all);
    };
    CHECK(numbers(0) == numbers(1e30));
  }
}

TEST_CASE("cuda tiles: rows that see nothing are 0, and numbers behind the last key reach no row") {
  const NoGrad forward_alone;
  for (const index_t queries : {140, 1}) {  // in one part of the keys and in two
    At at;
    at.present = on_gpu(present_from(1, 140, 30, 140));
    At::Operands x;
    for (const std::size_t k : {At::query, At::key, At::value}) {
      const Tensor longer = Tensor::full({1, 1, 156, 64}, std::nan(""), DType::bf16);
      raw::copy_into(drawn({1, 1, 140, 64}, DType::bf16, "x"), raw::slice(longer, 2, 0, 140));
      x[k] = raw::slice(on_gpu(longer), 2, 0, k == At::query ? queries : 140);
    }
    const std::vector<double> found = tiled_attention(at, x).output.to_vector();
    for (std::size_t n = 0; n < found.size(); ++n) CHECK((n < 30 * 64 ? found[n] == 0 : std::isfinite(found[n])));
  }
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
  const auto refusal = [](DType dtype, index_t d, const Term& term) {
    At at;
    At::Operands x;
    for (const std::size_t k : {At::query, At::key, At::value})
      x[k] = Tensor::zeros({1, 1, 4, d}, dtype, Device::cuda(0));
    term(at, x);
    return message([&] { (void)tiled_attention(at, x); });
  };
  const auto zeros = [](std::initializer_list<At::Operand> operands, const Shape& shape, DType dtype) -> Term {
    return [=](At&, At::Operands& x) {
      for (const At::Operand k : operands) x[k] = Tensor::zeros(shape, dtype, Device::cuda(0));
    };
  };
  const auto check = [&](DType dtype, index_t d, const Term& term, const char* part) {
    const std::string said = refusal(dtype, d, term);
    CHECK_MESSAGE((said.starts_with("tiled_attention: ") && has(said, part)), said);
  };
  const Term nothing = fact([](At&) {}), relative = [](At&, At::Operands& x) {
    x[At::relative_query] = x[At::query], x[At::relative_keys] = raw::select(x[At::query], 0, 0);
  };
  check(DType::f64, 8, nothing, "f64 given");
  check(DType::bf16, 136, nothing, "at most 128");
  check(
      DType::bf16, 8, [](At&, At::Operands& x) { x[At::gate_query] = x[At::query]; }, "gate_query given");
  check(DType::bf16, 8, fact([](At& at) { at.bins = 3, at.bin_of = Tensor::zeros({4}, DType::i64, Device::cuda(0)); }),
      "3 bins given");
  check(DType::bf16, 8, zeros({At::column_term, At::column_rest}, {1, 1, 4}, DType::f32), "column_rest given");
  check(DType::f32, 8, zeros({At::column_term, At::column_slope}, {1, 1, 4}, DType::f32), "column_slope given");
  check(
      DType::bf16, 8, [&](At& at, At::Operands& x) { relative(at, x), at.relative_scale = -1; }, "scale -1 given");
  check(DType::bf16, 8, fact([](At& at) { at.scale = -0.5; }), "scale -0.5 given");
  std::string in_recording;
  (void)runtime_of(Device::cuda(0)).record([&] {
    in_recording = refusal(DType::bf16, 8, fact([](At& at) { at.dropout = 0.1, at.total_rows = 4; }));
  });
  CHECK(has(in_recording, "the same pairs at each replay"));
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
    const auto fits = [&](std::size_t gradients) {
      At::Operands there;
      std::ranges::transform(x, there.begin(), on_gpu);
      CHECK(results(at, there, there[At::query]).size() == 1 + gradients);
    };
    for (const std::size_t k : {At::query, At::key, At::value}) x[k] = drawn({1, 1, 40, d}, dtype, "x");
    table({1, 40})(at, x);
    if (positions) keys_of_positions({positions, d})(at, x);
    if (others) other_gates(at, x);
    fits(others ? 7 : positions ? 5 : 4);
    if (positions || d > 64) continue;
    relative_keys(1, 40)(at, x);
    const With<std::size_t> relative_fits(
        settings->shared, static_cast<std::size_t>(shared_bytes_of_relative_tiles(dtype, d, 0, true)));
    fits(6);
  }
  const With<std::size_t> small(settings->shared, std::size_t(99) << 10);
  check(DType::f32, 128, relative, "128 numbers in f32 with relative keys");
  check(DType::bf16, 128, zeros({At::position_keys}, {65, 128}, DType::bf16), "116 KiB of shared memory");
  check(DType::f32, 128, nothing, "162 KiB of shared memory");
}
