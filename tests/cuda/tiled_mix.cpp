// The head mix in tiles on the GPU, or on the emulated one, against the CPU's: DAPE's network and CDAPE's, in sizes off every tile.
#include "autograd/recording.h"
#include "autograd/tiled/tiled_ops.h"
#include "tensor/device/device_runtime.h"
#include "tensor/kernels.h"
#include "tensor/tiles/gpu_programs.h"
#include "tests/cuda/tiles.h"

using namespace whence;
using namespace whence::test;

namespace {

using At = TiledCall;

struct Case {
  std::string name;
  index_t batch = 1, heads = 3, key_heads = 3, queries = 17, keys = 17, d = 8, beside = 0, width = 32;
  std::function<void(At&, At::Operands&)> more = [](At&, At::Operands&) {};
};

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

std::vector<Case> cases() {
  std::vector<Case> all{{.name = "one token", .queries = 1, .keys = 1}, {.name = "one tap"},
      {.name = "three taps", .beside = 1},
      {.name = "one head", .heads = 1, .key_heads = 1, .queries = 140, .keys = 140, .d = 64},
      {.name = "12 heads, several strips", .heads = 12, .key_heads = 12, .queries = 70, .keys = 70, .d = 64},
      {.name = "6 heads, three taps, several walks",
          .heads = 6,
          .key_heads = 6,
          .queries = 150,
          .keys = 150,
          .d = 16,
          .beside = 1},
      {.name = "16 heads of 128, narrow",
          .heads = 16,
          .key_heads = 16,
          .queries = 33,
          .keys = 33,
          .d = 128,
          .beside = 1,
          .width = 5},
      {.name = "heads that share keys",
          .batch = 2,
          .heads = 6,
          .key_heads = 2,
          .queries = 65,
          .keys = 65,
          .d = 20,
          .beside = 1}};
  all.push_back({"fewer queries than keys", 1, 4, 4, 5, 150, 32, 1, 32,
      [](At& at, At::Operands&) { at.first_row = 145, at.behind = 1; }});
  all.push_back({"not causal", 1, 2, 2, 30, 140, 16, 0, 32, [](At& at, At::Operands&) { at.causal = false; }});
  all.push_back({"a window", 1, 2, 2, 150, 150, 16, 0, 32, [](At& at, At::Operands&) { at.window = 70; }});
  all.push_back(
      {"a hidden map that is blanked", 1, 2, 2, 90, 90, 16, 1, 32, [](At& at, At::Operands&) { at.remask = true; }});
  for (const index_t beside : {index_t(0), index_t(1)})
    all.push_back({"padding on both sides", 2, 5, 5, 140, 140, 24, beside, 32,
        [](At& at, At::Operands&) { at.present = present_from(2, 140, 66, 133), at.behind = 1; }});
  all.push_back(
      {"rows that begin anywhere, tables of some distances", 1, 3, 3, 150, 163, 16, 1, 32, [](At& at, At::Operands& x) {
         at.first_row = 13, at.lowest = 3, at.table_lowest = 5;
         x[At::distance_table] = drawn({3, 90}, x[0].dtype(), "table");
       }});
  all.push_back({"a sequence of padding alone, a hidden map that is blanked", 2, 4, 2, 70, 70, 24, 1, 32,
      [](At& at, At::Operands&) { at.present = present_from(2, 70, 0, 0), at.remask = true; }});
  for (const index_t beside : {index_t(0), index_t(1)})
    all.push_back(
        {"some rows at a time, of some sequences", 3, 2, 1, 140, 140, 8, beside, 8, [](At& at, At::Operands& x) {
           at.scratch_bytes = index_t(300) << 10;
           x[At::distance_table] = drawn({2, 140}, x[0].dtype(), "table");
         }});
  all.push_back({"all rows of two sequences at a time", 3, 2, 2, 60, 60, 16, 1, 8,
      [](At& at, At::Operands&) { at.scratch_bytes = index_t(600) << 10; }});
  for (const index_t beside : {index_t(0), index_t(1)})
    all.push_back({"a table and dropout", 1, 5, 5, 75, 75, 16, beside, 20, [](At& at, At::Operands& x) {
                     at.dropout = 0.3, at.stream = Stream(7, "pairs", 3), at.total_rows += 2;
                     x[At::distance_table] = drawn({5, 80}, x[0].dtype(), "table");
                   }});
  all.push_back({"pieces, padding on both sides", 2, 5, 5, 75, 75, 24, 0, 20, [](At& at, At::Operands& x) {
                   at.present = present_from(2, 75, 14, 70);
                   add_pieces(x, 75);
                 }});
  all.push_back(
      {"pieces that only the mix reads, some rows at a time", 2, 2, 1, 140, 140, 8, 0, 8, [](At& at, At::Operands& x) {
         at.adds_pieces = false, at.scratch_bytes = index_t(300) << 10;
         add_pieces(x, 140);
       }});
  all.push_back({"pieces of 16 heads, rows that begin anywhere, some distances", 1, 16, 16, 33, 50, 128, 0, 5,
      [](At& at, At::Operands& x) {
        at.first_row = 17, at.lowest = at.table_lowest = 3;
        add_pieces(x, 40);
        x[At::distance_table] = drawn({16, 40}, x[0].dtype(), "table");
      }});
  all.push_back({"pieces, not causal", 1, 2, 2, 30, 140, 16, 0, 32, [](At& at, At::Operands& x) {
                   at.causal = false, at.lowest = -139;
                   add_pieces(x, 169);
                 }});
  return all;
}

std::vector<Tensor> results(const At& at, const At::Operands& x, const Tensor& cotangent) {
  return output_and_gradients(x, cotangent, [&](const At::Operands& leaves) { return tiled_mix(at, leaves); });
}

}  // namespace

TEST_CASE("cuda tiles: the head mix has the CPU's numbers and gradients, in every order of threads") {
  gpu::emulator::Settings* const settings = emulator_settings();
  std::optional<With<std::size_t>> shared;
  std::optional<With<bool>> tiles_in_f64;
  if (settings) shared.emplace(settings->shared, std::size_t(227) << 10);
  for (const DType dtype : {DType::f64, DType::f16, DType::bf16}) {
    if (dtype == DType::f64 && !settings) continue;
    tiles_in_f64.reset();
    if (dtype == DType::f64) tiles_in_f64.emplace(settings->tiles_in_f64, true);
    for (const Case& each : cases()) {
      CAPTURE(std::string(to_string(dtype)));
      CAPTURE(each.name);
      CAPTURE(each.beside);
      At at;
      at.scale = 1 / std::sqrt(static_cast<double>(each.d)), at.total_rows = each.queries;
      at.left = at.right = each.beside, at.table_lowest = -each.beside;
      // A rounded hidden number may be on the other side of the kink, where its gradient differs.
      at.slope = dtype == DType::f64 ? 0.01 : 0.98;
      At::Operands x, wide, there;
      const index_t taps = 2 * each.beside + 1;
      x[At::query] = drawn({each.batch, each.heads, each.queries, each.d}, dtype, "q");
      x[At::key] = drawn({each.batch, each.key_heads, each.keys, each.d}, dtype, "k");
      x[At::value] = drawn({each.batch, each.key_heads, each.keys, each.d}, dtype, "v");
      x[At::mix_input] = drawn({each.width, each.heads, taps}, dtype, "input", 0.2);
      x[At::mix_table] = drawn({each.beside + 1, each.width, each.keys + each.beside}, dtype, "u", 0.5);
      x[At::mix_output] = drawn({each.heads, each.width, taps}, dtype, "output", 0.1);
      each.more(at, x);
      const Tensor cotangent = drawn(x[At::query].shape(), dtype, "cotangent");
      for (std::size_t k = 0; k < x.size(); ++k)
        if (x[k].defined()) wide[k] = raw::cast(x[k], DType::f64), there[k] = on_gpu(x[k]);
      const std::vector<Tensor> wanted = results(at, wide, raw::cast(cotangent, DType::f64));
      At on_there = at;
      on_there.present = on_gpu(at.present);
      std::vector<std::vector<double>> before;
      const double allowed = dtype == DType::f64 ? 1e-12 : dtype == DType::f16 ? 4e-3 : 2e-2;
      const auto check = [&] { compare(results(on_there, there, on_gpu(cotangent)), wanted, allowed, before); };
      if (dtype == DType::bf16 && each.queries <= 40)
        in_every_order(check);
      else
        in_order(dtype == DType::f16 ? 1 : 20, check);
    }
  }
}

TEST_CASE("cuda tiles: a head mix holds scores beyond f16's range") {
  std::optional<With<std::size_t>> shared;
  if (gpu::emulator::Settings* const settings = emulator_settings())
    shared.emplace(settings->shared, std::size_t(227) << 10);
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
      for (const double number : raw::to_device(each, Device::cpu()).to_vector()) CHECK(std::isfinite(number));
  }
}

TEST_CASE("cuda tiles: operands of a head mix are made of its parameters, and their gradients, as the equations say") {
  struct Network {
    MixNetwork at;
    index_t channels;
    bool table;
  };
  const index_t heads = 3, width = 4, count = 70;
  for (const Network& each : {Network{{0, 0, heads, heads, true}, 2 * heads, true},
           {{1, 1, heads, heads, true}, 2 * heads, true}, {{1, 1, heads, heads, false}, heads, true},
           {{0, 0, heads, 2 * heads, true}, 2 * heads, true}, {{2, 0, heads, heads, true}, heads, false}}) {
    const MixNetwork& at = each.at;
    const index_t taps = at.left + 1 + at.right, distances = count + at.right, first = each.channels - heads;
    CAPTURE(taps);
    CAPTURE(at.pairs);
    const auto of = [](const Shape& shape, const char* name) { return drawn(shape, DType::f64, name); };
    const Tensor table = each.table ? of({heads, count}, "table") : Tensor(),
                 input = of({width, each.channels, taps}, "W1"), bias = of({width}, "b1"),
                 output_bias = of({heads}, "b2"), d_pairs = of({width, at.pairs, taps}, "dW1"),
                 du = of({at.left + 1, width, distances}, "du"), d_added = of({heads, count}, "dtable");
    const auto zeros = [](const Tensor& x) { return x.defined() ? Tensor::zeros(x.shape(), DType::f64) : x; };
    const std::vector<Tensor> made{zeros(d_pairs), zeros(du), zeros(d_added)},
        d{zeros(table), zeros(input), zeros(bias), zeros(output_bias)};
    // y += a b, and the gradients of a and b.
    const auto add = [](const Tensor& y, const Tensor& dy, index_t n, const Tensor& a, const Tensor& da, index_t i,
                         const Tensor* b = nullptr, const Tensor* db = nullptr, index_t j = 0) {
      const double by = b ? b->data<double>()[j] : 1;
      y.data<double>()[n] += a.data<double>()[i] * by, da.data<double>()[i] += dy.data<double>()[n] * by;
      if (b) db->data<double>()[j] += dy.data<double>()[n] * a.data<double>()[i];
    };
    for (index_t e = 0; e <= at.left; ++e)
      for (index_t n = 0; n < width; ++n)
        for (index_t m = 0; m < distances; ++m) {
          const index_t y = (e * width + n) * distances + m;
          add(made[1], du, y, bias, d[2], n);
          for (index_t h = 0; h < heads && each.table; ++h)
            for (index_t t = at.left - e; t < taps; ++t)
              if (const index_t from = m - at.right - t + at.left; from >= 0 && from < count)
                add(made[1], du, y, input, d[1], (n * each.channels + first + h) * taps + t, &table, &d[0],
                    h * count + from);
        }
    for (index_t n = 0; n < heads * count; ++n) {
      add(made[2], d_added, n, output_bias, d[3], n / count);
      if (each.table && at.adds_base) add(made[2], d_added, n, table, d[0], n);
    }
    for (index_t n = 0; n < width * at.pairs * taps; ++n) {
      const index_t t = n % taps, x = n / taps % at.pairs, channel = x < heads ? x : first + x - heads;
      add(made[0], d_pairs, n, input, d[1], (n / taps / at.pairs * each.channels + channel) * taps + t);
    }
    std::vector<Tensor> there, wanted(made);
    for (const Tensor& x : {table, input, bias, output_bias, d_pairs, du, d_added}) there.push_back(on_gpu(x));
    const auto like = [](const Tensor& x) { return x.defined() ? Tensor::like(x) : x; };
    std::vector<Tensor> found{like(there[4]), like(there[5]), like(there[6])};
    kernels(there[1]).mix_terms(at, DType::f64, there[0], there[1], there[2], there[3], found[0], found[1], found[2]);
    for (std::size_t k = each.table ? 0 : 1; k < d.size(); ++k) wanted.push_back(d[k]);
    const Tensor d_table = like(there[0]);
    const std::vector<Tensor> gradients{like(there[1]), like(there[2]), like(there[3])};
    kernels(there[1]).mix_terms_backward(at, DType::f64, there[0], there[1], there[4], there[5], there[6], d_table,
        gradients[0], gradients[1], gradients[2]);
    if (each.table) found.push_back(d_table);
    found.insert(found.end(), gradients.begin(), gradients.end());
    std::vector<std::vector<double>> before;
    compare(found, wanted, 1e-12, before);
  }
}

TEST_CASE("cuda tiles: a head mix without a program is refused before anything runs, with the reason") {
  const auto refusal = [](DType dtype, index_t heads, index_t width, index_t taps, index_t pieces = 0) {
    At at;
    at.left = at.right = taps / 2;
    At::Operands x;
    for (const std::size_t k : {At::query, At::key, At::value}) x[k] = Tensor::zeros({1, heads, 4, 8}, dtype);
    x[At::mix_input] = Tensor::zeros({width, heads, taps}, dtype);
    x[At::mix_table] = Tensor::zeros({taps / 2 + 1, width, 4}, dtype);
    x[At::mix_output] = Tensor::zeros({heads, width, taps}, dtype);
    if (pieces > 0) {
      add_pieces(x, 4);
      for (const std::size_t k : {At::piece_begins, At::piece_slopes, At::piece_offsets})
        x[k] = Tensor::zeros(k == At::piece_begins ? Shape{pieces} : Shape{heads, pieces}, dtype);
    }
    for (Tensor& each : x)
      if (each.defined()) each = on_gpu(each);
    return message([&] { (void)tiled_mix(at, x); });
  };
  CHECK(refusal(DType::f32, 2, 8, 1) == "tiled_mix: f32 given to a head mix in tiles on a GPU; f16 or bf16 required");
  CHECK(refusal(DType::bf16, 17, 8, 1) == "tiled_mix: 17 heads given to a head mix on a GPU; at most 16 required");
  CHECK(refusal(DType::bf16, 2, 33, 1) ==
        "tiled_mix: 33 hidden numbers given to a head mix on a GPU; at most 32 required");
  CHECK(refusal(DType::bf16, 2, 8, 5) ==
        "tiled_mix: 5 taps with 2 on the right given to a head mix on a GPU; one, or one on either side, required");
  CHECK(refusal(DType::bf16, 2, 8, 3, 4) ==
        "tiled_mix: 3 taps and a piecewise term given to a head mix on a GPU; one tap required");
  CHECK(refusal(DType::bf16, 2, 8, 1, 65) == "tiled_mix: 65 pieces given to a head mix on a GPU; at most 64 required");
  gpu::emulator::Settings* const settings = emulator_settings();
  if (!settings) return;
  const With<std::size_t> less(settings->shared, std::size_t(99) << 10);
  CHECK(refusal(DType::bf16, 2, 8, 1, 4) ==
        "tiled_mix: 121 KiB of shared memory for a head mix with pieces given; this GPU has 99");
}
