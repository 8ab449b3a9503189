// The head mix of DAPE and CDAPE: all heads of some queries at once, as the scores of one head go into the logits of all.
//                                                               Zheng et al. 2024, arXiv:2405.14722 and 2410.04798
//   hidden_d[c] = leaky(u[d, i-c] + sum_{x,t} W1[d x t] X_x[c + t - left])
//   A_h[j]      = S_h[j] + B_h[j] + base[h, i-j] + sum_{d,t} W2[h d t] hidden_d[j + t - left]
// X = [S, B], where B is the base's piecewise bias (FIRE), if it has one: a channel for each head behind the scores.
// Numbers of a part of the queries lie as [head or hidden number, key, lane]. Keys next to each other are rows next to
// each other: a tap of the convolution is the same product from a pointer that is one row further.
//   forward   walks up the keys by segments. X and hidden exist for one segment and the kernel - 1 columns before it;
//             softmax and the sum of values go on from segment to segment, as they do for one head.
//   backward  with dA = P (dP - o.do):
//     dpre_d[c]  = leaky'(hidden) sum_{h,t} W2[h d t] dA_h[c - t + left]
//     dX_x[c]    = dA_h[c] + sum_{d,t} W1[d x t] dpre_d[c - t + left],  h: x's head
//     dW2[h d t] = sum dA_h[j] hidden_d[j + t - left],  dW1[d x t] = sum dpre_d[c] X_x[c + t - left],
//     du         = diagonals of dpre
//             Z and o.do are known, so it walks up the keys too, once, by steps: scores of a step, the mix by pieces of
//             it, then what the step gives to dv, dk and dq while all of it is in the cache. dpre follows `left` columns
//             behind hidden, and dX again `left` behind that, when all that they read is there. Blocks of queries walk
//             one behind the other (problem.h), so that every sum has one order for any number of threads.
#pragma once

#include "tensor/cpu/tiles/programs/piecewise.h"

namespace whence::tiles::WHENCE_TILES_TARGET {

// Queries of a block in forward, and pairs of a segment: X, hidden and logits of all heads for 1024 pairs stay in the
// second cache, and are many enough that what a segment begins and carries is little.
template <class T> inline constexpr extent mix_block = has_vectors<T> ? block_rows<T> / 2 : 2;
template <class T> inline constexpr extent segment_pairs = has_vectors<T> ? 1024 : 8;

// Keys of a step of backward: X, dA and P of it stay in the cache from the scores to the products.
template <class T> inline constexpr extent step_keys = has_vectors<T> ? 64 : 8;

// Numbers [row, key, lane] of the keys from `first` on.
template <class T> struct Columns {
  T* at;
  extent first, row, wide;  // row: how far rows lie apart; wide: lanes
  T* operator()(extent key) const { return at + (key - first) * wide; }
  T* operator()(extent r, extent key) const { return at + r * row + (key - first) * wide; }
};

template <class T> struct Part {
  const MixProblem<T>& p;
  Block<T> block;  // of head 0: which queries
  extent wide, keys;
  extent first_seen, hidden_end;  // columns where hidden is computed, those behind everybody's reach left out
  extent first_step;              // of backward: a window leaves whole steps out

  Part(const MixProblem<T>& problem, extent b, extent first_query, extent lanes_of_part)
      : p(problem),
        block(problem, b, 0, first_query, least(lanes_of_part, problem.queries - first_query), lanes_of_part),
        wide(lanes_of_part),
        keys(block.keys()) {
    first_seen = 0;
    extent end = p.keys;
    if (const bool* present = block.present()) {
      while (first_seen < p.keys && !present[first_seen]) ++first_seen;
      while (end > first_seen && !present[end - 1]) --end;
    }
    first_step = most(block.first_key() - first_seen, 0) / step_keys<T>;  // REQUIRES: no taps on either side
    first_seen += first_step * step_keys<T>;
    hidden_end = least(end == p.keys ? p.keys + p.behind : end, keys + p.right);
  }
  extent segment() const { return most(1, segment_pairs<T> / wide); }
  extent packs(extent columns) const { return columns * wide / lanes<T>; }

  // What the base's bias gives to hidden and to the logits: lanes of column c, of hidden numbers and of heads
  // mix_distances apart; and where their gradients are summed. Null: nothing.
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
  // Lanes from here on see column c, were it a key.
  extent first_lane(extent c) const { return least(wide, most(0, c - block.first_token() - p.after)); }
  Block<T> of_head(extent h) const { return Block<T>(p, block.b, h, block.first_query, block.rows, wide); }

  // Blanks what is not seen of the columns [begin, end) of a head.
  void blank_unseen(T* head, extent begin, extent end) const {
    const bool* present = block.present();
    for (extent c = begin; c < end; ++c) {
      const bool none = c < 0 || c >= keys || (present && !present[c]);
      if (none || first_lane(c) > 0) clear(head + (c - begin) * wide, none ? wide : first_lane(c));
    }
  }
  // Where a table of distances is read for lane 0 and a column, and which of hidden's tables.
  extent place(extent c) const { return block.first_token() - c - p.mix_lowest; }
  extent hidden_table(extent c) const { return least(c - first_seen, p.left) * p.width; }

  // f(number of the vector) -> where column c's lanes begin, as `place` or `begin` of products().
  template <class F> auto by_column(extent begin, const F& f) const {
    return [=, this](extent n) {
      const extent each = wide / lanes<T>;
      auto* at = f(begin + n / each);
      return at ? at + n % each * lanes<T> : at;
    };
  }
};

// hidden for the columns [begin, end).
template <class T>
static void hidden_columns(const Part<T>& part, Columns<T> scores, extent begin, extent end, Columns<T> hidden) {
  const MixProblem<T>& p = part.p;
  const extent from = least(most(begin, part.first_seen), end), to = most(least(end, part.hidden_end), from);
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

// Logits of the keys [begin, end).
template <class T>
static void mixed_logits(
    const Part<T>& part, Columns<T> scores, Columns<T> hidden, extent begin, extent end, Columns<T> logits) {
  const MixProblem<T>& p = part.p;
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

// The last `kept` of all columns become the first, and those before them are forgotten.
template <class T> static void carry(extent rows, extent kept, extent segment, Columns<T>& tile) {
  for (extent r = 0; r < rows && kept > 0; ++r)
    for (extent n = 0; n < kept * tile.wide; ++n)
      tile.at[r * tile.row + n] = tile.at[r * tile.row + segment * tile.wide + n];
  tile.first += segment;
}

// f(first, count) for rows [begin, end), as many at a time as a product of `packs` vectors takes; all at once where
// there are no packs. Between two pieces f prefetches the next head's rows: heads lie far apart, and between two blocks
// of queries no cache keeps what all of them read.
template <class F> static void by_few_rows(extent begin, extent end, extent packs, const F& f) {
  const extent few = packs >= most_packs ? rows_at_once<most_packs> : packs > 0 ? rows_at_once<2> : end - begin;
  for (extent at = begin; at < end; at += few) f(at, least(few, end - at));
}
template <class T> static void prefetch(const T* rows, extent row, extent count, extent width) {
  for (extent r = 0; r < count; ++r)
    for (extent c = 0; c < width; c += 64 / static_cast<extent>(sizeof(T)))
      __builtin_prefetch(rows + r * row + c, 0, 2);
}

// Rows of the queries times rows of the keys [begin, end), for all heads; 0 where not seen. queries: [head, dim, lane].
// ahead: whether to ask for the next head's rows. Forward goes through half as many bytes and is faster without.
template <class T>
static void score_columns(const Part<T>& part, const T* queries, Rows<const T> keys, extent dim, extent begin,
    extent end, Columns<T> scores, bool ahead) {
  const MixProblem<T>& p = part.p;
  const extent from = least(most(begin, 0), end), to = most(least(end, part.keys), from), packs = part.wide / lanes<T>;
  for (extent h = 0; h < p.heads; ++h) {
    by_few_rows(from, to, ahead ? packs : 0, [&](extent at, extent count) {
      if (ahead && h + 1 < p.heads) prefetch(keys.of(part.block.b, h + 1) + at * keys.row, keys.row, count, dim);
      const extent skip = part.first_lane(at) / lanes<T> * lanes<T>;
      multiply<T>(count, part.wide - skip, {dim}, {keys.of(part.block.b, h) + at * keys.row, keys.row, 1},
          queries + h * dim * part.wide + skip, part.wide, scores(h, at) + skip, part.wide, Start::zero);
    });
    part.blank_unseen(scores(h, begin), begin, end);
  }
}

// B of the columns [begin, end), for all heads, in the rows behind the scores; 0 where not seen.
template <class T>
static void piece_columns(const Part<T>& part, Piecewise<T>& pieces, extent begin, extent end, Columns<T> scores) {
  const extent from = least(most(begin, 0), end), to = most(least(end, part.keys), from), heads = part.p.heads;
  for (extent h = 0; pieces.runs(part.p) && h < heads; ++h) {
    const Block<T> block = part.of_head(h);
    clear(scores(heads + h, begin), (end - begin) * part.wide);
    pieces.add(Tile<T>(block, from, to - from), scores(heads + h, from));
    part.blank_unseen(scores(heads + h, begin), begin, end);
  }
}

// ---- forward ----

template <class T> struct MixForward {
  Piecewise<T> pieces;
  T *queries, *scores, *hidden, *logits, *output, *top, *total, *factor;
  extent row;  // of scores, hidden and logits

  extent layout(const MixProblem<T>& p, T* at) {
    Cutter<T> cut{at};
    row = segment_pairs<T> + 2 * p.kernel * mix_block<T>;
    queries = cut.take(p.heads * p.dim * mix_block<T>);
    scores = cut.take(p.channels * row), logits = cut.take(p.heads * row);
    hidden = cut.take(p.width * row);
    output = cut.take(p.heads * mix_block<T> * padded<T>(p.value_dim));
    top = cut.take(p.heads * block_rows<T>), total = cut.take(p.heads * block_rows<T>);
    factor = cut.take(block_rows<T>);
    pieces.take(cut, p, false, p.heads);
    return cut.taken;
  }
  RunningSoftmax<T> softmax(extent h) const { return {top + h * block_rows<T>, total + h * block_rows<T>, factor}; }
};

template <class T> static extent mix_forward_scratch(const MixProblem<T>& p) {
  return MixForward<T>().layout(p, nullptr);
}

template <class T> static void mix_forward(const MixProblem<T>& p, extent b, extent first_query, T* scratch) {
  const Part<T> part(p, b, first_query, mix_block<T>);
  MixForward<T> f;
  f.layout(p, scratch);
  const extent segment = part.segment(), kept = p.kernel - 1, width = padded<T>(p.value_dim);
  f.pieces.hold(p, 0, p.heads);
  for (extent h = 0; h < p.heads; ++h) {
    f.pieces.block(part.of_head(h));
    pack_transposed(p.in[At::query].of(b, h) + first_query * p.in[At::query].row, p.in[At::query].row, part.block.rows,
        p.dim, part.wide, p.scale, f.queries + h * p.dim * part.wide);
    f.softmax(h).begin();
  }
  clear(f.output, p.heads * part.wide * width);
  // Scores run `right` columns ahead of hidden, and hidden of the logits.
  const extent kept_scores = kept + p.right;
  Columns<T> hidden{f.hidden, part.first_seen - p.left, f.row, part.wide},
      scores{f.scores, part.first_seen - p.left, f.row, part.wide};
  for (extent begin = part.first_seen; begin < part.keys; begin += segment) {
    const bool first = begin == part.first_seen;
    const extent base = hidden.first, end = least(begin + segment, part.keys);
    const extent new_scores = first ? base : base + kept_scores, scores_end = base + kept_scores + segment;
    score_columns(part, f.queries, p.in[At::key], p.dim, new_scores, scores_end, scores, false);
    piece_columns(part, f.pieces, new_scores, scores_end, scores);
    hidden_columns(part, scores, first ? base : base + kept, base + kept + segment, hidden);
    const Columns<T> logits{f.logits, begin, f.row, part.wide};
    mixed_logits(part, scores, hidden, begin, end, logits);
    for (extent h = 0; h < p.heads; ++h) {
      const Block<T> block = part.of_head(h);
      const Tile<T> tile(block, begin, end - begin);
      T *x = logits(h, begin), *output = f.output + h * part.wide * width;
      if (f.softmax(h).add(tile, x)) f.softmax(h).fade(block.rows, width, output);
      drop(tile, x);
      sum_over_keys(
          tile, x, p.in[At::value].of(b, h) + begin * p.in[At::value].row, p.in[At::value].row, width, output);
    }
    carry(p.channels, kept_scores, segment, scores);
    carry(p.width, kept, segment, hidden);
  }
  for (extent h = 0; h < p.heads; ++h) f.softmax(h).write(part.of_head(h), f.output + h * part.wide * width, width);
}

// ---- backward ----

// Keys of a piece of a step: hidden and dpre of it stay in the cache from one convolution to the next.
template <class T> inline constexpr extent piece_keys = has_vectors<T> ? 16 : 2;

// Sums of the columns [begin, end) along their diagonals, which then go to the rows of a table of distances: a sum over
// all queries is one of short sums. Distances run along lanes and keys: neighbouring keys go to overlapping places. So
// rows run inside, and a place is not read right after it was written.
template <class T> struct DiagonalSums {
  static constexpr extent wide = block_rows<T>;
  extent rows, begin, end, table_row;
  T* sums;  // [row, count]

  extent count() const { return end - begin - 1 + wide; }
  static extent size(const MixProblem<T>& p) { return most(p.heads, p.width) * (piece_keys<T> + block_rows<T>); }
  void add(extent row, extent column, const T* x) const {
    T* const to = sums + row * count() + end - 1 - column;
    for (extent n = 0; n < wide; n += lanes<T>) store<T>(to + n, load(to + n) + load(x + n));
  }
  // to: where lane 0 of the last column goes, in the first row.
  void finish(T* to) const {
    for (extent row = 0; row < rows; ++row, to += table_row)
      for (extent n = 0; n < count(); ++n) to[n] += sums[row * count() + n];
  }
};

// A block of queries: `number` times block_rows is the first.
template <class T> struct MixBackward {
  static constexpr extent wide = block_rows<T>;
  const MixProblem<T>& p;
  const extent b, number;
  const Part<T> part;
  const extent width, value_width, kept;         // kept: columns that stay from piece to piece
  Columns<T> scores, gradient, pattern;          // of a step: X; dP, then dA, then dX; logits, then P
  Columns<T> hidden, dpre;                       // of a piece. Each follows the one that it reads by `left` columns
  T *queries, *d_outputs;                        // [head, dim, lane]
  T *query_rows, *d_query_rows, *d_output_rows;  // [head, lane, dim]
  T *input_sums, *output_sums;  // [tap, channel or head, hidden number], vectors whose lanes are to be summed
  T* diagonals;
  RowNumbers<T> row_numbers;  // [head, lane]
  Piecewise<T> pieces;

  MixBackward(const MixProblem<T>& problem, extent batch, extent block)
      : p(problem),
        b(batch),
        number(block),
        part(p, b, number * wide, wide),
        width(padded<T>(p.dim)),
        value_width(padded<T>(p.value_dim)),
        kept(p.kernel - 1) {}

  extent layout(T* at) {
    Cutter<T> cut{at};
    const auto columns = [&](extent rows, extent count, extent first) {
      return Columns<T>{cut.take(rows * count * wide), first, count * wide, wide};
    };
    const extent first = part.first_seen, of_step = step_keys<T> + 4 * p.kernel, of_piece = piece_keys<T> + p.kernel;
    scores = columns(p.channels, of_step, first - 2 * p.left);
    gradient = columns(p.channels, of_step, first - 2 * p.left);
    pattern = columns(p.heads, of_step, first);
    hidden = columns(p.width, of_piece, first - p.left);
    dpre = columns(p.width, of_piece, first - p.left - kept);
    queries = cut.take(p.heads * p.dim * wide), d_outputs = cut.take(p.heads * p.value_dim * wide);
    query_rows = cut.take(p.heads * wide * width), d_query_rows = cut.take(p.heads * wide * width);
    d_output_rows = cut.take(p.heads * wide * value_width);
    input_sums = cut.take(p.channels * sum_numbers()), output_sums = cut.take(p.heads * sum_numbers());
    diagonals = cut.take(DiagonalSums<T>::size(p));
    row_numbers.take(cut, p.heads * wide);
    pieces.take(cut, p, true, p.heads);
    return cut.taken;
  }
  extent sum_numbers() const { return p.kernel * p.width * lanes<T>; }

  void run(T* scratch) {
    layout(scratch);
    begin();
    for (extent first = part.first_seen, count = part.first_step; first < part.keys; first += step_keys<T>, ++count)
      step(first, count);
    write_queries();
    p.enter(p.turns, b, number, last_step);
    write_weights();
    p.leave(p.turns, b, number, last_step);
  }

  // The block's rows of queries and of the output's gradient; nothing is there yet on the left of the first step.
  void begin() {
    const extent first_query = part.block.first_query, rows = part.block.rows;
    pieces.hold(p, 0, p.heads);
    for (extent h = 0; h < p.heads; ++h) {
      pieces.block(part.of_head(h));
      const extent query_row = p.in[At::query].row, gradient_row = p.output_gradient.row;
      const T *query = p.in[At::query].of(b, h) + first_query * query_row,
              *d_output = p.output_gradient.of(b, h) + first_query * gradient_row;
      pack_transposed(query, query_row, rows, p.dim, wide, p.scale, queries + h * p.dim * wide);
      pack_transposed(d_output, gradient_row, rows, p.value_dim, wide, T(1), d_outputs + h * p.value_dim * wide);
      pack_rows(query, query_row, rows, p.dim, width, query_rows + h * wide * width, p.scale);
      pack_rows(d_output, gradient_row, rows, p.value_dim, value_width, d_output_rows + h * wide * value_width);
      row_numbers.from(h * wide).read(part.of_head(h));
      clear(gradient(h, gradient.first), 2 * p.left * wide);
    }
    clear(d_query_rows, p.heads * wide * width);
    clear(input_sums, p.channels * sum_numbers()), clear(output_sums, p.heads * sum_numbers());
    for (extent d = 0; d < p.width; ++d) clear(dpre(d, dpre.first), kept * wide);
    channels_of(scores.first, scores.first + 2 * kept);
  }

  // X of the columns [begin, end)
  void channels_of(extent begin, extent end) {
    score_columns(part, queries, p.in[At::key], p.dim, begin, end, scores, true);
    piece_columns(part, pieces, begin, end, scores);
  }

  // The keys of a step; the last takes along what follows behind the others.
  void step(extent begin, extent count) {
    const extent end = begin + step_keys<T> >= part.keys ? part.keys + 2 * p.left : begin + step_keys<T>;
    channels_of(begin + 2 * p.right, end + 2 * p.right);
    score_columns(part, d_outputs, p.in[At::value], p.value_dim, begin, end, gradient, true);
    p.enter(p.turns, b, number, count);
    for (extent at = begin; at < end; at += piece_keys<T>) piece(at, least(piece_keys<T>, end - at));
    for (extent h = 0; h < p.heads; ++h) head_products(h, begin, end);
    p.leave(p.turns, b, number, count);
    carry(p.channels, 2 * kept, step_keys<T>, scores);
    carry(p.channels, 2 * p.left, step_keys<T>, gradient);
    pattern.first += step_keys<T>;
  }

  // The mix of a step's columns [at, at + count): hidden, P and dA, then dpre and dX of the columns before them.
  void piece(extent at, extent count) {
    const extent base = hidden.first, to = least(at + count, part.keys);
    hidden_columns(part, scores, at == part.first_seen ? base : base + kept, base + kept + count, hidden);
    if (at < to) {
      mixed_logits(part, scores, hidden, at, to, pattern);
      for (extent h = 0; h < p.heads; ++h) {
        const Block<T> block = part.of_head(h);
        pattern_and_gradient(Tile<T>(block, at, to - at), row_numbers.from(h * wide), pattern(h, at), gradient(h, at));
      }
      for (extent channel = p.heads; channel < p.channels; ++channel) {
        const T *const from = gradient(channel - p.heads, at), factor = p.adds_pieces ? T(1) : T(0);
        T* const d_base = gradient(channel, at);
        for (extent n = 0; n < (to - at) * wide; n += lanes<T>) store<T>(d_base + n, load(from + n) * splat(factor));
      }
      sum_outputs(at, to);
    }
    hidden_gradient(base, base + count);
    score_gradient(base - p.left, base - p.left + count);
    carry(p.width, kept, count, hidden);
    carry(p.width, kept, count, dpre);
  }

  // What dA of the columns [begin, end) gives to the second convolution's numbers and to the base's bias.
  void sum_outputs(extent begin, extent end) const {
    for (extent t = 0; t < p.kernel && p.d[At::mix_output].at; ++t)
      dots<T>(p.heads, p.width, (end - begin) * wide, gradient(begin), gradient.row, hidden(begin + t - p.left),
          hidden.row, output_sums + t * p.heads * p.width * lanes<T>);
    T* const to = part.d_logits(end - 1);
    if (!to) return;
    const DiagonalSums<T> sums{p.heads, begin, end, p.mix_distances, diagonals};
    clear(diagonals, sums.rows * sums.count());
    for (extent c = begin; c < end; ++c)
      for (extent h = 0; h < p.heads; ++h) sums.add(h, c, gradient(h, c));
    sums.finish(to);
  }

  // dpre of the columns [begin, end), and what it gives to the first convolution's numbers and table.
  void hidden_gradient(extent begin, extent end) const {
    const extent from = least(most(begin, part.first_seen), end), to = most(from, least(end, part.hidden_end));
    products<T, Finish::none>(p.width, part.packs(to - from), {p.heads, p.kernel, 1, -wide},
        {p.in[At::mix_output].at, p.kernel, p.width * p.kernel}, gradient(from + p.left), gradient.row, from_zero<T>(),
        0, part.by_column(from, [&](extent c) { return dpre(c); }), dpre.row, T(0));
    for (extent d = 0; d < p.width; ++d)
      clear(dpre(d, begin), (from - begin) * wide), clear(dpre(d, to), (end - to) * wide);
    for (extent c = from; c < to;) {  // columns of one table together
      const extent last = c - part.first_seen < p.left ? c + 1 : to;
      T* const table = part.d_hidden(last - 1);
      const DiagonalSums<T> sums{p.width, c, last, p.mix_distances, diagonals};
      clear(diagonals, sums.rows * sums.count());
      const T slope = p.slope;
      for (; c < last; ++c) {
        for (extent d = 0; d < p.width; ++d) {
          T* const g = dpre(d, c);
          const T* const of = hidden(d, c);
          if (p.remask) clear(g, part.first_lane(c));
          for (extent n = 0, end_lane = wide; n < end_lane; n += lanes<T>) {
            const Vector<T> x = load(g + n);
            store<T>(g + n, load(of + n) > zero<T>() ? x : x * splat(slope));
          }
          if (table) sums.add(d, c, g);
        }
      }
      if (table) sums.finish(table);
    }
    for (extent t = 0; t < p.kernel && p.d[At::mix_input].at && from < to; ++t)
      dots<T>(p.channels, p.width, (to - from) * wide, scores(from + t - p.left), scores.row, dpre(from), dpre.row,
          input_sums + t * p.channels * p.width * lanes<T>);
  }

  // dX of the columns [begin, end), added to dA, and what B's gives to its pieces.
  void score_gradient(extent begin, extent end) {
    const extent from = most(begin, part.first_seen), to = least(end, part.keys);
    if (from >= to) return;
    const auto column = part.by_column(from, [&](extent c) { return gradient(c); });
    products<T, Finish::none>(p.channels, part.packs(to - from), {p.width, p.kernel, 1, -wide},
        {p.in[At::mix_input].at, p.kernel, p.channels * p.kernel}, dpre(from + p.left), dpre.row, column, gradient.row,
        column, gradient.row, T(0));
    for (extent channel = 0; channel < p.channels; ++channel) {
      part.blank_unseen(gradient(channel, from), from, to);
      if (channel < p.heads) continue;
      const Block<T> block = part.of_head(channel - p.heads);
      pieces.gather(Tile<T>(block, from, to - from), gradient(channel, from));
    }
  }

  // What a head's P of the keys [begin, end) and its dX of the keys `2 left` before them give to dv, dk and dq.
  void head_products(extent h, extent begin, extent end) const {
    const Block<T> block = part.of_head(h);
    const Rows<const T> key = p.in[At::key];
    const auto over_queries = [&](extent first, extent behind, Columns<T> x, const T* rows, extent row_width,
                                  Rows<T> to) {
      if (!to) return;
      by_few_rows(first, behind, row_width / lanes<T>, [&](extent at, extent count) {
        if (h + 1 < p.heads) prefetch<T>(to.of(b, h + 1) + at * to.row, to.row, count, row_width);
        sum_over_queries(Tile<T>(block, at, count), x(h, at), rows + h * wide * row_width, row_width,
            to.of(b, h) + at * to.row, to.row);
      });
    };
    const extent from = most(part.first_seen, begin - 2 * p.left), to = end - 2 * p.left;
    over_queries(begin, least(end, part.keys), pattern, d_output_rows, value_width, p.d[At::value]);
    over_queries(from, to, gradient, query_rows, width, p.d[At::key]);
    if (p.d[At::query] && from < to)
      sum_over_keys(Tile<T>(block, from, to - from), gradient(h, from), key.of(b, h) + from * key.row, key.row, width,
          d_query_rows + h * wide * width);
  }

  void write_queries() const {
    const Rows<T> to = p.d[At::query];
    for (extent h = 0; to && h < p.heads; ++h)
      for (extent i = 0; i < part.block.rows; ++i)
        for (extent c = 0; c < p.dim; ++c)
          to.of(b, h)[(part.block.first_query + i) * to.row + c] = d_query_rows[(h * wide + i) * width + c] * p.scale;
  }

  void write_weights() {
    // sums of row and hidden number d: to to[b, row row_stride + d stride, tap]
    const auto add_to = [&](T* to, const T* sums, extent rows, extent row_stride, extent stride) {
      for (extent t = 0; to && t < p.kernel; ++t)
        for (extent row = 0; row < rows; ++row)
          for (extent d = 0; d < p.width; ++d, sums += lanes<T>)
            to[(b * rows * p.width + row * row_stride + d * stride) * p.kernel + t] += sum_of_lanes<T>(load(sums));
    };
    add_to(p.d[At::mix_input].at, input_sums, p.channels, 1, p.channels);
    add_to(p.d[At::mix_output].at, output_sums, p.heads, p.width, 1);
    for (extent h = 0; pieces.runs(p) && h < p.heads; ++h) pieces.finish(part.of_head(h));
    pieces.finish(p, b, 0);
  }
};

template <class T> static extent mix_backward_scratch(const MixProblem<T>& p) {
  return MixBackward<T>(p, 0, 0).layout(nullptr);
}
template <class T> static void mix_backward(const MixProblem<T>& p, extent b, extent number, T* scratch) {
  MixBackward<T>(p, b, number).run(scratch);
}

}  // namespace whence::tiles::WHENCE_TILES_TARGET
