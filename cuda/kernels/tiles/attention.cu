// Attention in tiles on a GPU: launches of its programs, of heads with tables by distance, columns, a sink and sums of gates.
#include "tensor/tiles/gpu_programs.h"

#include <algorithm>
#include <numbers>
#include <optional>

#include "cuda/kernels/kernels.h"
#include "cuda/kernels/tiles/gate_sums.h"
#include "cuda/kernels/tiles/head_sums.h"
#include "cuda/kernels/tiles/heads_backward.h"
#include "cuda/kernels/tiles/heads_forward.h"
#include "tensor/pairs.h"
#include "tensor/raw.h"

namespace whence {
namespace {

using namespace gpu;
using At = TiledAttention;

int within_int(index_t n) { return static_cast<int>(std::clamp<index_t>(n, -(1 << 29), 1 << 29)); }

// Numbers that a copy of a row takes, matrix_row: 16 bytes, of the f64 that the emulator takes 64.
index_t pack_of(DType dtype) {
  return dtype == DType::f64 ? matrix_row<double> : 16 / static_cast<index_t>(size_of(dtype));
}

// True if the rows of x [b h t d] begin at 16 bytes, and lie together.
bool rows_in_packs(const Tensor& x) {
  const index_t pack = pack_of(x.dtype());
  bool fits = (x.size(3) == 1 || x.strides()[3] == 1) && reinterpret_cast<std::uintptr_t>(x.bytes()) % 16 == 0;
  for (int axis = 0; axis < 3; ++axis) fits = fits && (x.size(axis) == 1 || x.strides()[axis] % pack == 0);
  return fits;
}

// x, whose rows kernels may copy in packs of 16 bytes: itself, or in rows that are padded with zeros.
Tensor in_packs(const Tensor& x) {
  const index_t pack = pack_of(x.dtype()), d = x.size(3), padded = (d + pack - 1) / pack * pack;
  if (padded == d && rows_in_packs(x)) return x;
  const Tensor wide = Tensor::zeros({x.size(0), x.size(1), x.size(2), padded}, x.dtype(), x.device());
  raw::copy_into(x, raw::slice(wide, 3, 0, d));
  return wide;
}

// f(Type<T>). f64 is for the emulator alone, which holds the text of the kernels to it.
template <class F> void visit_number(DType dtype, const F& f) {
#ifndef __CUDACC__
  if (dtype == DType::f64) return f(Type<double>{});
#endif
  dtype == DType::f32 ? f(Type<float>{}) : dtype == DType::f16 ? f(Type<Float16>{}) : f(Type<BFloat16>{});
}

// Rows [rows, length] of terms in packs of what is computed with: themselves, or as TermsInPacks has them.
Tensor terms_in_packs(const Tensor& x, index_t length, index_t before) {
  if (!x.defined()) return {};
  const DType dtype = compute_dtype(x.dtype());
  if (x.dtype() == dtype && x.is_contiguous() && before == 0 && length % 4 == 0 && begins_with_pack(x, 4)) return x;
  const index_t rows = x.numel() / length, padded = (before + length + 3) / 4 * 4;
  const Tensor to = Tensor::empty({rows, padded}, dtype, x.device());
  visit_number(x.dtype(), [&]<class T>(Type<T>) {
    const TermsInPacks<T> body{global<const T>(x), global<compute_t<T>>(to), within_int(length), within_int(padded),
        within_int(before), to.numel()};
    launch_kernel(body, {.blocks = blocks_for(to.numel(), body.threads)});
  });
  return to;
}

template <class T> HeadRows<T> head_rows(const Tensor& x, index_t heads) {
  if (!x.defined()) return {};
  return {global<T>(x), x.strides()[0], x.strides()[1], x.strides()[2], static_cast<int>(heads / x.size(1)),
      rows_in_packs(x)};
}

// Operands of both directions, as kernels read them.
template <class T> struct Given {
  using C = compute_t<T>;
  Tensor query, key, value, table, column, sink, range;
  HeadFacts<C> facts;
  PairDropout<C> dropout;
  int distances = 0, lowest = 0;  // of the table as it is

  Given(const At& at, std::span<const Tensor> x)
      : query(in_packs(x[At::query])),
        key(in_packs(x[At::key])),
        value(in_packs(x[At::value])),
        column(terms_in_packs(x[At::column_term], key.size(2), 0)) {
    const Band band = Band::of(at.first_row, at.causal, at.window);
    if (x[At::sink].defined()) sink = raw::cast(x[At::sink], dtype_of<C>);
    int padded = 0, first = 0;
    if (const Tensor& given = x[At::distance_table]; given.defined()) {
      distances = within_int(given.size(1)), lowest = within_int(at.lowest);
      // Tiles begin at multiples of four of a row: so do theirs of the table, if the first row is known.
      const index_t before = at.row.defined() ? 0 : ((at.lowest - at.first_row) % 4 + 4) % 4;
      table = terms_in_packs(given, given.size(1), before);
      padded = within_int(table.size(1)), first = lowest - within_int(before);
    }
    facts = {within_int(heads()), within_int(query.size(2)), within_int(key.size(2)), within_int(x[At::query].size(3)),
        within_int(band.first_row), within_int(band.before), within_int(band.after), padded, first,
        static_cast<C>(at.scale), static_cast<C>(at.scale * std::numbers::log2e), global<const index_t>(at.row)};
    if (at.dropout > 0)
      dropout = {at.stream, dropout_threshold(at.dropout), static_cast<C>(1 / (1 - at.dropout)), at.total_rows};
    if (!at.present.defined()) return;
    range = Tensor::empty({batch(), 2}, DType::i32, query.device());
    launch_kernel(
        PresentRange{global<const bool>(at.present), global<std::int32_t>(range), facts.keys}, {.blocks = batch()});
  }
  index_t batch() const { return query.size(0); }
  index_t heads() const { return query.size(1); }
};

// f(Type<T>, Nth<width>) for heads of these operands.
template <class F> void visit_heads(std::span<const Tensor> x, const F& f) {
  visit_number(x[At::query].dtype(),
      [&]<class T>(Type<T> type) { x[At::query].size(3) <= 64 ? f(type, Nth<64>{}) : f(type, Nth<128>{}); });
}

// Operands of CoPE's scan beside rows of heads.
template <class T> struct Gates {
  using C = compute_t<T>;
  Tensor slopes, logits, e, query, key;  // these two where gates are of others
  GateScan<T> scan;

  Gates(const At& at, std::span<const Tensor> x, const Given<T>& given) {
    if (!reads_gates(x)) return;
    scan.rows = (given.facts.queries + 31) / 32 * 32, scan.groups = (given.facts.keys + gate_keys - 1) / gate_keys * 2;
    if (x[At::gate_query].defined()) query = in_packs(x[At::gate_query]), key = in_packs(x[At::gate_key]);
    scan.gate_scale = static_cast<C>(at.gate_scale), scan.per_unit = 1 / given.facts.scale_of_powers;
    if (x[At::position_slopes].defined()) slopes = raw::cast(x[At::position_slopes], dtype_of<C>);
    scan.slopes = global<const C>(slopes);
    if (scan.slopes) return;
    if (x[At::position_logits].defined()) logits = raw::contiguous(x[At::position_logits]);
    scan.positions = within_int(logits.defined() ? logits.size(3) : x[At::position_keys].size(0));
    scan.pitch = static_cast<int>(pitch_of_positions(scan.positions)),
    scan.position_scale = static_cast<C>(at.position_scale);
    if (!logits.defined()) e = in_packs(raw::reshape(x[At::position_keys], Shape{1, 1, scan.positions, given.facts.d}));
  }
};

// Pairs of `heads` heads, and the last number of each row.
template <class T> struct PairsOfHeads {
  Tensor pairs, last;
  PairsOfHeads(GateScan<T>& scan, index_t heads, Device device)
      : pairs(Tensor::empty(Shape{heads, scan.rows, scan.pitch, 2}, dtype_of<Position<T>>, device)),
        last(Tensor::empty(Shape{heads, scan.rows}, dtype_of<compute_t<T>>, device)) {
    scan.pairs = global<Position<T>>(pairs), scan.last = global<compute_t<T>>(last);
  }
  // Makes them of logits that are given, for heads from scan.first_head on.
  void make(const GateScan<T>& scan, const Tensor& logits, index_t heads) const {
    const index_t queries = logits.size(2), count = heads * scan.rows * scan.pitch;
    const Global<const T> z = global<const T>(logits) + scan.first_head * queries * scan.positions;
    launch_kernel(PairsOfLogits<T>{z, scan, within_int(queries), count},
        {.blocks = blocks_for(count, PairsOfLogits<T>::threads)});
  }
};

// What parts of the keys leave behind, and sums of gates that they begin with.
template <class T, int width> struct PartsOfKeys {
  using C = compute_t<T>;
  Tensor rows, sums, of_gates, first_tile;
  HeadParts<C> parts;

  PartsOfKeys(const Given<T>& given, GateScan<T>& scan, bool scans) {
    const HeadFacts<C>& facts = given.facts;
    const index_t heads = given.batch() * given.heads(), count = parts_of_keys(facts.queries, facts.keys);
    if (count == 0) return;
    const auto empty = [&](const Shape& shape) { return Tensor::empty(shape, dtype_of<C>, given.query.device()); };
    rows = empty(Shape{heads, facts.queries, count, 2}), sums = empty(Shape{heads, facts.queries, count, width});
    parts = {within_int(count), global<C>(rows), global<C>(sums), scans};
    if (!scans) return;
    of_gates = empty(Shape{heads, scan.groups, scan.rows}), first_tile = empty(Shape{heads, scan.rows / 8});
    scan.sums = global<C>(of_gates), scan.first_tile = global<C>(first_tile);
  }
  void join(const Given<T>& given, const Tensor& output, const Tensor& norms) const {
    const HeadFacts<C>& facts = given.facts;
    launch_kernel(JoinParts<T>{parts, head_rows<T>(output, facts.heads), global<C>(norms), facts.heads, facts.queries,
                      facts.d, width},
        {.blocks = given.batch() * facts.heads * facts.queries});
  }
};

// `heads` heads from scan.first_head on. Where pairs are made there too, rows of `scores_q` make them.
template <class T, int width>
void sum_gates(const Given<T>& given, const Gates<T>& gates, const GateScan<T>& scan, index_t heads, bool makes_pairs) {
  using Sums = GateSums<T, width>;
  const bool others = gates.query.defined();
  HeadFacts<compute_t<T>> of_gates = given.facts;
  if (others) of_gates.scale_of_powers = scan.gate_scale * log2e<compute_t<T>>;
  const auto rows = [&](const Tensor& x) { return head_rows<const T>(x, given.heads()); };
  const Tensor none;
  launch_kernel(Sums{of_gates, rows(others ? gates.query : given.query), rows(others ? gates.key : given.key),
                    rows(others && makes_pairs ? given.query : none), rows(makes_pairs ? gates.e : none),
                    global<const std::int32_t>(given.range), scan},
      {.blocks = heads * blocks_for(given.facts.queries, Sums::rows),
          .shared_bytes = Sums::shared_bytes(makes_pairs, scan.positions)});
}

template <class T, int width, GatesOf gates_of>
void forward(const Given<T>& given, const Gates<T>& gates, const Tensor& output, const Tensor& norms) {
  using Body = HeadsForward<T, width, gates_of>;
  using C = Body::C;
  const index_t heads = given.heads();
  GateScan<T> scan = gates.scan;
  std::optional<PairsOfHeads<T>> pairs;
  if (gates.logits.defined()) {
    pairs.emplace(scan, given.batch() * heads, output.device());
    pairs->make(scan, gates.logits, given.batch() * heads);
  }
  const PartsOfKeys<T, width> parts(given, scan, Body::scans);
  if constexpr (Body::scans) {
    if (parts.parts.count) sum_gates<T, width>(given, gates, scan, given.batch() * heads, false);
  }
  const Body body{given.facts, given.dropout, head_rows<const T>(given.query, heads),
      head_rows<const T>(given.key, heads), head_rows<const T>(given.value, heads), head_rows<T>(output, heads),
      global<C>(norms), global<const C>(given.table), global<const C>(given.column), global<const C>(given.sink),
      global<const std::int32_t>(given.range), scan, head_rows<const T>(gates.e, heads),
      head_rows<const T>(gates.query, heads), head_rows<const T>(gates.key, heads), parts.parts};
  const index_t of_head = parts.parts.count ? parts.parts.count : blocks_for(given.facts.queries, Body::queries);
  launch_kernel(body, {.blocks = given.batch() * heads * of_head, .shared_bytes = Body::shared_bytes(scan)});
  if (parts.parts.count) parts.join(given, output, norms);
}

// Gradients of heads of keys that heads of queries share: unrounded for each of these, and their sums.
class Shared {
 public:
  Shared(const Tensor& to, index_t heads) : to_(to) {
    if (to.defined() && to.size(1) < heads)
      wide_ = Tensor::empty({to.size(0), heads, to.size(2), to.size(3)}, compute_dtype(to.dtype()), to.device());
  }
  const Tensor& wide() const { return wide_; }
  Tensor narrow() const { return wide_.defined() ? Tensor() : to_; }
  void sum() const {
    if (!wide_.defined()) return;
    const Tensor total = Tensor::like(wide_, {to_.size(0), to_.size(1), 1, to_.size(2), to_.size(3)}),
                 by_group = raw::reshape(wide_, {to_.size(0), to_.size(1), -1, to_.size(2), to_.size(3)});
    kernels(to_).reduce(Reduction::sum, by_group, total);
    kernels(to_).copy(raw::reshape(total, to_.shape()), to_);
  }

 private:
  Tensor to_, wide_;
};

// The gradient of each row's own number, [b h queries], added up by head.
void sum_by_head(const Tensor& of_rows, const Tensor& to) {
  kernels(to).copy(raw::reduce(Reduction::sum, of_rows, {0, 2}, false), to);
}

template <class T, int width, GatesOf gates_of>
void backward(const At& at, std::span<const Tensor> x, const Given<T>& given, const Gates<T>& gates,
    const Tensor& output, const Tensor& norms, const Tensor& given_d_output, std::span<const Tensor> d) {
  using OfQueries = HeadsBackward<T, width, false, gates_of>;
  using OfKeys = HeadsBackward<T, width, true, gates_of>;
  using C = OfKeys::C;
  constexpr bool scans = OfQueries::scans, others = OfQueries::others;
  constexpr index_t of_sum = sizeof(C);
  static_assert((scans || OfQueries::rows == rows_of_gpu_block(width, dtype_of<T>)) &&
                Diagonals<C, OfQueries::of_warp>::chains == chains_of_gpu_block(OfQueries::rows));
  GateScan<T> scan = gates.scan;
  const HeadFacts<C>& facts = given.facts;
  const index_t batch = given.batch(), heads = given.heads(), queries = facts.queries, all_heads = batch * heads;
  const Tensor d_output = in_packs(given_d_output);
  const auto empty = [&](const Shape& shape, DType dtype = dtype_of<C>) {
    return Tensor::empty(shape, dtype, output.device());
  };
  const auto by_row = [&](const Tensor& asked) { return asked.defined() ? empty({batch, heads, queries}) : Tensor(); };

  const Tensor &d_table = d[At::distance_table], &d_column = d[At::column_term], &d_sink = d[At::sink];
  const index_t blocks_of_rows = blocks_for(queries, RowBlocks<C>::rows);
  const Tensor of_rows = empty(Shape{all_heads, blocks_of_rows, 2, RowBlocks<C>::rows}),
               output_in_packs = in_packs(output);
  const Tensor of_sink = by_row(d_sink), of_slopes = by_row(gates.slopes);
  const RowBlocks<C> row_blocks{global<C>(of_rows), within_int(blocks_of_rows)};
  launch_kernel(RowSums<T, width>{head_rows<const T>(output_in_packs, heads), head_rows<const T>(d_output, heads),
                    global<const C>(norms), global<const C>(d_sink.defined() ? given.sink : Tensor()), row_blocks,
                    global<C>(of_sink), facts.heads, facts.queries, facts.d},
      {.blocks = all_heads * blocks_of_rows * (RowBlocks<C>::rows / RowSums<T, width>::rows)});
  if (d_sink.defined()) sum_by_head(of_sink, d_sink);

  // Heads in groups, so that what is stored for each stays small.
  const bool of_queries = scans || d[At::query].defined() || d_table.defined() || d_column.defined(),
             of_keys = d[At::key].defined() || d[At::value].defined() || d_column.defined();
  const index_t blocks = blocks_for(queries, OfQueries::rows),
                of_head = slice_numbers(queries, facts.keys, OfQueries::rows);
  const index_t of_group = index_t(scan.groups) * scan.rows;
  index_t at_once = all_heads;
  if (d_table.defined()) at_once = std::min(at_once, most_slice_bytes / (of_head * of_sum));
  if (scans) at_once = std::min(at_once, most_slice_bytes / (2 * of_group * of_sum));
  at_once = std::max<index_t>(at_once, 1);
  Tensor sums, gradients, first_tile, d_logits;
  std::optional<PairsOfHeads<T>> pairs;
  if constexpr (scans) {
    sums = empty({at_once, of_group}), gradients = empty({at_once, of_group});
    first_tile = empty({at_once, scan.rows / 8});
    if (scan.positions > 0) {
      d_logits = empty({batch, heads, queries, (scan.positions + 7) / 8 * 8}, output.dtype());
      pairs.emplace(scan, at_once, output.device());
    }
    scan.sums = global<C>(sums), scan.gradients = global<C>(gradients);
    scan.first_tile = global<C>(first_tile), scan.of_slopes = global<C>(of_slopes);
  }
  const Tensor of_table =
      d_table.defined() ? Tensor::zeros(Shape{heads, given.distances}, dtype_of<C>, output.device()) : Tensor();
  const Tensor of_columns = d_column.defined() ? empty(d_column.shape()) : Tensor();
  const Shared of_key(d[At::key], heads), of_value(d[At::value], heads), of_gate_key(d[At::gate_key], heads);
  for (index_t first = 0; first < all_heads; first += at_once) {
    const index_t count = std::min(at_once, all_heads - first);
    scan.first_head = within_int(first);
    const auto body_of = [&]<class Body>(Type<Body>) {
      return Body{facts, given.dropout, head_rows<const T>(given.query, heads), head_rows<const T>(given.key, heads),
          head_rows<const T>(given.value, heads), head_rows<const T>(d_output, heads), row_blocks,
          global<const C>(given.table), global<const C>(given.column), global<const std::int32_t>(given.range), {}, {},
          {}, {}, nullptr, nullptr, within_int(first), scan, {}, head_rows<const T>(gates.query, heads),
          head_rows<const T>(gates.key, heads)};
    };
    if constexpr (scans) {
      if (gates.logits.defined()) pairs->make(scan, gates.logits, count);
      sum_gates<T, width>(given, gates, scan, count, gates.e.defined());
    }
    if (of_queries) {
      const Tensor slices =
          d_table.defined() ? Tensor::zeros(Shape{count, of_head}, dtype_of<C>, output.device()) : Tensor();
      OfQueries body = body_of(Type<OfQueries>{});
      body.d_first = head_rows<T>(d[At::query], heads), body.slices = global<C>(slices);
      body.d_column = global<C>(of_columns);
      if (d_logits.defined())
        body.of_positions = {global<T>(d_logits), within_int(d_logits.size(3)), head_rows<const T>(gates.e, heads)};
      launch_kernel(body, {.blocks = count * blocks, .shared_bytes = OfQueries::shared_bytes(d_table.defined(), scan)});
      if (d_table.defined())
        launch_kernel(SumSlices<C>{global<const C>(slices), global<C>(of_table), facts.heads, facts.keys,
                          facts.first_row, given.distances, given.lowest, within_int(first), within_int(count),
                          within_int(blocks), OfQueries::rows, chains_of_gpu_block(OfQueries::rows)},
            {.blocks = heads * blocks_for(given.distances, SumSlices<C>::of_block),
                .shared_bytes = SumSlices<C>::shared_bytes});
    }
    const auto launch_keys = [&](const Shared& to, const Shared& second, const Tensor& columns) {
      OfKeys body = body_of(Type<OfKeys>{});
      body.d_first = head_rows<T>(to.narrow(), heads), body.wide_first = head_rows<C>(to.wide(), heads);
      body.d_second = head_rows<T>(second.narrow(), heads), body.wide_second = head_rows<C>(second.wide(), heads);
      body.d_column = global<C>(columns);
      launch_kernel(body,
          {.blocks = count * blocks_for(facts.keys, OfKeys::rows), .shared_bytes = OfKeys::shared_bytes(false, scan)});
    };
    if (of_keys) launch_keys(of_key, of_value, of_columns);
    if constexpr (others) {  // keys read what the first launch of queries has stored (scan.gradients)
      scan.of_gates = true;
      OfQueries body = body_of(Type<OfQueries>{});
      body.d_first = head_rows<T>(d[At::gate_query], heads);
      if (body.d_first.at)
        launch_kernel(body, {.blocks = count * blocks, .shared_bytes = OfQueries::shared_bytes(false, scan)});
      if (d[At::gate_key].defined()) launch_keys(of_gate_key, Shared(Tensor(), heads), Tensor());
      scan.of_gates = false;
    }
  }
  of_key.sum(), of_value.sum(), of_gate_key.sum();
  if (d_table.defined()) kernels(of_table).copy(of_table, d_table);
  if (d_column.defined()) kernels(of_columns).copy(of_columns, d_column);
  const auto positions_of = [&](const Tensor& of, int axis) { return raw::slice(of, axis, 0, scan.positions); };
  if (d[At::position_logits].defined()) kernels(d_logits).copy(positions_of(d_logits, 3), d[At::position_logits]);
  if (d[At::position_keys].defined()) {
    const Tensor rows = raw::reshape(x[At::query], {-1, facts.d}),
                 of_logits = raw::reshape(d_logits, {rows.size(0), -1});
    const Tensor sum = raw::matmul(raw::transpose(of_logits), rows, at.position_scale);
    kernels(sum).copy(positions_of(sum, 0), d[At::position_keys]);
  }
  if (d[At::position_slopes].defined()) sum_by_head(of_slopes, d[At::position_slopes]);
}

template <GatesOf gates_of> using Gated = std::integral_constant<GatesOf, gates_of>;

// f(Type<T>, Nth<width>, Gated<gates_of>)
template <class F> void visit_programs(std::span<const Tensor> x, const F& f) {
  visit_heads(x, [&](auto type, auto width) {
    if (!reads_gates(x)) return f(type, width, Gated<GatesOf::none>{});
    x[At::gate_query].defined() ? f(type, width, Gated<GatesOf::others>{}) : f(type, width, Gated<GatesOf::scores>{});
  });
}

}  // namespace

std::size_t CudaKernels::most_shared_bytes(DType dtype) const {
  return fits_float(dtype) || (dtype == DType::f64 && gpu::tiles_in_f64()) ? gpu::most_shared_bytes() : 0;
}

void CudaKernels::attention(
    const At& at, std::span<const Tensor> x, const Tensor& output, const Tensor&, const Tensor& norms) {
  visit_programs(x, [&]<class T, int width, GatesOf gates_of>(Type<T>, Nth<width>, Gated<gates_of>) {
    const Given<T> given(at, x);
    forward<T, width, gates_of>(given, Gates<T>(at, x, given), output, norms);
  });
}

void CudaKernels::attention_backward(const At& at, std::span<const Tensor> x, const Tensor& output, const Tensor&,
    const Tensor& norms, const Tensor& d_output, const Tensor&, std::span<const Tensor> d) {
  visit_programs(x, [&]<class T, int width, GatesOf gates_of>(Type<T>, Nth<width>, Gated<gates_of>) {
    const Given<T> given(at, x);
    backward<T, width, gates_of>(at, x, given, Gates<T>(at, x, given), output, norms, d_output, d);
  });
}

}  // namespace whence
