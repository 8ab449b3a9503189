// The head mix in tiles on the GPU, or on the emulated one, against the CPU's: DAPE's network and CDAPE's, in sizes off every tile.
#include "autograd/tiled/tiled_ops.h"
#include "tensor/device/device_runtime.h"
#include "tensor/tiles/gpu_programs.h"
#include "tests/cuda/tiles.h"

using namespace whence;
using namespace whence::test;

namespace {

using At = TiledCall;

struct Case {
  std::string name;
  index_t batch, heads, key_heads, queries, keys, d, beside, width;
  std::vector<Term> terms = {};
};

Term table(index_t distances) {
  return [=](At&, At::Operands& x) {
    x[At::distance_table] = drawn({x[At::query].size(1), distances}, x[0].dtype(), "table");
  };
}
// Four pieces. Rows of all heads and sequences differ.
void add_pieces(At::Operands& x, index_t distances) {
  const Shape of = x[At::query].shape();
  const DType dtype = x[At::query].dtype();
  x[At::mix_input] = drawn({x[At::mix_input].size(0), 2 * of[1], x[At::mix_input].size(2)}, dtype, "input", 0.2);
  x[At::piece_distance] = raw::cast(Tensor::uniform({distances}, 0.2, 2, Stream(1, "distance"), DType::f64), dtype);
  x[At::piece_row] = raw::cast(Tensor::uniform({of[0], of[1], of[2]}, 0.3, 1, Stream(1, "row"), DType::f64), dtype);
  x[At::piece_begins] = raw::cast(Tensor::of({-9, 0.4, 0.9, 1.3}, {4}, DType::f64), dtype);
  x[At::piece_slopes] = drawn({of[1], 4}, dtype, "slopes"), x[At::piece_offsets] = drawn({of[1], 4}, dtype, "offsets");
}

Term pieces(index_t distances) {
  return [=](At&, At::Operands& x) { add_pieces(x, distances); };
}

std::vector<Case> cases() {
  const Term remask = fact([](At& at) { at.remask = true; }), behind = fact([](At& at) { at.behind = 1; });
  const auto at_a_time = [](index_t kibibytes) { return fact([=](At& at) { at.scratch_bytes = kibibytes << 10; }); };
  std::vector<Case> all{{"one token", 1, 3, 3, 1, 1, 8, 0, 32}, {"one tap", 1, 3, 3, 17, 17, 8, 0, 32},
      {"three taps", 1, 3, 3, 17, 17, 8, 1, 32}, {"one head", 1, 1, 1, 140, 140, 64, 0, 32},
      {"12 heads, several strips", 1, 12, 12, 70, 70, 64, 0, 32},
      {"6 heads, three taps, several walks", 1, 6, 6, 150, 150, 16, 1, 32},
      {"16 heads of 128, narrow", 1, 16, 16, 33, 33, 128, 1, 5}, {"heads that share keys", 2, 6, 2, 65, 65, 20, 1, 32},
      {"fewer queries than keys", 1, 4, 4, 5, 150, 32, 1, 32, {fact([](At& at) { at.first_row = 145; }), behind}},
      {"not causal", 1, 2, 2, 30, 140, 16, 0, 32, {not_causal}},
      {"a window", 1, 2, 2, 150, 150, 16, 0, 32, {fact([](At& at) { at.window = 70; })}},
      {"a hidden map that is blanked", 1, 2, 2, 90, 90, 16, 1, 32, {remask}},
      {"rows that begin anywhere, tables of some distances", 1, 3, 3, 150, 163, 16, 1, 32,
          {fact([](At& at) { at.first_row = 13, at.lowest = 3, at.table_lowest = 5; }), table(90)}},
      {"a sequence of padding alone, a hidden map that is blanked", 2, 4, 2, 70, 70, 24, 1, 32,
          {present(0, 0), remask}},
      {"all rows of two sequences at a time", 3, 2, 2, 60, 60, 16, 1, 8, {at_a_time(600)}},
      {"pieces, padding on both sides", 2, 5, 5, 75, 75, 24, 0, 20, {present(14, 70), pieces(75)}},
      {"pieces that only the mix reads, some rows at a time", 2, 2, 1, 140, 140, 8, 0, 8,
          {fact([](At& at) { at.adds_pieces = false; }), at_a_time(300), pieces(140)}},
      {"pieces of 16 heads, rows that begin anywhere, some distances", 1, 16, 16, 33, 50, 128, 0, 5,
          {fact([](At& at) { at.first_row = 17, at.lowest = at.table_lowest = 3; }), pieces(40), table(40)}},
      {"pieces, not causal", 1, 2, 2, 30, 140, 16, 0, 32,
          {not_causal, fact([](At& at) { at.lowest = -139; }), pieces(169)}}};
  for (const index_t beside : {index_t(0), index_t(1)}) {
    all.push_back({"padding on both sides", 2, 5, 5, 140, 140, 24, beside, 32, {present(66, 133), behind}});
    all.push_back(
        {"some rows at a time, of some sequences", 3, 2, 1, 140, 140, 8, beside, 8, {at_a_time(300), table(140)}});
    all.push_back({"a table and dropout", 1, 5, 5, 75, 75, 16, beside, 20, {dropped, table(80)}});
  }
  return all;
}

std::vector<Tensor> results(const At& at, const At::Operands& x, const Tensor& cotangent) {
  return output_and_gradients(x, cotangent, [&](const At::Operands& leaves) { return tiled_mix(at, leaves); });
}

}  // namespace

TEST_CASE("cuda tiles: the head mix has the CPU's numbers and gradients, in every order of threads") {
  for_each_tiled_dtype({DType::f64, DType::f16, DType::bf16}, [](DType dtype) {
    for (const Case& each : cases()) {
      INFO(each.name, ", beside ", each.beside);
      At at;
      at.scale = 1 / std::sqrt(static_cast<double>(each.d)), at.total_rows = each.queries;
      at.left = at.right = each.beside, at.table_lowest = -each.beside;
      // A rounded hidden number may be on the other side of the kink, where its gradient differs.
      at.slope = dtype == DType::f64 ? 0.01 : 0.98;
      At::Operands x;
      const index_t taps = 2 * each.beside + 1;
      x[At::query] = drawn({each.batch, each.heads, each.queries, each.d}, dtype, "q");
      x[At::key] = drawn({each.batch, each.key_heads, each.keys, each.d}, dtype, "k");
      x[At::value] = drawn({each.batch, each.key_heads, each.keys, each.d}, dtype, "v");
      x[At::mix_input] = drawn({each.width, each.heads, taps}, dtype, "input", 0.2);
      x[At::mix_table] = drawn({each.beside + 1, each.width, each.keys + each.beside}, dtype, "u", 0.5);
      x[At::mix_output] = drawn({each.heads, each.width, taps}, dtype, "output", 0.1);
      for (const Term& term : each.terms) term(at, x);
      const double allowed = dtype == DType::f64 ? 1e-12 : dtype == DType::f16 ? 4e-3 : 2e-2;
      expect_exact(at, x, drawn(x[At::query].shape(), dtype, "cotangent"), allowed, each.queries <= 40, results);
    }
  });
}

TEST_CASE("cuda tiles: a head mix holds scores beyond f16's range") {
  const SharedMemoryOfH200 shared;
  for (const DType dtype : {DType::f16, DType::bf16}) {
    CAPTURE(std::string(to_string(dtype)));
    At at;
    at.scale = 8192, at.total_rows = 17;
    std::vector<double> keys;  // scores are 8192 apart: each row has one key
    for (int n = 0; n < 3 * 17; ++n) keys.push_back(n * 7 % 17 - 8);
    At::Operands x, wide, there;
    x[At::query] = Tensor::ones({1, 3, 17, 1}, dtype), x[At::key] = Tensor::of(keys, {1, 3, 17, 1}, dtype);
    x[At::value] = drawn({1, 3, 17, 1}, dtype, "v"), x[At::mix_input] = drawn({32, 3, 1}, dtype, "input", 0.2);
    x[At::mix_table] = drawn({1, 32, 17}, dtype, "u"), x[At::mix_output] = drawn({3, 32, 1}, dtype, "output", 0.1);
    for (std::size_t k = 0; k < x.size(); ++k)
      if (x[k].defined()) wide[k] = raw::cast(x[k], DType::f64), there[k] = on_gpu(x[k]);
    const std::vector<Tensor> found = results(at, there, there[At::value]);
    std::vector<std::vector<double>> before;
    compare({found[0]}, {results(at, wide, wide[At::value])[0]}, 4e-3, before);
    for (const Tensor& each : found)
      for (const double number : each.to_vector()) CHECK(std::isfinite(number));
  }
}

TEST_CASE("cuda tiles: a head mix without a program is refused before anything runs, with the reason") {
  const auto refusal = [](DType dtype, index_t heads, index_t width, index_t taps, index_t count) {
    At at;
    at.left = at.right = taps / 2;
    At::Operands x;
    for (const std::size_t k : {At::query, At::key, At::value}) x[k] = Tensor::zeros({1, heads, 4, 8}, dtype);
    x[At::mix_input] = Tensor::zeros({width, heads, taps}, dtype);
    x[At::mix_table] = Tensor::zeros({taps / 2 + 1, width, 4}, dtype);
    x[At::mix_output] = Tensor::zeros({heads, width, taps}, dtype);
    if (count > 0) {
      add_pieces(x, 4);
      for (const std::size_t k : {At::piece_begins, At::piece_slopes, At::piece_offsets})
        x[k] = Tensor::zeros(k == At::piece_begins ? Shape{count} : Shape{heads, count}, dtype);
    }
    for (Tensor& each : x)
      if (each.defined()) each = on_gpu(each);
    return message([&] { (void)tiled_mix(at, x); });
  };
  struct Row {
    DType dtype;
    index_t heads, width, taps, pieces;
    const char* part;
  };
  for (const Row& row : {Row{DType::f32, 2, 8, 1, 0, "f32 given"}, {DType::bf16, 17, 8, 1, 0, "17 heads"},
           {DType::bf16, 2, 33, 1, 0, "33 hidden"}, {DType::bf16, 2, 8, 5, 0, "5 taps with 2"},
           {DType::bf16, 2, 8, 3, 4, "3 taps and a piecewise term"}, {DType::bf16, 2, 8, 1, 65, "65 pieces"}}) {
    const std::string said = refusal(row.dtype, row.heads, row.width, row.taps, row.pieces);
    CHECK_MESSAGE((said.starts_with("tiled_mix: ") && has(said, row.part)), said);
  }
  gpu::emulator::Settings* const settings = emulator_settings();
  if (!settings) return;
  const With<std::size_t> less(settings->shared, std::size_t(99) << 10);
  CHECK(has(refusal(DType::bf16, 2, 8, 1, 4), "121 KiB of shared memory"));
}
