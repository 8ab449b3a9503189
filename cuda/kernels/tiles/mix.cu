// The head mix in tiles on a GPU: launches of its programs, for groups of rows whose pairs fit into scratch.
#include "tensor/tiled_call.h"

#include "cuda/kernels/tiles/given.h"
#include "cuda/kernels/tiles/head_sums.h"
#include "cuda/kernels/tiles/mix_forward.h"
#include "cuda/kernels/tiles/mix_pieces.h"
#include "cuda/kernels/tiles/mix_sums.h"
#include "tensor/pairs.h"
#include "tensor/tiles/gpu_programs.h"

namespace whence {
namespace {

using namespace gpu;
using At = TiledCall;

// Calls f(group, true if no sequences follow) for the same rows of all sequences, then for the next rows.
template <class F> void each_group(const MixScratch& scratch, index_t batch, index_t queries, const F& f) {
  for (index_t i = 0; i < queries; i += scratch.rows)
    for (index_t b = 0; b < batch; b += scratch.sequences)
      f(MixRows{within_int(b), within_int(std::min(scratch.sequences, batch - b)), within_int(i),
            within_int(scratch.rows)},
          b + scratch.sequences >= batch);
}

// The operands of both directions.
template <class T> struct Given {
  using C = compute_t<T>;
  using M = Mixed<T>;
  Tensor query, key, value, u, terms, range;
  std::vector<Tensor> of_pieces;
  PieceTerms<C> pieces;
  PairDropout<C> dropout;
  MixFacts<Mixed<T>> mix;
  index_t key_blocks, scratch_bytes;

  Given(const At& at, std::span<const Tensor> x)
      : query(in_packs(x[At::query])),
        key(in_packs(x[At::key])),
        value(in_packs(x[At::value])),
        range(present_range(at.present)),
        scratch_bytes(at.scratch_bytes) {
    const Band band = Band::of(at.first_row, at.causal, at.window);
    mix.facts = {within_int(query.size(1)), within_int(query.size(2)), within_int(key.size(2)),
        within_int(x[At::query].size(3)), within_int(band.first_row), within_int(band.before), within_int(band.after),
        0, 0, static_cast<C>(at.scale), 0, global<const index_t>(at.row)};
    mix.width = within_int(x[At::mix_input].size(0)), mix.behind = within_int(at.behind);
    mix.remask = at.remask, mix.adds_pieces = at.adds_pieces;
    mix.slope = static_cast<C>(at.slope);
    mix.present = global<const std::int32_t>(range);
    key_blocks = blocks_for(key.size(2), mix_tile) * (mix_tile / 8);
    if (at.dropout > 0)
      dropout = {at.stream, dropout_threshold(at.dropout), static_cast<C>(1 / (1 - at.dropout)), at.total_rows};
    lay_out(at, x);
    if (!x[At::piece_begins].defined()) return;
    for (std::size_t k = At::piece_distance; k <= At::piece_offsets; ++k) of_pieces.push_back(of_sums(x[k]));
    const auto of = [&](std::size_t k) { return global<const C>(of_pieces[k - At::piece_distance]); };
    pieces = {of(At::piece_distance), of(At::piece_row), of(At::piece_begins), of(At::piece_slopes),
        of(At::piece_offsets), within_int(x[At::piece_distance].size(0)), within_int(at.lowest),
        within_int(x[At::piece_begins].size(0))};
  }
  index_t heads() const { return query.size(1); }
  int parts() const { return pieces.pieces > 0 ? 2 : 1; }
  MixScratch scratch(index_t quarters) const {  // for an f16 number per pair
    return mix_scratch(
        scratch_bytes, query.size(0), query.size(2), key_blocks * 8 * heads() * quarters * index_t(sizeof(M)) / 4);
  }
  template <class P, int of_key = 8> PairBlocks<P, of_key> blocks(const Tensor& x, const MixRows& group) const {
    return {global<P>(x), within_int(x.size(2)), group.rows, within_int(key_blocks)};
  }
  // Returns scratch for blocks of a group's pairs, of all heads or of all channels.
  template <class P, int of_key = 8> Tensor room(const MixScratch& of, int parts = 1) const {
    return Tensor::empty({of.sequences * of.rows, key_blocks, heads() * parts, of_key}, dtype_of<P>, query.device());
  }
  // Makes B after the scores of a group; or backward, the gradients from dB.
  template <bool backward, class P>
  void run_pieces(
      const PairBlocks<P>& pairs, const MixRows& group, Global<C> d_row = nullptr, Global<C> sums = nullptr) const {
    using Body = MixPieces<P, backward>;
    launch_kernel(Body{mix.facts, group, pieces, pairs, mix.present, d_row, sums},
        {.blocks = Body::blocks(group, mix.facts.heads), .shared_bytes = Body::shared_bytes(pieces.pieces)});
  }

 private:
  static Tensor of_sums(const Tensor& x) { return raw::contiguous(raw::cast(x, dtype_of<C>)); }
  // Lays out u and the table, for all distances that either has, and weights.
  void lay_out(const At& at, std::span<const Tensor> x) {
    const Tensor &from_u = x[At::mix_table], &from_table = x[At::distance_table];
    const index_t u_count = from_u.size(2), table_count = from_table.defined() ? from_table.size(1) : 0;
    index_t lowest = at.table_lowest, end = at.table_lowest + u_count;
    if (table_count > 0) lowest = std::min(lowest, at.lowest), end = std::max(end, at.lowest + table_count);
    const index_t count = end - lowest;
    const auto of = [&](std::size_t k) { return SmallOperand<T>::of(x[k]); };
    LayOutTerms<T> body{of(At::mix_table), of(At::distance_table), of(At::mix_input), of(At::mix_output), {}, {},
        within_int(from_u.size(0)), mix.width, mix.facts.heads, within_int(u_count), within_int(table_count),
        within_int(lowest), within_int(at.table_lowest), within_int(at.lowest), within_int(count),
        x[At::mix_input].numel(), x[At::mix_output].numel()};
    // One row each: nvcc's host pass takes the braces off a list of one number in a template.
    u = Tensor::empty({1, body.of_u()}, dtype_of<M>, query.device());
    terms = Tensor::empty({1, body.numbers() - body.of_u()}, dtype_of<C>, query.device());
    body.u = global<M>(u), body.table = global<C>(terms);
    launch_kernel(body, {.blocks = blocks_for(body.numbers(), body.threads)});
    mix.u = global<const M>(u), mix.table = global<const C>(terms);
    mix.input = mix.table + body.of_table(), mix.output = mix.input + body.inputs;
    mix.lowest = body.lowest, mix.distances = body.count;
  }
};

// Calls f(Type<T>, Nth<width>, Nth<taps on either side>, Nth<slots>, Nth<parts of X>) with the fewest slots for all
// heads; four for f64 and with pieces.
template <class F> void visit_mixes(const At& at, std::span<const Tensor> x, const F& f) {
  visit_number(x[At::query].dtype(), [&]<class T>(Type<T> type) {
    if constexpr (!std::is_same_v<T, float>) {
      const auto of_slots = [&](auto width, auto beside) {
        if constexpr (!std::is_same_v<T, double>)
          if (x[At::query].size(1) <= 12) return f(type, width, beside, Nth<3>{}, Nth<1>{});
        f(type, width, beside, Nth<4>{}, Nth<1>{});
      };
      const auto of_taps = [&](auto width) {
        if (x[At::piece_begins].defined()) return f(type, width, Nth<0>{}, Nth<4>{}, Nth<2>{});
        at.left > 0 ? of_slots(width, Nth<1>{}) : of_slots(width, Nth<0>{});
      };
      x[At::query].size(3) <= 64 ? of_taps(Nth<64>{}) : of_taps(Nth<128>{});
    }
  });
}

// Makes the products of rows of two operands for the pairs of a group.
template <class P, bool scores, int width, class T>
void make_pairs_of(const Given<T>& given, const MixRows& group, const HeadRows<const T>& of_keys,
    const HeadRows<const T>& of_queries, const Tensor& to, compute_t<T> factor, const RowBlocks<compute_t<T>>& deltas) {
  using Body = PairProducts<T, P, width, scores>;
  const Body body{given.mix.facts, group, of_keys, of_queries, given.template blocks<P>(to, group), given.mix.present,
      factor, deltas};
  launch_kernel(
      body, {.blocks = Body::blocks(group, body.facts.heads, body.facts.keys), .shared_bytes = Body::shared_bytes});
}
template <class T, int width> void make_scores(const Given<T>& given, const MixRows& group, const Tensor& to) {
  const index_t heads = given.heads();
  make_pairs_of<Mixed<T>, true, width>(given, group, head_rows<const T>(given.key, heads),
      head_rows<const T>(given.query, heads), to, given.mix.facts.scale / mix_unit, {});
  if (given.parts() > 1) given.template run_pieces<false>(given.template blocks<Mixed<T>>(to, group), group);
}

template <class T, int width, int beside, int slots, int parts>
void forward(const Given<T>& given, const Tensor& output, const Tensor& norms) {
  using C = compute_t<T>;
  using M = Mixed<T>;
  using Values = PairSums<T, width, SumsOf::values>;
  using Logits = MixForward<T, beside, slots, parts>;
  const index_t heads = given.heads();
  const MixScratch scratch = given.scratch(5 + 4 * parts);  // X, powers, and one base per eight keys
  const Tensor scores = given.template room<M>(scratch, parts), powers = given.template room<T>(scratch),
               bases = given.template room<C, 1>(scratch);
  each_group(scratch, given.query.size(0), given.query.size(2), [&](const MixRows& group, bool) {
    make_scores<T, width>(given, group, scores);
    Logits logits{given.mix, given.template blocks<T>(powers, group), given.template blocks<C, 1>(bases, group)};
    logits.mix.group = group, logits.mix.scores = given.template blocks<const M>(scores, group);
    launch_kernel(logits, {.blocks = logits.mix.blocks(), .shared_bytes = Logits::shared_bytes});
    launch_kernel(Values{given.mix.facts, group, given.template blocks<const T>(powers, group),
                      head_rows<const T>(given.value, heads), head_rows<T>(output, heads), {}, true, given.mix.present,
                      C(1), given.template blocks<const C, 1>(bases, group), global<C>(norms), given.dropout},
        {.blocks = Values::blocks(group, given.mix.facts), .shared_bytes = Values::shared_bytes});
  });
}

// Gradients of the operands of pieces, over all groups.
template <class T> struct PieceSums {
  using C = compute_t<T>;
  Tensor d_row, of_pieces, by_distance;
  PieceSums(const Given<T>& given, const MixScratch& of) {
    if (given.parts() == 1) return;
    const auto zeros = [&](const Shape& shape) { return Tensor::zeros(shape, dtype_of<C>, given.query.device()); };
    d_row = zeros(given.of_pieces[1].shape());
    of_pieces = zeros({of.sequences, given.heads(), of.rows / MixPieces<T, true>::rows, given.pieces.pieces, 2});
    by_distance = zeros({given.heads(), given.pieces.distances});
  }
  void add(const Given<T>& given, const MixRows& group, const Tensor& d_scores) const {
    if (!d_row.defined()) return;
    given.template run_pieces<true>(
        given.template blocks<T>(d_scores, group), group, global<C>(d_row), global<C>(of_pieces));
    using Body = SumPieceDistances<T>;
    launch_kernel(Body{given.mix.facts, group, given.template blocks<const T>(d_scores, group), given.mix.present,
                      given.pieces.lowest, given.pieces.distances, global<C>(by_distance)},
        {.blocks = given.heads() * blocks_for(given.pieces.distances, 32), .shared_bytes = Body::shared_bytes});
  }
  void finish(std::span<const Tensor> d) const {
    if (!d_row.defined()) return;
    const auto put = [&](std::size_t k, const Tensor& from) {
      if (d[k].defined()) kernels(from).copy(from, d[k]);
    };
    const Tensor sums = raw::reduce(Reduction::sum, of_pieces, {0, 2}, false);  // [h piece 2]
    put(At::piece_distance, raw::reduce(Reduction::sum, by_distance, {0}, false)), put(At::piece_row, d_row);
    put(At::piece_slopes, raw::select(sums, 2, 0)), put(At::piece_offsets, raw::select(sums, 2, 1));
    if (d[At::piece_begins].defined()) kernels(d_row).fill(d[At::piece_begins], 0);
  }
};

template <class T, int width, int beside, int slots, int parts>
void backward(const At& at, const Given<T>& given, const Tensor& output, const Tensor& norms,
    const Tensor& given_d_output, std::span<const Tensor> d) {
  using C = compute_t<T>;
  using M = Mixed<T>;
  constexpr bool whole = beside == 0;
  using Pattern = MixBackward<T, beside, slots, parts, whole ? Makes::all : Makes::pattern, false>;
  static_assert(sizeof(T) > 2 || (Pattern::shared_bytes <= shared_bytes_of_mix_pieces &&
                                     MixPieces<T, true>::shared_bytes(most_mix_pieces) <= shared_bytes_of_mix_pieces));
  using ToKeys = PairSums<T, width, SumsOf::keys>;
  using ToQueries = PairSums<T, width, SumsOf::queries>;
  const index_t heads = given.heads(), batch = given.query.size(0), queries = given.query.size(2),
                all_heads = batch * heads;
  const HeadFacts<C>& facts = given.mix.facts;
  const Device device = output.device();
  const Tensor d_output = in_packs(given_d_output), output_in_packs = in_packs(output);
  const index_t blocks_of_rows = blocks_for(queries, RowBlocks<C>::rows);
  const Tensor of_rows = Tensor::empty(Shape{all_heads, blocks_of_rows, 2, RowBlocks<C>::rows}, dtype_of<C>, device);
  const RowBlocks<C> row_blocks{global<C>(of_rows), within_int(blocks_of_rows)};
  launch_kernel(RowSums<T, width>{head_rows<const T>(output_in_packs, heads), head_rows<const T>(d_output, heads),
                    global<const C>(norms), {}, row_blocks, {}, facts.heads, facts.queries, facts.d},
      {.blocks = all_heads * blocks_of_rows * (RowBlocks<C>::rows / RowSums<T, width>::rows)});

  // dP: P takes its place, or with three taps dX.
  const MixScratch scratch = given.scratch(whole ? 4 + 8 * parts : 16);
  const Tensor scores = given.template room<M>(scratch, parts), d_scores = given.template room<T>(scratch, parts),
               pattern = given.template room<T>(scratch), d_pattern = whole ? pattern : d_scores,
               d_logits = whole ? d_scores : given.template room<T>(scratch);
  const SharedHeads of_key(d[At::key], heads, scratch.rows < queries),
      of_value(d[At::value], heads, scratch.rows < queries);
  constexpr index_t taps = 2 * beside + 1;
  const Tensor &d_table = d[At::distance_table], &d_u = d[At::mix_table];
  MixFacts<M> mix = given.mix;
  mix.group = {0, within_int(scratch.sequences), 0, within_int(scratch.rows)};
  // Slices of all warps: of weights, and by distance; then dpre of columns near the first key.
  const index_t warps = mix.blocks() * head_warps, weights = weights_of_slice<taps, parts>;
  const bool asked = d[At::mix_output].defined() || d[At::mix_input].defined();
  const index_t of_weights = asked ? warps * weights : 0,
                of_table = d_table.defined() ? warps * mix_slice_rows * mix_heads : 0,
                of_u = d_u.defined() ? warps * mix_slice_rows * mix_hidden : 0,
                of_first = beside > 0 && d_u.defined() ? batch * beside * queries * mix_hidden : 0;
  const Tensor signs =
      whole ? Tensor() : Tensor::empty({warps * (mix_steps + 1), 4 * Thread::warp_size}, DType::i32, device);
  const Tensor sums = Tensor::zeros({of_weights + of_table + of_u + of_first}, dtype_of<C>, device);
  const auto part = [&](index_t from, index_t count) {
    return count > 0 ? global<C>(sums) + from : Global<C>(nullptr);
  };
  const Global<C> table_slices = part(of_weights, of_table), u_slices = part(of_weights + of_table, of_u),
                  first_columns = part(of_weights + of_table + of_u, of_first);
  const Tensor table_total = sums_for(d_table, dtype_of<C>), u_total = sums_for(d_u, dtype_of<C>);
  SumMixSlices<C> by_distance{{table_slices, global<C>(table_total), mix.facts.heads, within_int(at.lowest), 0},
      {u_slices, global<C>(u_total), mix.width, within_int(at.table_lowest), 0}, mix.walks(), mix.group.rows / 64,
      within_int(scratch.sequences), true, 0};
  if (d_table.defined()) by_distance.table.count = within_int(d_table.size(1));
  if (d_u.defined()) {
    by_distance.u.count = within_int(d_u.size(2));
    by_distance.u.to += beside * d_u.size(1) * d_u.size(2);  // the last of u's tables
  }
  by_distance.of_table = by_distance.table.numbers();
  const PieceSums<T> of_pieces(given, scratch);
  each_group(scratch, batch, queries, [&](const MixRows& group, bool rows_end) {
    make_scores<T, width>(given, group, scores);
    make_pairs_of<T, false, width>(given, group, head_rows<const T>(given.value, heads),
        head_rows<const T>(d_output, heads), d_pattern, C(1), row_blocks);
    mix.group = group, mix.scores = given.template blocks<const M>(scores, group);
    const auto of = [&]<class P>(Type<P>, const Tensor& pairs) { return given.template blocks<P>(pairs, group); };
    const auto make_pattern = [&](auto drops) {
      using Body = MixBackward<T, beside, slots, parts, whole ? Makes::all : Makes::pattern, drops>;
      launch_kernel(
          Body{mix, of(Type<const T>{}, d_pattern), of(Type<T>{}, pattern), of(Type<T>{}, d_logits),
              global<std::int32_t>(signs), part(0, of_weights), table_slices, u_slices, {}, given.dropout, row_blocks},
          {.blocks = mix.blocks(), .shared_bytes = Body::shared_bytes});
    };
    given.dropout ? make_pattern(std::true_type{}) : make_pattern(std::false_type{});
    const auto sum_to_keys = [&](const Tensor& pairs, const Tensor& rows, const SharedHeads& to, C scale) {
      if (!to.wide().defined() && !to.narrow().defined()) return;
      launch_kernel(ToKeys{facts, group, of(Type<const T>{}, pairs), head_rows<const T>(rows, heads),
                        head_rows<T>(to.narrow(), heads), head_rows<C>(to.wide(), heads), group.first_query == 0,
                        mix.present, scale},
          {.blocks = ToKeys::blocks(group, facts), .shared_bytes = ToKeys::shared_bytes});
    };
    sum_to_keys(pattern, d_output, of_value, C(1));
    if constexpr (!whole) {
      using Scores = MixBackward<T, beside, slots, parts, Makes::scores, false>;
      launch_kernel(Scores{mix, of(Type<const T>{}, d_logits), {}, of(Type<T>{}, d_scores), global<std::int32_t>(signs),
                        part(0, of_weights), {}, u_slices, first_columns},
          {.blocks = mix.blocks(), .shared_bytes = Scores::shared_bytes});
    }
    sum_to_keys(d_scores, given.query, of_key, facts.scale);
    if (d[At::query].defined())
      launch_kernel(ToQueries{facts, group, of(Type<const T>{}, d_scores), head_rows<const T>(given.key, heads),
                        head_rows<T>(d[At::query], heads), {}, true, mix.present, facts.scale},
          {.blocks = ToQueries::blocks(group, facts), .shared_bytes = ToQueries::shared_bytes});
    of_pieces.add(given, group, d_scores);
    if (!rows_end || of_table + of_u == 0) return;
    by_distance.table.first_distance = mix.facts.first_row + group.first_query;
    by_distance.u.first_distance = by_distance.table.first_distance - beside;
    launch_kernel(
        by_distance, {.blocks = blocks_for(by_distance.of_table + by_distance.u.numbers(), by_distance.threads)});
    by_distance.first = false;
    if (group.first_query + scratch.rows < queries)
      kernels(sums).fill(raw::slice(sums, 0, of_weights, of_weights + of_table + of_u), 0);
  });
  of_key.sum(), of_value.sum(), of_pieces.finish(d);
  if (asked) {
    const Tensor total =
        raw::reduce(Reduction::sum, raw::reshape(raw::slice(sums, 0, 0, of_weights), {warps, weights}), {0}, false);
    const PutMixWeights<T> body{global<const C>(total), SmallOperand<T>::of(d[At::mix_output]),
        SmallOperand<T>::of(d[At::mix_input]), mix.facts.heads, mix.width, taps, parts};
    launch_kernel(body, {.blocks = blocks_for(weights, body.threads)});
  }
  if (of_first > 0) {
    const SumFirstColumns<C> body{first_columns, mix.present, global<C>(u_total), within_int(batch), beside, mix.width,
        facts.queries, facts.first_row, within_int(at.table_lowest), by_distance.u.count};
    launch_kernel(body, {.blocks = blocks_for(index_t(beside) * mix.width * body.count, body.threads)});
  }
  put_sums(table_total, d_table), put_sums(u_total, d_u);
}

}  // namespace

void CudaKernels::mix(const At& at, std::span<const Tensor> x, const Tensor& output, const Tensor& norms) {
  visit_mixes(at, x,
      [&]<class T, int... facts>(Type<T>, Nth<facts>...) { forward<T, facts...>(Given<T>(at, x), output, norms); });
}

void CudaKernels::mix_backward(const At& at, std::span<const Tensor> x, const Tensor& output, const Tensor& norms,
    const Tensor& d_output, std::span<const Tensor> d) {
  visit_mixes(at, x, [&]<class T, int... facts>(Type<T>, Nth<facts>...) {
    backward<T, facts...>(at, Given<T>(at, x), output, norms, d_output, d);
  });
}

}  // namespace whence
