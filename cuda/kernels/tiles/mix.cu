// The head mix in tiles on a GPU: launches of its programs, for groups of rows whose pairs fit into scratch.
#include "tensor/tiled_call.h"

#include "cuda/kernels/tiles/given.h"
#include "cuda/kernels/tiles/head_sums.h"
#include "cuda/kernels/tiles/mix_pieces.h"
#include "cuda/kernels/tiles/mix_scores.h"
#include "cuda/kernels/tiles/mix_values.h"
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
  Tensor query, key, value, input, output, u, table, range;
  std::vector<Tensor> of_pieces;
  PieceTerms<C> pieces;
  PairDropout<C> dropout;
  MixFacts<Mixed<T>> mix;
  index_t key_blocks, scratch_bytes;

  Given(const At& at, std::span<const Tensor> x)
      : query(in_packs(x[At::query])),
        key(in_packs(x[At::key])),
        value(in_packs(x[At::value])),
        input(of_sums(x[At::mix_input])),
        output(of_sums(x[At::mix_output])),
        range(present_range(at.present)),
        scratch_bytes(at.scratch_bytes) {
    const Band band = Band::of(at.first_row, at.causal, at.window);
    mix.facts = {within_int(query.size(1)), within_int(query.size(2)), within_int(key.size(2)),
        within_int(x[At::query].size(3)), within_int(band.first_row), within_int(band.before), within_int(band.after),
        0, 0, static_cast<C>(at.scale), 0, global<const index_t>(at.row)};
    mix.width = within_int(input.size(0)), mix.behind = within_int(at.behind);
    mix.remask = at.remask, mix.adds_pieces = at.adds_pieces;
    mix.slope = static_cast<C>(at.slope);
    mix.input = global<const C>(input), mix.output = global<const C>(output);
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
  template <class P, int of_row = 8> PairBlocks<P, of_row> blocks(const Tensor& x, const MixRows& group) const {
    return {global<P>(x), within_int(x.size(2)), group.rows, within_int(key_blocks)};
  }
  // Returns scratch for blocks of a group's pairs, of all heads or of all channels.
  template <class P, int of_row = 8> Tensor room(const MixScratch& of, int parts = 1) const {
    return Tensor::empty({of.sequences * of.rows, key_blocks, heads() * parts, of_row}, dtype_of<P>, query.device());
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
  // Copies u and the table, for all distances that either has.
  void lay_out(const At& at, std::span<const Tensor> x) {
    const Tensor from_u = of_sums(x[At::mix_table]);
    const Tensor from_table = x[At::distance_table].defined() ? of_sums(x[At::distance_table]) : Tensor();
    const index_t u_count = from_u.size(2), table_count = from_table.defined() ? from_table.size(1) : 0;
    index_t lowest = at.table_lowest, end = at.table_lowest + u_count;
    if (table_count > 0) lowest = std::min(lowest, at.lowest), end = std::max(end, at.lowest + table_count);
    const index_t count = end - lowest;
    u = Tensor::empty({from_u.size(0), count, mix_hidden}, dtype_of<M>, query.device());
    table = Tensor::empty({count, mix_heads}, dtype_of<C>, query.device());
    const MixTerms<T> terms{global<const C>(from_u), global<const C>(from_table), global<M>(u), global<C>(table),
        within_int(from_u.size(0)), mix.width, mix.facts.heads, within_int(u_count), within_int(table_count),
        within_int(lowest), within_int(at.table_lowest), within_int(at.lowest), within_int(count),
        u.numel() + table.numel()};
    launch_kernel(terms, {.blocks = blocks_for(terms.numbers, terms.threads)});
    mix.u = global<const M>(u), mix.table = global<const C>(table);
    mix.lowest = terms.lowest, mix.distances = terms.count;
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
void make_pairs_of(const Given<T>& given, const MixRows& group, const HeadRows<const T>& left,
    const HeadRows<const T>& right, const Tensor& to, compute_t<T> factor, const RowBlocks<compute_t<T>>& deltas) {
  using Body = PairProducts<T, P, width, scores>;
  const Body body{
      given.mix.facts, group, left, right, given.template blocks<P>(to, group), given.mix.present, factor, deltas};
  launch_kernel(
      body, {.blocks = Body::blocks(group, body.facts.heads, body.facts.keys), .shared_bytes = Body::shared_bytes});
}
template <class T, int width> void make_scores(const Given<T>& given, const MixRows& group, const Tensor& to) {
  const index_t heads = given.heads();
  make_pairs_of<Mixed<T>, true, width>(given, group, head_rows<const T>(given.query, heads),
      head_rows<const T>(given.key, heads), to, given.mix.facts.scale / mix_unit, {});
  if (given.parts() > 1) given.template run_pieces<false>(given.template blocks<Mixed<T>>(to, group), group);
}

template <class T, int width, int beside, int slots, int parts>
void forward(const Given<T>& given, const Tensor& output, const Tensor& norms) {
  using C = compute_t<T>;
  using M = Mixed<T>;
  using Values = MixValues<T, width>;
  using Logits = MixLogits<M, beside, beside, slots, parts, false>;
  const index_t heads = given.heads();
  const MixScratch scratch = given.scratch(6 + 4 * parts);  // X, powers, and one base per four keys
  const Tensor scores = given.template room<M>(scratch, parts), powers = given.template room<M>(scratch),
               bases = given.template room<C, 2>(scratch);
  each_group(scratch, given.query.size(0), given.query.size(2), [&](const MixRows& group, bool) {
    make_scores<T, width>(given, group, scores);
    Logits logits{given.mix, given.template blocks<M>(powers, group), given.template blocks<C, 2>(bases, group)};
    logits.mix.group = group, logits.mix.scores = given.template blocks<const M>(scores, group);
    launch_kernel(logits, {.blocks = logits.mix.blocks(), .shared_bytes = Logits::shared_bytes});
    launch_kernel(Values{given.mix.facts, given.dropout, group, given.template blocks<const M>(powers, group),
                      given.template blocks<const C, 2>(bases, group), head_rows<const T>(given.value, heads),
                      head_rows<T>(output, heads), global<C>(norms), given.mix.present},
        {.blocks = Values::blocks(group, given.mix.facts.heads), .shared_bytes = Values::shared_bytes});
  });
}

// Returns columns of a factor of heads, in axis 1, as heads in order.
Tensor heads_in_order(const Tensor& x, index_t heads) {  // [n 16 m] -> [n h m]
  const Tensor apart = raw::reshape(x, {x.size(0), 2, 4, 2, x.size(2)});
  return raw::slice(raw::reshape(raw::permute(apart, {0, 1, 3, 2, 4}), x.shape()), 1, 0, heads);
}

// Sums of weights by the warps of all groups; empty if not wanted.
template <class C> struct WeightSums {
  Tensor slices;
  WeightSums(bool asked, index_t blocks, index_t taps, Device device) {
    if (asked) slices = Tensor::zeros({blocks * head_warps, taps * mix_heads * mix_hidden}, dtype_of<C>, device);
  }
  // [tap, channel, hidden number]
  Tensor total(index_t heads, index_t width, index_t taps) const {
    const Tensor sum = raw::reduce(Reduction::sum, slices, {0}, false);
    return raw::reshape(raw::slice(heads_in_order(raw::reshape(sum, {-1, mix_heads, mix_hidden}), heads), 2, 0, width),
        {taps, -1, width});
  }
};

// Sums by distance, `count` of them from `lowest` on, [count, columns]. Slices are of the same rows of sequences.
template <class C> struct DistanceSums {
  index_t columns, lowest, ahead;  // ahead: how far the columns of keys are ahead of a walk's
  Tensor slices, total;
  DistanceSums(const Tensor& like, index_t blocks, index_t of, index_t first, index_t count, index_t columns_ahead)
      : columns(of), lowest(first), ahead(columns_ahead) {
    if (!like.defined()) return;
    slices = Tensor::zeros({blocks * head_warps, mix_slice_rows, columns}, dtype_of<C>, like.device());
    total = Tensor::zeros({count, columns}, dtype_of<C>, like.device());
  }
  template <class M> void finish_rows(const MixFacts<M>& mix, const MixScratch& scratch, bool last) const {
    if (!slices.defined()) return;
    const SumMixSlices<C> body{global<const C>(slices), global<C>(total), within_int(columns), mix.walks(),
        mix.group.rows / 64, within_int(scratch.sequences),
        within_int(mix.facts.first_row + mix.group.first_query - ahead), within_int(lowest), within_int(total.size(0))};
    launch_kernel(body, {.blocks = blocks_for(total.numel(), body.threads)});
    if (!last) kernels(slices).fill(slices, 0);
  }
};

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
void backward(const At& at, std::span<const Tensor> x, const Given<T>& given, const Tensor& output, const Tensor& norms,
    const Tensor& given_d_output, std::span<const Tensor> d) {
  using C = compute_t<T>;
  using M = Mixed<T>;
  using Pattern = MixLogits<T, beside, beside, slots, parts, true>;
  using Scores = MixScores<T, beside, beside, slots, parts>;
  static_assert(sizeof(T) > 2 || (Pattern::shared_bytes <= shared_bytes_of_mix_pieces &&
                                     Scores::shared_bytes <= shared_bytes_of_mix_pieces &&
                                     MixPieces<T, true>::shared_bytes(most_mix_pieces) <= shared_bytes_of_mix_pieces));
  using ToKeys = PairSums<T, width, true>;
  using ToQueries = PairSums<T, width, false>;
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

  const MixScratch scratch = given.scratch(8 + 8 * parts);
  const Tensor scores = given.template room<M>(scratch, parts), d_scores = given.template room<T>(scratch, parts),
               pattern = given.template room<T>(scratch), d_logits = given.template room<T>(scratch),
               d_pattern = raw::reshape(
                   raw::slice(d_scores, 0, 0, d_scores.size(0) / parts), pattern.shape());  // then overwritten
  const SharedHeads of_key(d[At::key], heads, scratch.rows < queries),
      of_value(d[At::value], heads, scratch.rows < queries);
  constexpr index_t taps = 2 * beside + 1;
  const Tensor &d_table = d[At::distance_table], &d_u = d[At::mix_table];
  MixFacts<M> mix = given.mix;
  mix.group = {0, within_int(scratch.sequences), 0, within_int(scratch.rows)};
  const index_t blocks = mix.blocks();
  const WeightSums<C> of_output(d[At::mix_output].defined(), blocks, taps, device),
      of_input(d[At::mix_input].defined(), blocks, taps * parts, device);
  const PieceSums<T> of_pieces(given, scratch);
  const DistanceSums<C> by_distance(d_table, blocks, mix_heads, at.lowest, d_table.defined() ? d_table.size(1) : 0, 0),
      by_distance_u(d_u, blocks, mix_hidden, at.table_lowest, x[At::mix_table].size(2), beside);
  const Tensor first_columns =
      beside > 0 && d_u.defined() ? Tensor::zeros({batch, beside, queries, mix_hidden}, dtype_of<C>, device) : Tensor();

  each_group(scratch, batch, queries, [&](const MixRows& group, bool rows_end) {
    make_scores<T, width>(given, group, scores);
    make_pairs_of<T, false, width>(given, group, head_rows<const T>(d_output, heads),
        head_rows<const T>(given.value, heads), d_pattern, C(1), row_blocks);
    mix.group = group, mix.scores = given.template blocks<const M>(scores, group);
    const auto of = [&]<class P>(Type<P>, const Tensor& pairs) { return given.template blocks<P>(pairs, group); };
    launch_kernel(
        Pattern{mix, {}, {}, given.dropout, row_blocks, of(Type<const T>{}, d_pattern), of(Type<T>{}, pattern),
            of(Type<T>{}, d_logits), global<C>(of_output.slices), global<C>(by_distance.slices)},
        {.blocks = mix.blocks(), .shared_bytes = Pattern::shared_bytes});
    const auto sum_to_keys = [&](const Tensor& pairs, const Tensor& rows, const SharedHeads& to, C scale) {
      if (!to.wide().defined() && !to.narrow().defined()) return;
      launch_kernel(ToKeys{facts, group, of(Type<const T>{}, pairs), head_rows<const T>(rows, heads),
                        head_rows<T>(to.narrow(), heads), head_rows<C>(to.wide(), heads), group.first_query == 0,
                        mix.present, scale},
          {.blocks = group.sequences * heads * blocks_for(facts.keys, ToKeys::rows),
              .shared_bytes = ToKeys::shared_bytes});
    };
    sum_to_keys(pattern, d_output, of_value, C(1));
    launch_kernel(Scores{mix, of(Type<const T>{}, d_logits), of(Type<T>{}, d_scores), global<C>(of_input.slices),
                      global<C>(by_distance_u.slices), global<C>(first_columns)},
        {.blocks = mix.blocks(), .shared_bytes = Scores::shared_bytes});
    sum_to_keys(d_scores, given.query, of_key, facts.scale);
    if (d[At::query].defined())
      launch_kernel(ToQueries{facts, group, of(Type<const T>{}, d_scores), head_rows<const T>(given.key, heads),
                        head_rows<T>(d[At::query], heads), {}, true, mix.present, facts.scale},
          {.blocks = group.sequences * heads * (group.rows / ToQueries::rows),
              .shared_bytes = ToQueries::shared_bytes});
    of_pieces.add(given, group, d_scores);
    if (!rows_end) return;
    const bool last = group.first_query + scratch.rows >= queries;
    by_distance.finish_rows(mix, scratch, last), by_distance_u.finish_rows(mix, scratch, last);
  });
  of_key.sum(), of_value.sum(), of_pieces.finish(d);
  const auto copy = [&](const Tensor& from, const Tensor& to) { kernels(to).copy(from, to); };
  if (d[At::mix_output].defined())
    copy(raw::permute(of_output.total(heads, given.mix.width, taps), {1, 2, 0}), d[At::mix_output]);
  if (d[At::mix_input].defined())
    copy(raw::permute(of_input.total(heads, given.mix.width, taps), {2, 1, 0}), d[At::mix_input]);
  if (d_table.defined()) {
    const Tensor& total = by_distance.total;
    copy(raw::permute(raw::select(heads_in_order(raw::unsqueeze(total, 2), heads), 2, 0), {1, 0}), d_table);
  }
  if (!d_u.defined()) return;
  copy(raw::permute(raw::slice(by_distance_u.total, 1, 0, given.mix.width), {1, 0}), raw::select(d_u, 0, beside));
  if (beside == 0) return;
  const Tensor first = Tensor::empty({beside, d_u.size(1), d_u.size(2)}, dtype_of<C>, device);
  const SumFirstColumns<C> sums{global<const C>(first_columns), given.mix.present, global<C>(first), within_int(batch),
      beside, given.mix.width, facts.queries, facts.first_row, within_int(at.table_lowest), within_int(d_u.size(2))};
  launch_kernel(sums, {.blocks = blocks_for(first.numel(), sums.threads)});
  copy(first, raw::slice(d_u, 0, 0, beside));
}

}  // namespace

void CudaKernels::mix(const At& at, std::span<const Tensor> x, const Tensor& output, const Tensor& norms) {
  visit_mixes(at, x,
      [&]<class T, int... facts>(Type<T>, Nth<facts>...) { forward<T, facts...>(Given<T>(at, x), output, norms); });
}

void CudaKernels::mix_backward(const At& at, std::span<const Tensor> x, const Tensor& output, const Tensor& norms,
    const Tensor& d_output, std::span<const Tensor> d) {
  visit_mixes(at, x, [&]<class T, int... facts>(Type<T>, Nth<facts>...) {
    backward<T, facts...>(at, x, Given<T>(at, x), output, norms, d_output, d);
  });
}

}  // namespace whence
