// The head mix backward, with dA = P (dP - o.do):
//   dpre_d[c]  = leaky'(hidden) sum_{h,t} W2[h d t] dA_h[c - t + left]
//   dX_x[c]    = dA_h[c] + sum_{d,t} W1[d x t] dpre_d[c - t + left],  h: x's head
//   dW2[h d t] = sum dA_h[j] hidden_d[j + t - left],  dW1[d x t] = sum dpre_d[c] X_x[c + t - left],
//   du         = diagonals of dpre
// Z and o.do are known, so one walk up the keys suffices, by steps: the scores of a step, the mix by pieces of the
// step, then the step's terms of dv, dk and dq while it is in the cache. Each quantity lags behind the one it reads.
// Once the logits and dA of the keys before `end` exist, these columns do:
//   X to end + 2 right,  hidden to end + right,  dA to end,  dpre to end - left,  dX to end - 2 left
// Blocks of queries pass the keys one behind the other (problem.h), so that every sum has one order for any number of
// threads.
#pragma once

#include "tensor/cpu/tiles/mix_columns.h"

namespace whence::tiles::WHENCE_TILES_TARGET {

// Keys of a piece of a step: its hidden and dpre stay in the cache from one convolution to the next.
template <class T> inline constexpr extent piece_keys = has_vectors<T> ? 16 : 2;

// Sums of the columns [begin, end) along their diagonals, added to the rows of a table of distances: a sum over all
// queries is a sum of short sums. Distances run along lanes and keys, so neighbouring keys add to overlapping places.
// Rows are the inner loop, so that a place is not read right after it was written.
template <class T> struct DiagonalSums {
  static constexpr extent wide = block_rows<T>;
  extent rows, begin, end, table_row;
  T* sums;  // [row, count]

  extent count() const { return end - begin - 1 + wide; }
  static extent size(const Problem<T>& p) { return max(p.heads, p.width) * (piece_keys<T> + block_rows<T>); }
  void add(extent row, extent column, const T* x) const {
    T* const to = sums + row * count() + end - 1 - column;
    for (extent n = 0; n < wide; n += lanes<T>) store<T>(to + n, load(to + n) + load(x + n));
  }
  // to: the number for lane 0 of the last column, in the first row.
  void finish(T* to) const {
    for (extent row = 0; row < rows; ++row, to += table_row)
      for (extent n = 0; n < count(); ++n) to[n] += sums[row * count() + n];
  }
};

// A block of queries: its first is `number` * block_rows.
template <class T> struct MixBackward {
  static constexpr extent wide = block_rows<T>;
  const Problem<T>& p;
  const extent b, number;
  const MixBlock<T> part;
  const extent width, value_width, kept;         // kept: columns that stay from piece to piece
  Columns<T> scores, gradient, pattern;          // of a step: X; dP, then dA, then dX; logits, then P
  Columns<T> hidden, dpre;                       // of a piece; each lags `left` columns behind the one it reads
  T *queries, *d_outputs;                        // [head, dim, lane]
  T *query_rows, *d_query_rows, *d_output_rows;  // [head, lane, dim]
  T *input_sums, *output_sums;  // [tap, channel or head, hidden number], vectors whose lanes are still to be summed
  T* diagonals;
  RowNumbers<T> row_numbers;  // [head, lane]
  Piecewise<T> pieces;

  MixBackward(const Problem<T>& problem, extent batch, extent block)
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
    p.enter(p.order, b, number, last_step);
    write_weights();
    p.leave(p.order, b, number, last_step);
  }

  // Loads the block's rows of queries and of the output's gradient; nothing exists yet on the left of the first step.
  void begin() {
    const extent first_query = part.block.first_query, rows = part.block.rows;
    pieces.hold(p, 0, p.heads);
    for (extent h = 0; h < p.heads; ++h) {
      pieces.block(part.of_head(h));
      const extent query_row = p.in[At::query].row, gradient_row = p.output_gradient.row;
      const T *query = head_of(p.in[At::query], b, h) + first_query * query_row,
              *d_output = head_of(p.output_gradient, b, h) + first_query * gradient_row;
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

  // Computes X of the columns [begin, end).
  void channels_of(extent begin, extent end) {
    score_columns(part, queries, p.in[At::key], p.dim, begin, end, scores, true);
    piece_columns(part, pieces, begin, end, scores);
  }

  // The keys of a step; the last step includes the columns after the keys.
  void step(extent begin, extent count) {
    const extent end = begin + step_keys<T> >= part.keys ? part.keys + 2 * p.left : begin + step_keys<T>;
    channels_of(begin + 2 * p.right, end + 2 * p.right);
    score_columns(part, d_outputs, p.in[At::value], p.value_dim, begin, end, gradient, true);
    p.enter(p.order, b, number, count);
    for (extent at = begin; at < end; at += piece_keys<T>) piece(at, min(piece_keys<T>, end - at));
    for (extent h = 0; h < p.heads; ++h) head_products(h, begin, end);
    p.leave(p.order, b, number, count);
    carry(p.channels, 2 * kept, step_keys<T>, scores);
    carry(p.channels, 2 * p.left, step_keys<T>, gradient);
    pattern.first += step_keys<T>;
  }

  // The mix of a step's columns [at, at + count): hidden, P and dA, then dpre and dX of the columns before them.
  void piece(extent at, extent count) {
    const extent base = hidden.first, to = min(at + count, part.keys);
    hidden_columns(part, scores, at == part.first_seen ? base : base + kept, base + kept + count, hidden);
    if (at < to) {
      mixed_logits(part, scores, hidden, at, to, pattern);
      for (extent h = 0; h < p.heads; ++h) {
        const QueryBlock<T> block = part.of_head(h);
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

  // Adds the terms of dA of the columns [begin, end) to the gradients of W2 and of the base's bias.
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

  // dpre of the columns [begin, end), and its terms of the gradients of W1 and u.
  void hidden_gradient(extent begin, extent end) const {
    const extent from = min(max(begin, part.first_seen), end), to = max(from, min(end, part.hidden_end));
    products<T, Finish::none>(p.width, part.packs(to - from), {p.heads, p.kernel, 1, -wide},
        {p.in[At::mix_output].at, p.kernel, p.width * p.kernel}, gradient(from + p.left), gradient.row, from_zero<T>(),
        0, part.by_column(from, [&](extent c) { return dpre(c); }), dpre.row, T(0));
    for (extent d = 0; d < p.width; ++d)
      clear(dpre(d, begin), (from - begin) * wide), clear(dpre(d, to), (end - to) * wide);
    for (extent c = from; c < to;) {  // columns that share one table
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

  // dX of the columns [begin, end), added to dA; dX of B's channels goes to the gradients of its pieces.
  void score_gradient(extent begin, extent end) {
    const extent from = max(begin, part.first_seen), to = min(end, part.keys);
    if (from >= to) return;
    const auto column = part.by_column(from, [&](extent c) { return gradient(c); });
    products<T, Finish::none>(p.channels, part.packs(to - from), {p.width, p.kernel, 1, -wide},
        {p.in[At::mix_input].at, p.kernel, p.channels * p.kernel}, dpre(from + p.left), dpre.row, column, gradient.row,
        column, gradient.row, T(0));
    for (extent channel = 0; channel < p.channels; ++channel) {
      part.blank_unseen(gradient(channel, from), from, to);
      if (channel < p.heads) continue;
      const QueryBlock<T> block = part.of_head(channel - p.heads);
      pieces.gather(Tile<T>(block, from, to - from), gradient(channel, from));
    }
  }

  // Adds to dv, dk and dq the terms of a head's P of the keys [begin, end), and of its dX of the keys `2 left` before
  // them.
  void head_products(extent h, extent begin, extent end) const {
    const QueryBlock<T> block = part.of_head(h);
    const Rows<const T> key = p.in[At::key];
    const auto over_queries = [&](extent first, extent behind, Columns<T> x, const T* rows, extent row_width,
                                  Rows<T> to) {
      if (!to.at) return;
      by_few_rows(first, behind, row_width / lanes<T>, [&](extent at, extent count) {
        if (h + 1 < p.heads) prefetch<T>(head_of(to, b, h + 1) + at * to.row, to.row, count, row_width);
        sum_over_queries(Tile<T>(block, at, count), x(h, at), rows + h * wide * row_width, row_width,
            head_of(to, b, h) + at * to.row, to.row);
      });
    };
    const extent from = max(part.first_seen, begin - 2 * p.left), to = end - 2 * p.left;
    over_queries(begin, min(end, part.keys), pattern, d_output_rows, value_width, p.d[At::value]);
    over_queries(from, to, gradient, query_rows, width, p.d[At::key]);
    if (p.d[At::query].at && from < to)
      sum_over_keys(Tile<T>(block, from, to - from), gradient(h, from), head_of(key, b, h) + from * key.row, key.row,
          width, d_query_rows + h * wide * width);
  }

  void write_queries() const {
    const Rows<T> to = p.d[At::query];
    for (extent h = 0; to.at && h < p.heads; ++h)
      for (extent i = 0; i < part.block.rows; ++i)
        for (extent c = 0; c < p.dim; ++c)
          head_of(to, b, h)[(part.block.first_query + i) * to.row + c] =
              d_query_rows[(h * wide + i) * width + c] * p.scale;
  }

  void write_weights() {
    // adds sums of row and hidden number d to to[b, row row_stride + d stride, tap]
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

}  // namespace whence::tiles::WHENCE_TILES_TARGET
