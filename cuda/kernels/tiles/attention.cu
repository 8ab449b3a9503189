// Tiled attention on a GPU: launches of its programs, for heads with tables and keys by distance, bins, columns, a sink
// and sums of gates.
#include "tensor/tiles/gpu_programs.h"

#include <algorithm>
#include <numbers>
#include <optional>

#include "cuda/kernels/kernels.h"
#include "cuda/kernels/tiles/gate_sums.h"
#include "cuda/kernels/tiles/given.h"
#include "cuda/kernels/tiles/head_sums.h"
#include "cuda/kernels/tiles/heads_backward.h"
#include "cuda/kernels/tiles/heads_forward.h"
#include "tensor/pairs.h"
#include "tensor/raw.h"

namespace whence {
namespace {

using namespace gpu;
using At = TiledCall;

// Returns rows [rows, length] of terms in packs of the compute type: x itself, or a copy by TermsInPacks.
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

// Returns the columns of heads of T: rows of terms. If column_words is 2, the rest follows each row, or zeros.
template <class T> Tensor columns_in_packs(const Tensor& column, const Tensor& rest, index_t keys) {
  if (column_words<T> == 1 || !column.defined()) return terms_in_packs(column, keys, 0);
  const index_t rows = column.numel() / keys;
  const Tensor to = Tensor::empty({rows, 2, (keys + 3) / 4 * 4}, dtype_of<compute_t<T>>, column.device());
  const auto row = [&](index_t word) { return raw::slice(raw::slice(to, 1, word, word + 1), 2, 0, keys); };
  kernels(to).copy(raw::reshape(raw::contiguous(column), {rows, 1, keys}), row(0));
  if (rest.defined())
    kernels(to).copy(raw::reshape(raw::contiguous(rest), {rows, 1, keys}), row(1));
  else
    kernels(to).fill(row(1), 0);
  return to;
}

// The operands of both directions, as kernels read them.
template <class T> struct Given {
  using C = compute_t<T>;
  Tensor query, key, value, table, column, sink, range;
  HeadFacts<C> facts;
  PairDropout<C> dropout;
  int distances = 0, lowest = 0;  // of the table as given

  Given(const At& at, std::span<const Tensor> x)
      : query(in_packs(x[At::query])),
        key(in_packs(x[At::key])),
        value(in_packs(x[At::value])),
        column(columns_in_packs<T>(x[At::column_term], x[At::column_rest], key.size(2))) {
    const Band band = Band::of(at.first_row, at.causal, at.window);
    if (x[At::sink].defined()) sink = raw::cast(x[At::sink], dtype_of<C>);
    int padded = 0, first = 0;
    if (const Tensor& given = x[At::distance_table]; given.defined()) {
      distances = within_int(given.size(1)), lowest = within_int(at.lowest);
      // Tiles begin at multiples of four of a row: so do the table's tiles, if the first row is known.
      const index_t before = at.row.defined() ? 0 : ((at.lowest - at.first_row) % 4 + 4) % 4;
      table = terms_in_packs(given, given.size(1), before);
      padded = within_int(table.size(1)), first = lowest - within_int(before);
    }
    facts = {within_int(heads()), within_int(query.size(2)), within_int(key.size(2)), within_int(x[At::query].size(3)),
        within_int(band.first_row), within_int(band.before), within_int(band.after), padded, first,
        static_cast<C>(at.scale), static_cast<C>(at.scale * std::numbers::log2e), global<const index_t>(at.row)};
    if (at.dropout > 0)
      dropout = {at.stream, dropout_threshold(at.dropout), static_cast<C>(1 / (1 - at.dropout)), at.total_rows};
    range = present_range(at.present);
  }
  index_t batch() const { return query.size(0); }
  index_t heads() const { return query.size(1); }
};

// Calls f(Type<T>, Nth<width>) for heads of these operands.
template <class F> void visit_heads(std::span<const Tensor> x, const F& f) {
  visit_number(x[At::query].dtype(),
      [&]<class T>(Type<T> type) { x[At::query].size(3) <= 64 ? f(type, Nth<64>{}) : f(type, Nth<128>{}); });
}

// Operands of CoPE's scan, in addition to rows of heads.
template <class T> struct Gates {
  using C = compute_t<T>;
  Tensor slopes, logits, e, query, key;  // the last two only if gates have operands of their own
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

// Operands of relative keys, in the places of those of other gates.
template <class T> struct Relative : Gates<T> {
  RelativeKeys<T> scan;

  Relative(const At& at, std::span<const Tensor> x, const Given<T>& given) : Gates<T>(at, x, given) {
    const Tensor keys = in_packs(raw::unsqueeze(x[At::relative_keys], 0));
    this->query = in_packs(x[At::relative_query]);
    this->key = raw::expand(keys, {given.batch(), keys.size(1), keys.size(2), keys.size(3)});
    scan.lowest = within_int(at.lowest), scan.count = within_int(keys.size(2));
    scan.scale = static_cast<compute_t<T>>(at.relative_scale), scan.factor = scan.scale / given.facts.scale;
    scan.bins = within_int(at.bins), scan.bin_of = global<const index_t>(at.bin_of);
  }
};
template <GatesOf gates_of, class T>
using ExtraOperands = std::conditional_t<gates_of == GatesOf::relative, Relative<T>, Gates<T>>;

// Pairs of `heads` heads, and the last number of each row.
template <class T> struct PairsOfHeads {
  Tensor pairs, last;
  PairsOfHeads(GateScan<T>& scan, index_t heads, Device device)
      : pairs(Tensor::empty(Shape{heads, scan.rows, scan.pitch, 2}, dtype_of<Position<T>>, device)),
        last(Tensor::empty(Shape{heads, scan.rows}, dtype_of<compute_t<T>>, device)) {
    scan.pairs = global<Position<T>>(pairs), scan.last = global<compute_t<T>>(last);
  }
  // Makes them from given logits, for heads from scan.first_head on.
  void make(const GateScan<T>& scan, const Tensor& logits, index_t heads) const {
    const index_t queries = logits.size(2), count = heads * scan.rows * scan.pitch;
    const Global<const T> z = global<const T>(logits) + scan.first_head * queries * scan.positions;
    launch_kernel(PairsOfLogits<T>{z, scan, within_int(queries), count},
        {.blocks = blocks_for(count, PairsOfLogits<T>::threads)});
  }
};

// Sums the gates of `heads` heads from scan.first_head on. If pairs are made there too, they come from rows of
// `scores_q`.
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

// Results of parts of the keys, and the sums of gates at which parts begin.
template <class T, int width> struct PartsOfKeys {
  using C = compute_t<T>;
  Tensor rows, sums, of_gates, first_tile;
  HeadParts<C> parts;

  PartsOfKeys(const Given<T>& given, index_t count) {
    if (count == 0) return;
    const index_t heads = given.batch() * given.heads(), queries = given.facts.queries;
    rows = room(given, {heads, queries, count, 2}), sums = room(given, {heads, queries, count, width});
    parts = {within_int(count), global<C>(rows), global<C>(sums)};
  }
  void make_carries(const Given<T>& given, const Gates<T>& gates, GateScan<T>& scan) {
    const index_t heads = given.batch() * given.heads();
    of_gates = room(given, {heads, scan.groups, scan.rows}), first_tile = room(given, {heads, scan.rows / 8});
    scan.sums = global<C>(of_gates), scan.first_tile = global<C>(first_tile), parts.carries = true;
    sum_gates<T, width>(given, gates, scan, heads, false);
  }
  void join(const Given<T>& given, const Tensor& output, const Tensor& norms) const {
    const HeadFacts<C>& facts = given.facts;
    launch_kernel(JoinParts<T>{parts, head_rows<T>(output, facts.heads), global<C>(norms), facts.heads, facts.queries,
                      facts.d, width},
        {.blocks = given.batch() * facts.heads * facts.queries});
  }

 private:
  static Tensor room(const Given<T>& given, const Shape& shape) {
    return Tensor::empty(shape, dtype_of<C>, given.query.device());
  }
};

template <class T, int width, GatesOf gates_of>
void forward(const Given<T>& given, const ExtraOperands<gates_of, T>& gates, const Tensor& output,
    const Tensor& bin_sums, const Tensor& norms) {
  using Body = HeadsForward<T, width, gates_of>;
  using C = Body::C;
  const index_t heads = given.heads();
  auto scan = gates.scan;
  if constexpr (Body::relative) scan.bin_sums = head_rows<T>(bin_sums, heads);
  std::optional<PairsOfHeads<T>> pairs;
  if (gates.logits.defined()) {
    pairs.emplace(scan, given.batch() * heads, output.device());
    pairs->make(scan, gates.logits, given.batch() * heads);
  }
  PartsOfKeys<T, width> parts(given, Body::relative ? 0 : parts_of_keys(given.facts.queries, given.facts.keys));
  if constexpr (Body::scans)
    if (parts.parts.count) parts.make_carries(given, gates, scan);
  const Body body{given.facts, given.dropout, head_rows<const T>(given.query, heads),
      head_rows<const T>(given.key, heads), head_rows<const T>(given.value, heads), head_rows<T>(output, heads),
      global<C>(norms), global<const C>(given.table), global<const C>(given.column), global<const C>(given.sink),
      global<const std::int32_t>(given.range), scan, head_rows<const T>(gates.e, heads),
      head_rows<const T>(gates.query, heads), head_rows<const T>(gates.key, heads), parts.parts};
  const index_t of_head = parts.parts.count ? parts.parts.count : blocks_for(given.facts.queries, Body::queries);
  launch_kernel(body, {.blocks = given.batch() * heads * of_head, .shared_bytes = Body::shared_bytes(scan)});
  if (parts.parts.count) parts.join(given, output, norms);
}

// Adds the gradient of each row's own number, [b h queries], by head.
void sum_by_head(const Tensor& of_rows, const Tensor& to) {
  kernels(to).copy(raw::reduce(Reduction::sum, of_rows, {0, 2}, false), to);
}

template <class T, int width, GatesOf gates_of>
void backward(const At& at, std::span<const Tensor> x, const Given<T>& given, const ExtraOperands<gates_of, T>& gates,
    const Tensor& output, const Tensor& bin_sums, const Tensor& norms, const Tensor& given_d_output,
    const Tensor& d_bins, std::span<const Tensor> d) {
  using OfQueries = HeadsBackward<T, width, false, gates_of>;
  using OfKeys = HeadsBackward<T, width, true, gates_of>;
  using C = OfKeys::C;
  constexpr bool scans = OfQueries::scans, others = OfQueries::others, relative = OfQueries::relative;
  constexpr index_t of_sum = sizeof(C);
  static_assert((scans || relative || OfQueries::rows == rows_of_gpu_block(width, dtype_of<T>)) &&
                Diagonals<C, OfQueries::of_warp>::chains == chains_of_gpu_block(OfQueries::rows));
  auto scan = gates.scan;
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
                    global<C>(of_sink), facts.heads, facts.queries, facts.d, head_rows<const T>(bin_sums, heads),
                    head_rows<const T>(d_bins, heads), d_bins.defined() ? within_int(at.bins) : 0},
      {.blocks = all_heads * blocks_of_rows * (RowBlocks<C>::rows / RowSums<T, width>::rows)});
  if (d_sink.defined()) sum_by_head(of_sink, d_sink);

  // Heads are processed in groups, so that what is stored for each stays small.
  const bool of_queries = scans || d[At::query].defined() || d_table.defined() || d_column.defined() ||
                          d[At::relative_query].defined(),
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
  const Tensor of_table = sums_for(d_table, dtype_of<C>);
  const Tensor of_columns = d_column.defined() ? empty(d_column.shape()) : Tensor();
  const SharedHeads of_key(d[At::key], heads), of_value(d[At::value], heads), of_gate_key(d[At::gate_key], heads);
  Tensor of_relative;
  if constexpr (relative) {
    scan.d_bins = head_rows<const T>(d_bins, heads);
    if (d[At::relative_keys].defined()) of_relative = empty(Shape{batch, heads, scan.count, facts.d});
  }
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
      body.d_second = head_rows<T>(d[At::relative_query], heads);
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
    const auto launch_keys = [&](const SharedHeads& to, const SharedHeads& second, const Tensor& columns) {
      OfKeys body = body_of(Type<OfKeys>{});
      body.d_first = head_rows<T>(to.narrow(), heads), body.wide_first = head_rows<C>(to.wide(), heads);
      body.d_second = head_rows<T>(second.narrow(), heads), body.wide_second = head_rows<C>(second.wide(), heads);
      body.d_column = global<C>(columns);
      launch_kernel(body,
          {.blocks = count * blocks_for(facts.keys, OfKeys::rows), .shared_bytes = OfKeys::shared_bytes(false, scan)});
    };
    if (of_keys) launch_keys(of_key, of_value, of_columns);
    if constexpr (relative)
      if (of_relative.defined()) {  // distances take the place of keys, and keys that of distances
        using OfDistances = HeadsBackward<T, width, true, GatesOf::relative_rows>;
        OfDistances body = body_of(Type<OfDistances>{});
        std::swap(body.q, body.gate_q), std::swap(body.k, body.gate_k);
        body.wide_first = head_rows<C>(of_relative, heads);
        body.facts.scale = scan.scale, body.facts.scale_of_powers = scan.scale * log2e<C>;
        body.scan.factor = facts.scale / scan.scale;
        launch_kernel(body, {.blocks = count * blocks_for(scan.count, OfDistances::rows),
                                .shared_bytes = OfDistances::shared_bytes(false, scan)});
      }
    if constexpr (others) {  // keys read what the first launch of queries has stored (scan.gradients)
      scan.of_gates = true;
      OfQueries body = body_of(Type<OfQueries>{});
      body.d_first = head_rows<T>(d[At::gate_query], heads);
      if (body.d_first.at)
        launch_kernel(body, {.blocks = count * blocks, .shared_bytes = OfQueries::shared_bytes(false, scan)});
      if (d[At::gate_key].defined()) launch_keys(of_gate_key, SharedHeads(Tensor(), heads), Tensor());
      scan.of_gates = false;
    }
  }
  of_key.sum(), of_value.sum(), of_gate_key.sum();
  if (const Tensor& to = d[At::relative_keys]; of_relative.defined()) {
    const Tensor of_heads = raw::reshape(of_relative, {-1, to.size(0), to.size(1), facts.d});
    kernels(to).copy(raw::reduce(Reduction::sum, of_heads, {0}, false), to);
  }
  put_sums(of_table, d_table);
  if (d_column.defined()) kernels(of_columns).copy(of_columns, d_column);
  if (const Tensor& rest = d[At::column_rest]; rest.defined()) kernels(rest).fill(rest, 0);  // d_column has it all
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

// Calls f(Type<T>, Nth<width>, Gated<gates_of>).
template <class F> void visit_programs(std::span<const Tensor> x, const F& f) {
  visit_heads(x, [&]<class T, int of_width>(Type<T> type, Nth<of_width> width) {
    if (x[At::relative_keys].defined()) {
      if constexpr (sizeof(T) != 4 || of_width <= 64) f(type, width, Gated<GatesOf::relative>{});  // else too large
      return;
    }
    if (!reads_gates(x)) return f(type, width, Gated<GatesOf::none>{});
    x[At::gate_query].defined() ? f(type, width, Gated<GatesOf::others>{}) : f(type, width, Gated<GatesOf::scores>{});
  });
}

}  // namespace

std::size_t CudaKernels::most_shared_bytes(DType dtype) const {
  return fits_float(dtype) || (dtype == DType::f64 && gpu::tiles_in_f64()) ? gpu::most_shared_bytes() : 0;
}

void CudaKernels::attention(
    const At& at, std::span<const Tensor> x, const Tensor& output, const Tensor& bin_sums, const Tensor& norms) {
  visit_programs(x, [&]<class T, int width, GatesOf gates_of>(Type<T>, Nth<width>, Gated<gates_of>) {
    const Given<T> given(at, x);
    forward<T, width, gates_of>(given, ExtraOperands<gates_of, T>(at, x, given), output, bin_sums, norms);
  });
}

void CudaKernels::attention_backward(const At& at, std::span<const Tensor> x, const Tensor& output,
    const Tensor& bin_sums, const Tensor& norms, const Tensor& d_output, const Tensor& d_bins,
    std::span<const Tensor> d) {
  visit_programs(x, [&]<class T, int width, GatesOf gates_of>(Type<T>, Nth<width>, Gated<gates_of>) {
    const Given<T> given(at, x);
    const ExtraOperands<gates_of, T> extra(at, x, given);
    backward<T, width, gates_of>(at, x, given, extra, output, bin_sums, norms, d_output, d_bins, d);
  });
}

}  // namespace whence
