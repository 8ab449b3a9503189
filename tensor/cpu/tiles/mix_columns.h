// The head mix of DAPE and CDAPE: all heads of some queries at once, as the scores of one head enter the logits of all.
//                                                               Zheng et al. 2024, arXiv:2405.14722 and 2410.04798
//   hidden_d[c] = leaky(u[d, i-c] + sum_{x,t} W1[d x t] X_x[c + t - left])
//   A_h[j]      = S_h[j] + B_h[j] + base[h, i-j] + sum_{d,t} W2[h d t] hidden_d[j + t - left]
// X = [S, B], where B is the base's piecewise bias (FIRE), if it has one: a channel for each head after the scores.
// cuda/ladder/mix_attention.cu is the same for one query, in plain loops. The two convolutions are here; forward (mix_forward.h) and
// backward (mix_backward.h) run them on some columns at a time.
// Numbers of some queries are stored as [head or hidden number, key, lane]. Adjacent keys are adjacent rows: a tap of
// the convolution is the same product with a pointer one row further.
#pragma once

#include "tensor/cpu/tiles/programs/piecewise.h"

namespace whence::tiles::WHENCE_TILES_TARGET {

// Keys of a step of backward: its X, dA and P stay in the cache from the scores to the products.
template <class T> inline constexpr extent step_keys = has_vectors<T> ? 64 : 8;

// Numbers [row, key, lane] of the keys from `first` on.
template <class T> struct Columns {
  T* at;
  extent first, row, wide;  // row: stride of rows; wide: lanes
  T* operator()(extent key) const { return at + (key - first) * wide; }
  T* operator()(extent r, extent key) const { return at + r * row + (key - first) * wide; }
};

template <class T> struct MixBlock {
  const Problem<T>& p;
  QueryBlock<T> block;  // of head 0: which queries
  extent wide, keys;
  extent first_seen, hidden_end;  // range of columns where hidden is computed and that some query sees
  extent first_step;              // of backward: whole steps before the window are skipped

  MixBlock(const Problem<T>& problem, extent b, extent first_query, extent lanes_of_part)
      : p(problem),
        block(problem, b, 0, first_query, min(lanes_of_part, problem.queries - first_query), lanes_of_part),
        wide(lanes_of_part),
        keys(block.keys()) {
    first_seen = 0;
    extent end = p.keys;
    if (const bool* present = block.present()) {
      while (first_seen < p.keys && !present[first_seen]) ++first_seen;
      while (end > first_seen && !present[end - 1]) --end;
    }
    first_step = max(block.first_key() - first_seen, 0) / step_keys<T>;  // REQUIRES: no taps on either side
    first_seen += first_step * step_keys<T>;
    hidden_end = min(end == p.keys ? p.keys + p.behind : end, keys + p.right);
  }
  extent packs(extent columns) const { return columns * wide / lanes<T>; }

  // The base's bias for hidden and for the logits: lanes of column c; hidden numbers and heads are mix_distances apart.
  // Then the same for its gradients. Null: no bias.
  const T* to_hidden(extent c) const { return p.in[At::mix_table].at + hidden_table(c) * p.mix_distances + place(c); }
  const T* to_logits(extent c) const {
    return p.in[At::distance_table].at ? p.in[At::distance_table].at + place(c) : nullptr;
  }
  T* d_hidden(extent c) const {
    const extent table = block.b * (p.left + 1) * p.width + hidden_table(c);
    return p.d[At::mix_table].at ? p.d[At::mix_table].at + table * p.mix_distances + place(c) : nullptr;
  }
  T* d_logits(extent c) const {
    return p.d[At::distance_table].at ? p.d[At::distance_table].at + block.b * p.heads * p.mix_distances + place(c)
                                      : nullptr;
  }
  // Lanes from here on see column c, if it is a key.
  extent first_lane(extent c) const { return min(wide, max(0, c - block.first_token() - p.after)); }
  QueryBlock<T> of_head(extent h) const { return QueryBlock<T>(p, block.b, h, block.first_query, block.rows, wide); }

  // Sets to 0 the unseen pairs of a head's columns [begin, end).
  void blank_unseen(T* head, extent begin, extent end) const {
    const bool* present = block.present();
    for (extent c = begin; c < end; ++c) {
      const bool none = c < 0 || c >= keys || (present && !present[c]);
      if (none || first_lane(c) > 0) clear(head + (c - begin) * wide, none ? wide : first_lane(c));
    }
  }
  // The index of a column's lane 0 in a table of distances, and of its table for hidden.
  extent place(extent c) const { return block.first_token() - c - p.mix_lowest; }
  extent hidden_table(extent c) const { return min(c - first_seen, p.left) * p.width; }

  // Returns f(number of the vector) -> address of column c's lanes, for `place` or `begin` of products().
  template <class F> auto by_column(extent begin, const F& f) const {
    return [=, this](extent n) {
      const extent each = wide / lanes<T>;
      auto* at = f(begin + n / each);
      return at ? at + n % each * lanes<T> : at;
    };
  }
};

// Computes hidden for the columns [begin, end).
template <class T>
static void hidden_columns(const MixBlock<T>& part, Columns<T> scores, extent begin, extent end, Columns<T> hidden) {
  const Problem<T>& p = part.p;
  const extent from = min(max(begin, part.first_seen), end), to = max(min(end, part.hidden_end), from);
  for (extent d = 0; d < p.width; ++d) {
    clear(hidden(d, begin), (from - begin) * part.wide);
    clear(hidden(d, to), (end - to) * part.wide);
  }
  products<T, Finish::leaky>(p.width, part.packs(to - from), {p.channels, p.kernel, 1, part.wide},
      {p.in[At::mix_input].at, p.channels * p.kernel, p.kernel}, scores(from - p.left), scores.row,
      part.by_column(from, [&](extent c) { return part.to_hidden(c); }), p.mix_distances,
      part.by_column(from, [&](extent c) { return hidden(c); }), hidden.row, p.slope);
  for (extent c = from; p.remask && c < to; ++c)
    for (extent d = 0; d < p.width; ++d) clear(hidden(d, c), part.first_lane(c));
}

// Computes the logits of the keys [begin, end).
template <class T>
static void mixed_logits(
    const MixBlock<T>& part, Columns<T> scores, Columns<T> hidden, extent begin, extent end, Columns<T> logits) {
  const Problem<T>& p = part.p;
  products<T, Finish::none>(p.heads, part.packs(end - begin), {p.width, p.kernel, 1, part.wide},
      {p.in[At::mix_output].at, p.width * p.kernel, p.kernel}, hidden(begin - p.left), hidden.row,
      part.by_column(begin, [&](extent c) { return part.to_logits(c); }), p.mix_distances,
      part.by_column(begin, [&](extent c) { return logits(c); }), logits.row, T(0));
  for (extent channel = 0; channel < (p.adds_pieces ? p.channels : p.heads); ++channel) {
    const T* x = scores(channel, begin);
    T* y = logits(channel % p.heads, begin);
    for (extent n = 0; n < (end - begin) * part.wide; n += lanes<T>) store<T>(y + n, load(y + n) + load(x + n));
  }
}

// Moves the last `kept` columns of a segment to the front; the others are dropped.
template <class T> static void carry(extent rows, extent kept, extent segment, Columns<T>& tile) {
  for (extent r = 0; r < rows && kept > 0; ++r)
    for (extent n = 0; n < kept * tile.wide; ++n)
      tile.at[r * tile.row + n] = tile.at[r * tile.row + segment * tile.wide + n];
  tile.first += segment;
}

// Calls f(first, count) for rows [begin, end), as many at a time as a product of `packs` vectors takes; for all at once
// if `packs` is 0. Between two calls f prefetches the next head's rows: heads are far apart in memory, and no cache
// keeps all of them from one block of queries to the next.
template <class F> static void by_few_rows(extent begin, extent end, extent packs, const F& f) {
  const extent few = packs >= most_packs ? rows_at_once<most_packs> : packs > 0 ? rows_at_once<2> : end - begin;
  for (extent at = begin; at < end; at += few) f(at, min(few, end - at));
}
template <class T> static void prefetch(const T* rows, extent row, extent count, extent width) {
  for (extent r = 0; r < count; ++r)
    for (extent c = 0; c < width; c += 64 / static_cast<extent>(sizeof(T)))
      __builtin_prefetch(rows + r * row + c, 0, 2);
}

// Rows of the queries times rows of the keys [begin, end), for all heads; 0 where not seen. queries: [head, dim, lane].
// ahead: true prefetches the next head's rows. Forward reads half as many bytes and is faster without.
template <class T>
static void score_columns(const MixBlock<T>& part, const T* queries, Rows<const T> keys, extent dim, extent begin,
    extent end, Columns<T> scores, bool ahead) {
  const Problem<T>& p = part.p;
  const extent from = min(max(begin, 0), end), to = max(min(end, part.keys), from), packs = part.wide / lanes<T>;
  for (extent h = 0; h < p.heads; ++h) {
    by_few_rows(from, to, ahead ? packs : 0, [&](extent at, extent count) {
      if (ahead && h + 1 < p.heads) prefetch(head_of(keys, part.block.b, h + 1) + at * keys.row, keys.row, count, dim);
      const extent skip = part.first_lane(at) / lanes<T> * lanes<T>;
      multiply<T>(count, part.wide - skip, {dim}, {head_of(keys, part.block.b, h) + at * keys.row, keys.row, 1},
          queries + h * dim * part.wide + skip, part.wide, scores(h, at) + skip, part.wide, Start::zero);
    });
    part.blank_unseen(scores(h, begin), begin, end);
  }
}

// B of the columns [begin, end), for all heads, in the rows after the scores; 0 where not seen.
template <class T>
static void piece_columns(const MixBlock<T>& part, Piecewise<T>& pieces, extent begin, extent end, Columns<T> scores) {
  const extent from = min(max(begin, 0), end), to = max(min(end, part.keys), from), heads = part.p.heads;
  for (extent h = 0; pieces.runs(part.p) && h < heads; ++h) {
    const QueryBlock<T> block = part.of_head(h);
    clear(scores(heads + h, begin), (end - begin) * part.wide);
    pieces.add(Tile<T>(block, from, to - from), scores(heads + h, from));
    part.blank_unseen(scores(heads + h, begin), begin, end);
  }
}

}  // namespace whence::tiles::WHENCE_TILES_TARGET
