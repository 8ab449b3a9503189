// Rows of kernels that read and add at indices, at positions, by distances, and along the keys of a convolution. Except
// for rows that are added, their numbers on the CPU are judged as ops, by the references and duals of autograd/check.
#include "tensor/convolution.h"
#include "tensor/pairs.h"
#include "tests/tensor/kernels/table.h"

namespace whence::test {
namespace {

// ---- At indices.

KernelCase scatter(index_t to, index_t width, const Numbers& index, DType index_dtype = DType::i64) {
  const index_t count = static_cast<index_t>(index.size());
  const auto sums = [=](In in, In out) {
    Numbers y = read(out[0]);
    const Numbers from = read(in[1]);
    for (std::size_t i = 0; i < from.size(); ++i)
      y[static_cast<std::size_t>(index[i / place(width)]) * place(width) + i % place(width)] += from[i];
    return y;
  };
  return {"scatter_add_rows", to_text(count, " rows of ", width, " to ", to),
      {chosen(index, {count}, index_dtype), rows({count, width})}, {rows({to, width})},
      [](Kernels& k, In in, In out) { k.scatter_add_rows(in[0], in[1], out[0]); }, sums, {count}};
}
void add_scatter(KernelCases& table) {
  const auto indices = [](index_t count, const auto& row_of) {
    Numbers index;
    for (index_t i = 0; i < count; ++i) index.push_back(static_cast<double>(row_of(i)));
    return index;
  };
  const auto any_of = [&](index_t count, index_t to) {
    return indices(count, [=](index_t i) { return i * 7919 % to; });
  };
  for (const index_t count : {1, 2, 33, 1000, 5000}) {
    for (const index_t width : {1, 3, 40}) {
      if (count * width > 50000) continue;
      for (KernelCase row : {scatter(5, width, indices(count, [](index_t) { return 3; })),
               scatter(count, width, indices(count, [=](index_t i) { return count - 1 - i; })),
               scatter(37, width, any_of(count, 37))}) {
        row.dtypes = {DType::f32};
        table.push_back(row);
      }
    }
  }
  for (const DType index : {DType::i32, DType::i64}) {
    table.push_back(scatter(9, 7, any_of(333, 9), index));
    for (const index_t to : {1, 5, 40})
      for (const index_t width : {1, 6, 300})
        table.push_back(scatter(to, width, indices(33, [=](index_t i) { return i * i % to; }), index));
  }
  table.push_back(scatter(4, 3, {}));
  table.push_back(scatter(37, 5, any_of(40001, 37)).on_threads());
  table.push_back(scatter(100, 64, any_of(4096, 100)).counted(0));
}

KernelCase gather(const Shape& x, const Shape& index, const Shape& picked, int axis) {
  return {"gather", to_text(x, " at ", index), {rows(x), below(x[axis], index)}, {rows(picked)},
      [=](Kernels& k, In in, In out) { k.gather(in[0], in[1], axis, out[0]); }};
}
KernelCase sum_by_index(const Shape& x, const Shape& index, const Shape& picked, int axis) {
  return {"sum_by_index", to_text(x, " at ", index), {rows(picked), below(x[axis], index)}, {rows(x)},
      [=](Kernels& k, In in, In out) { k.sum_by_index(in[0], in[1], axis, out[0]); }, {}, {picked[axis]}};
}
KernelCase checked_index(const Shape& shape) {
  return {"checked_index", to_text(shape), {below(32, shape)}, {below(32, shape)},
      [](Kernels& k, In in, In out) {
        k.copy(k.checked_index({"planted", "index", 32, -1}, in[0]), out[0]);
      },
      [](In in, In) { return read(in[0]); }, {1}, {DType::i64}};
}

// ---- At real positions, some of them outside of the table.

// The textbook loop: f(position, its row of the table, the row below it, the row above it, the weight of that one).
template <class F> void each_position(In in, const F& f) {
  const Numbers table = read(in[0]), position = read(in[1]);
  const std::size_t rows = place(in[0].size(-1)), width = place(in[1].size(-1));
  for (std::size_t j = 0; j < position.size(); ++j) {
    const double p = std::clamp(position[j], 0.0, static_cast<double>(rows - 1)), below = std::floor(p);
    const std::size_t first = j / width * rows;
    f(j, table, first + static_cast<std::size_t>(below), first + static_cast<std::size_t>(std::ceil(p)), p - below);
  }
}
Results read_at(In in, In) {
  Numbers y(place(in[1].numel()));
  each_position(in, [&](std::size_t j, const Numbers& t, std::size_t a, std::size_t c, double w) {
    y[j] = (1 - w) * t[a] + w * t[c];
  });
  return y;
}
Results gradients_at(In in, In) {
  Numbers dtable(place(in[0].numel())), dposition(place(in[1].numel()));
  const Numbers dy = read(in[2]);
  each_position(in, [&](std::size_t j, const Numbers& t, std::size_t a, std::size_t c, double w) {
    dtable[a] += (1 - w) * dy[j], dtable[c] += w * dy[j], dposition[j] = (t[c] - t[a]) * dy[j];
  });
  return {dtable, dposition};
}

KernelCase lerp(const Shape& table, const Shape& places, bool backward) {
  const double end = static_cast<double>(std::min<index_t>(table[-1], 100));
  const Operand position = then(rows(places), [=](const Tensor& x) {
    return raw::unary(functions::Affine{}, x, {end / 4, end / 2});
  });
  KernelCase row{"lerp_at", to_text(table, " at ", places), {rows(table), position}, {rows(places)},
      [](Kernels& k, In in, In out) { k.lerp_at(in[0], in[1], out[0]); }, read_at, {4}};
  if (!backward) return row;
  row.kernel = "lerp_at_backward", row.loops = gradients_at, row.terms = {places[-1]};
  row.in.push_back(rows(places)), row.out.push_back(rows(places)), row.out[0] = rows(table);
  row.call = [](Kernels& k, In in, In out) { k.lerp_at_backward(in[0], in[1], in[2], out[0], out[1]); };
  return row;
}
// Positions in f32, the rest in 16 bits: the bits of casts before and after.
KernelCase mixed_lerp(const Shape& table, const Shape& places, bool backward) {
  KernelCase row = lerp(table, places, backward);
  row.name += ", wide", row.dtypes = {DType::f16, DType::bf16}, row.in[1] = wide(row.in[1]);
  if (backward) row.out[1] = wide(row.out[1]);
  row.composed = [call = row.call](Kernels& k, In in, In out) {
    const auto in_f32 = [](const Tensor& x) { return Tensor::empty(x.shape(), DType::f32, x.device()); };
    Tensors from = in, to = out;
    for (std::size_t n = 0; n < in.size(); n += 2) k.copy(in[n], from[n] = in_f32(in[n]));
    to[0] = in_f32(out[0]);
    call(k, from, to);
    k.copy(to[0], out[0]);
  };
  return row;
}

// ---- By the steps between queries and keys.

KernelCases by_distance(const Steps& steps, index_t heads) {
  const Shape table{heads, steps.count}, pairs{steps.batch(), heads, steps.query.size(1), steps.key.size(1)};
  const auto row = [&](const char* kernel, const std::vector<Operand>& in, const Shape& out, index_t terms,
                       const std::function<void(Kernels&, const Steps&, In, const Tensor&)>& call) {
    return KernelCase{kernel, to_text(table, " and ", pairs), in, {rows(out)},
        [=](Kernels& k, In given, In y) { call(k, steps.on(y[0].device()), given, y[0]); }, {}, {terms}};
  };
  return {row("read_by_distance", {rows(table)}, pairs, 0,
              [](Kernels& k, const Steps& by, In in, const Tensor& y) { k.read_by_distance(by, in[0], y); }),
      row("sum_by_distance", {rows(pairs)}, table, steps.batch() * pairs[2],
          [](Kernels& k, const Steps& by, In in, const Tensor& y) { k.sum_by_distance(by, in[0], y); })};
}
KernelCase band_mask(const Shape& seen, const Band& band, bool padded) {
  return {"band_mask", to_text(seen, padded ? ", padded" : "", ", before ", band.before, ", after ", band.after),
      {padded ? mask({seen[0], 1, 1, seen[3]}) : none()}, {mask(seen)},
      [=](Kernels& k, In in, In out) { k.band_mask(band, in[0], out[0]); },
      [=](In in, In) {
        const Numbers present = padded ? read(in[0]) : Numbers();
        Numbers kept;
        for (index_t n = 0; n < numel(seen); ++n) {
          const index_t key = n % seen[3], row = band.first_row + n / seen[3] % seen[2], b = n / seen[3] / seen[2];
          kept.push_back(key >= row - band.before && key <= row + band.after &&
                         (!padded || present[place(b * seen[3] + key)] != 0));
        }
        return kept;
      },
      {1}, {DType::boolean}};
}
void add_pairs(KernelCases& table) {
  const auto from = [](index_t begin, index_t end) {
    return raw::slice(raw::unsqueeze(Tensor::arange(end, DType::i64), 0), 1, begin, end);
  };
  const Tensor scattered = Tensor::of({3, 9, 4, 0, 11, 7, 7, 2, 5, 30}, {2, 5}, DType::i64);
  for (const Steps& steps : {Steps::of(from(35, 40), from(0, 40), true), Steps::of(from(0, 7), from(0, 7), false),
           Steps::of(scattered, from(0, 12), false), Steps::of(scattered, scattered, true)})
    for (const KernelCase& row : by_distance(steps, 3)) table.push_back(row);
  for (const KernelCase& row : by_distance(Steps::of(from(448, 512), from(0, 512), true), 12))
    table.push_back(row.counted(row.kernel == "sum_by_distance" ? 0 : 1));
  for (const bool padded : {false, true})
    for (const bool causal : {false, true})
      for (const index_t window : {0, 1, 20})
        table.push_back(band_mask({2, 1, 5, 33}, Band::of(28, causal, window), padded));
  table.push_back(band_mask({1, 1, 64, 512}, {448}, false).counted(1));
}

// ---- Along keys.

KernelCases convolutions(const Convolution& at) {
  const Shape x{at.batch, at.channels, at.rows, at.keys}, out{at.batch, at.outputs, at.rows, at.keys_out};
  const Shape weight{at.outputs, at.channels, 1, at.taps}, turned{at.channels, at.outputs, 1, at.taps};
  const auto row = [&](const Operand& by, const Operand& bias, bool adjoint) {
    return KernelCase{"convolve_keys", to_text(x, " by ", weight, adjoint ? ", adjoint" : ""), {rows(x), by, bias},
        {rows(out)}, [=](Kernels& k, In in, In y) { k.convolve_keys(at, in[0], in[1], adjoint, in[2], y[0]); }, {},
        {at.terms()}};
  };
  return {row(rows(weight), none(), false), row(rows(weight), rows({at.outputs}), false),
      row(rows(turned), none(), true),
      {"convolve_keys_weight", to_text(x, " by ", weight), {rows(x), rows(out)}, {rows(weight)},
          [=](Kernels& k, In in, In y) { k.convolve_keys_weight(at, in[0], in[1], y[0]); }, {},
          {std::max<index_t>(at.batch * at.rows * at.keys_out, 1)}}};
}
void add_convolutions(KernelCases& table) {
  for (const Convolution& at : {Convolution{2, 3, 4, 7, 5, 7, 3, 1}, {1, 24, 2, 150, 33, 150, 3, 1},
           {2, 2, 2, 4, 2, 10, 2, 3}, {1, 2, 2, 6, 2, 3, 3, -1}, {1, 2, 3, 0, 2, 0, 3, 1}, {0, 2, 3, 4, 2, 4, 3, 1},
           {1, 300, 1, 5, 300, 5, 1, 0}, {1, 2, 2100, 3, 2, 3, 1, 0}, {2, 24, 8, 16, 12, 16, 1, 0},
           {2, 6, 8, 8, 5, 8, 3, 1}}) {  // the last two: maps in pieces on a GPU
    for (KernelCase row : convolutions(at)) {
      if (at.channels > 100 || at.rows > 100)
        row.dtypes = {DType::f32};  // no tile of the CPU fits; more tiles than threads share
      table.push_back(row);
    }
  }
  const KernelCases large = convolutions({1, 12, 16, 256, 12, 256, 5, 4});
  table.push_back(large.front().counted(0)), table.push_back(large.back().counted(0));
}

}  // namespace

KernelCases lookup_cases() {
  KernelCases table;
  add_scatter(table);
  struct Lookup {
    Shape x, index, picked;
    int axis;
  };
  for (const auto& [x, index, picked, axis] : {Lookup{{3, 5}, {3, 70}, {3, 70}, 1},
           {{4, 2, 3}, {6, 2, 3}, {6, 2, 3}, 0}, {{2, 3, 4, 500}, {1, 1, 4, 33}, {2, 3, 4, 33}, 3},
           {{2, 3, 5}, {2, 1, 9}, {2, 3, 9}, 2}, {{7, 4000}, {7, 40}, {7, 40}, 1}, {{2, 30000}, {2, 10}, {2, 10}, 1},
           {{2, 3}, {2, 0}, {2, 0}, 1}, {{2, 3, 0}, {2, 4, 0}, {2, 4, 0}, 1}}) {
    table.push_back(gather(x, index, picked, axis)), table.back().terms = {0};
    table.push_back(sum_by_index(x, index, picked, axis));
  }
  table.push_back(sum_by_index({64, 32}, {64, 256}, {64, 256}, 1));
  for (const index_t count : {1, 5, 64, 190, 700, 1000, 30000})
    for (const index_t width : {0, 71, 136})
      for (const bool backward : {false, true}) {
        table.push_back(lerp({3, 2, count}, {3, 2, width}, backward));
        table.push_back(mixed_lerp({3, 2, count}, {3, 2, width}, backward));
      }
  table.push_back(mixed_lerp({64, 32}, {64, 256}, true));
  table.push_back(checked_index({7}));
  table.push_back(checked_index({64, 256}).counted(0)), table.back().dtypes = {DType::i64};
  add_pairs(table), add_convolutions(table);
  return table;
}

TEST_CASE("kernels that read and add by index, at positions and along keys") { walk_on_cpu(lookup_cases()); }

}  // namespace whence::test
