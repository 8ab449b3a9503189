// The tile program of DAPE and CDAPE: all heads of some queries at once, as the scores of one head go into the logits of
// all.                                                          Zheng et al. 2024, arXiv:2405.14722 and 2410.04798
//   hidden_d[c] = leaky(u[d, i-c] + sum_{h,t} W1[d h t] X_h[c + t - left])
//   A_h[j]      = X_h[j] + residual[h, i-j] + sum_{d,t} W2[h d t] hidden_d[j + t - left]
// Numbers of a part of the queries lie as [head or hidden number, key, lane]. Keys next to each other are rows next to
// each other: a tap of the convolution is the same product from a pointer that is one row further.
//   forward   walks up the keys by segments. X and hidden exist for one segment and the kernel - 1 columns before it;
//             softmax and the sum of values go on from segment to segment, as they do for one head.
//   backward  with dA = P (dP - o.do):
//     dpre_d[c]  = leaky'(hidden) sum_{h,t} W2[h d t] dA_h[c - t + left]
//     dX_h[c]    = dA_h[c] + sum_{d,t} W1[d h t] dpre_d[c - t + left]
//     dW2[h d t] = sum dA_h[j] hidden_d[j + t - left],  dW1[d h t] = sum dpre_d[c] X_h[c + t - left],
//     du         = diagonals of dpre
//             It walks up the keys too. dpre follows `left` columns behind hidden, and dX again `left` behind that, when
//             all that they read is there. X, dA and P of all keys are kept for the products that follow.
#pragma once

#include "tensor/cpu/tiles/softmax.h"

namespace whence::tiles::WHENCE_TILES_TARGET {

// Queries of a part in backward and of a block in forward, and pairs of a segment.
template <class T> inline constexpr extent mix_rows = sizeof(T) == 4 ? 16 : has_vectors<T> ? 8 : 2;
template <class T> inline constexpr extent mix_block = has_vectors<T> ? 2 * mix_rows<T> : 2;
template <class T> inline constexpr extent segment_pairs = has_vectors<T> ? 1024 : 8;

// Numbers [row, key, lane] of the keys from `first` on.
template <class T> struct Columns {
  T* at;
  extent first, row, wide;  // row: how far rows lie apart; wide: lanes
  T* operator()(extent key) const { return at + (key - first) * wide; }
  T* operator()(extent r, extent key) const { return at + r * row + (key - first) * wide; }
};

template <class T> struct Part {
  const Problem<T>& p;
  Block<T> block;  // of head 0: which queries
  extent wide, keys;
  extent first_seen, hidden_end;  // columns where hidden is computed, those behind everybody's reach left out

  Part(const Problem<T>& problem, extent b, extent first_query, extent lanes_of_part)
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
    hidden_end = least(end == p.keys ? p.keys + p.behind : end, keys + p.right);
  }
  extent segment() const { return most(1, segment_pairs<T> / wide); }
  extent packs(extent columns) const { return columns * wide / lanes<T>; }
  // Where a table of distances is read for lane 0 and a column.
  extent place(extent column) const { return block.first_token() - column - p.mix_lowest; }
  // Lanes from here on see column c, were it a key.
  extent first_lane(extent c) const { return p.causal ? least(wide, most(0, c - block.first_token())) : 0; }
  Block<T> of_head(extent h) const { return Block<T>(p, block.b, h, block.first_query, block.rows, wide); }

  // Blanks what is not seen of the columns [begin, end) of a head.
  void blank_unseen(T* head, extent begin, extent end) const {
    const bool* present = block.present();
    for (extent c = begin; c < end; ++c) {
      const bool none = c < 0 || c >= keys || (present && !present[c]);
      if (none || first_lane(c) > 0) clear(head + (c - begin) * wide, none ? wide : first_lane(c));
    }
  }
  // f(number of the vector) -> where column c's lanes begin, as `place` or `begin` of products().
  template <class F> auto by_column(extent begin, const F& f) const {
    return [=, this](extent n) {
      const extent each = wide / lanes<T>;
      auto* at = f(begin + n / each);
      return at ? at + n % each * lanes<T> : at;
    };
  }
};

template <class T> static auto from_zero() {
  return [](extent) -> const T* { return nullptr; };
}

// hidden for the columns [begin, end).
template <class T>
static void hidden_columns(const Part<T>& part, Columns<T> scores, extent begin, extent end, Columns<T> hidden) {
  const Problem<T>& p = part.p;
  const extent from = least(most(begin, part.first_seen), end), to = most(least(end, part.hidden_end), from);
  for (extent d = 0; d < p.width; ++d) {
    clear(hidden(d, begin), (from - begin) * part.wide);
    clear(hidden(d, to), (end - to) * part.wide);
  }
  const auto table = [&](extent c) {
    return p.mix_table + least(c - part.first_seen, p.left) * p.width * p.mix_distances + part.place(c);
  };
  products<T, Finish::leaky>(p.width, part.packs(to - from), {p.heads, p.kernel, 1, part.wide},
      {p.mix_input, p.heads * p.kernel, p.kernel}, scores(from - p.left), scores.row, part.by_column(from, table),
      p.mix_distances, part.by_column(from, [&](extent c) { return hidden(c); }), hidden.row, p.slope);
  for (extent c = from; p.remask && c < to; ++c)
    for (extent d = 0; d < p.width; ++d) clear(hidden(d, c), part.first_lane(c));
}

// Logits of the keys [begin, end).
template <class T>
static void mixed_logits(
    const Part<T>& part, Columns<T> scores, Columns<T> hidden, extent begin, extent end, Columns<T> logits) {
  const Problem<T>& p = part.p;
  const auto residual = [&](extent c) { return p.mix_residual ? p.mix_residual + part.place(c) : nullptr; };
  products<T, Finish::none>(p.heads, part.packs(end - begin), {p.width, p.kernel, 1, part.wide},
      {p.mix_output, p.width * p.kernel, p.kernel}, hidden(begin - p.left), hidden.row, part.by_column(begin, residual),
      p.mix_distances, part.by_column(begin, [&](extent c) { return logits(c); }), logits.row, T(0));
  for (extent h = 0; h < p.heads; ++h) {
    const T* x = scores(h, begin);
    T* y = logits(h, begin);
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

// ---- forward ----

template <class T> struct MixForward {
  T *queries, *scores, *hidden, *logits, *output, *top, *total, *factor;
  extent row;  // of scores, hidden and logits

  extent layout(const Problem<T>& p, T* at) {
    Cutter<T> cut{at};
    row = segment_pairs<T> + 2 * p.kernel * mix_block<T>;
    queries = cut.take(p.heads * p.dim * mix_block<T>);
    scores = cut.take(p.heads * row), logits = cut.take(p.heads * row);
    hidden = cut.take(p.width * row);
    output = cut.take(p.heads * mix_block<T> * padded<T>(p.value_dim));
    top = cut.take(p.heads * block_rows<T>), total = cut.take(p.heads * block_rows<T>);
    factor = cut.take(block_rows<T>);
    return cut.taken;
  }
  RunningSoftmax<T> softmax(extent h) const { return {top + h * block_rows<T>, total + h * block_rows<T>, factor}; }
};

template <class T> static extent mix_forward_scratch(const Problem<T>& p) { return MixForward<T>().layout(p, nullptr); }

// Scores of all heads for the columns [begin, end), 0 where not seen.
template <class T>
static void score_columns(const Part<T>& part, const T* queries, extent begin, extent end, Columns<T> scores) {
  const Problem<T>& p = part.p;
  const extent from = least(most(begin, 0), end), to = most(least(end, part.keys), from);
  for (extent h = 0; h < p.heads; ++h) {
    multiply<T>(to - from, part.wide, {p.dim}, {p.key.of(part.block.b, h) + from * p.key.row, p.key.row, 1},
        queries + h * p.dim * part.wide, part.wide, scores(h, from), part.wide, Start::zero);
    part.blank_unseen(scores(h, begin), begin, end);
  }
}

template <class T> static void mix_forward(const Problem<T>& p, extent b, extent first_query, T* scratch) {
  const Part<T> part(p, b, first_query, mix_block<T>);
  MixForward<T> f;
  f.layout(p, scratch);
  const extent segment = part.segment(), kept = p.kernel - 1, width = padded<T>(p.value_dim);
  for (extent h = 0; h < p.heads; ++h) {
    pack_transposed(p.query.of(b, h) + first_query * p.query.row, p.query.row, part.block.rows, p.dim, part.wide,
        p.scale, f.queries + h * p.dim * part.wide);
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
    score_columns(part, f.queries, first ? base : base + kept_scores, base + kept_scores + segment, scores);
    hidden_columns(part, scores, first ? base : base + kept, base + kept + segment, hidden);
    const Columns<T> logits{f.logits, begin, f.row, part.wide};
    mixed_logits(part, scores, hidden, begin, end, logits);
    for (extent h = 0; h < p.heads; ++h) {
      const Block<T> block = part.of_head(h);
      const Tile<T> tile(block, begin, end - begin);
      T *x = logits(h, begin), *output = f.output + h * part.wide * width;
      if (f.softmax(h).add(tile, x)) f.softmax(h).fade(block.rows, width, output);
      drop(tile, x);
      sum_values(tile, x, p.value.of(b, h) + begin * p.value.row, p.value.row, width, output);
    }
    carry(p.heads, kept_scores, segment, scores);
    carry(p.width, kept, segment, hidden);
  }
  for (extent h = 0; h < p.heads; ++h) f.softmax(h).write(part.of_head(h), f.output + h * part.wide * width, width);
}

// ---- backward ----

// Strips of a part, all keys with room for taps on either side: X, then dP, dA and at last dX, then logits and at last P.
template <class T> static inline extent margin(const Problem<T>& p) { return 2 * p.kernel; }
template <class T> static inline extent strip(const Problem<T>& p) { return (p.keys + 2 * margin(p)) * mix_rows<T>; }
template <class T> static extent mix_part_strips(const Problem<T>& p) { return 3 * p.heads * strip(p); }
template <class T> struct Strips {
  Columns<T> scores, gradient, pattern;
  Strips(const Problem<T>& p, T* part)
      : scores{part, -margin(p), strip(p), mix_rows<T>},
        gradient{part + p.heads * strip(p), -margin(p), strip(p), mix_rows<T>},
        pattern{part + 2 * p.heads * strip(p), -margin(p), strip(p), mix_rows<T>} {}
};

inline constexpr extent most_parts = 8;

template <class T> struct MixBackward {
  T *transposed, *rows, *output_rows, *d_rows, *hidden, *dpre, *log_sum, *output_dot;
  extent row;  // of hidden and dpre

  extent layout(const Problem<T>& p, T* at) {
    Cutter<T> cut{at};
    const extent wide = most(padded<T>(p.dim), padded<T>(p.value_dim));
    row = segment_pairs<T> + p.kernel * mix_rows<T>;
    transposed = cut.take(wide * mix_rows<T> * most_parts);
    rows = cut.take(most_parts * mix_rows<T> * wide), output_rows = cut.take(most_parts * mix_rows<T> * wide);
    d_rows = cut.take(most_parts * mix_rows<T> * wide);
    hidden = cut.take(p.width * row), dpre = cut.take(p.width * row);
    log_sum = cut.take(p.heads * mix_rows<T>), output_dot = cut.take(p.heads * mix_rows<T>);
    return cut.taken;
  }
};
template <class T> static extent mix_backward_scratch(const Problem<T>& p) {
  return MixBackward<T>().layout(p, nullptr);
}

// X and dP of one head, for all parts at once.
template <class T>
static void mix_scores(
    const Problem<T>& p, extent b, extent h, extent first_query, extent parts, T* block, T* scratch) {
  MixBackward<T> f;
  f.layout(p, scratch);
  const extent wide = parts * mix_rows<T>, rows = least(wide, p.queries - first_query), each = mix_rows<T> / lanes<T>;
  const extent keys = Part<T>(p, b, first_query + (parts - 1) * mix_rows<T>, mix_rows<T>).keys;
  const auto strips_of = [&](extent n) { return Strips<T>(p, block + n * mix_part_strips(p)); };
  const auto product = [&](Rows<const T> queries, T scale, Rows<const T> of_keys, extent dim, auto which) {
    pack_transposed(queries.of(b, h) + first_query * queries.row, queries.row, rows, dim, wide, scale, f.transposed);
    products<T, Finish::none>(
        keys, wide / lanes<T>, {dim}, {of_keys.of(b, h), of_keys.row, 1}, f.transposed, wide, from_zero<T>(), 0,
        [&](extent n) { return which(strips_of(n / each))(h, 0) + n % each * lanes<T>; }, mix_rows<T>, T(0));
    for (extent n = 0; n < parts; ++n) {
      const Part<T> part(p, b, first_query + n * mix_rows<T>, mix_rows<T>);
      const Columns<T> strip = which(strips_of(n));
      part.blank_unseen(strip(h, -margin(p)), -margin(p), 0);
      const extent from = p.present ? 0 : most(0, p.causal ? part.block.first_token() : part.keys);
      part.blank_unseen(strip(h, from), from, part.keys + margin(p));
    }
  };
  product(p.query, p.scale, p.key, p.dim, [](const Strips<T>& s) { return s.scores; });
  product(p.output_gradient, T(1), p.value, p.value_dim, [](const Strips<T>& s) { return s.gradient; });
}

// sums[r][steps] += column c of each row, along the diagonals. Neighbouring keys go to overlapping places: rows run
// inside, so that a place is not read right after it was written.
template <class T>
static void add_diagonals(const Part<T>& part, extent rows, Columns<T> from, extent c, T* sums, extent sums_row) {
  for (extent r = 0; r < rows; ++r)
    for (extent n = 0; n < part.wide; n += lanes<T>) {
      T* to = sums + r * sums_row + part.place(c) + n;
      store<T>(to, load(to) + load(from(r, c) + n));
    }
}

// What dA of [begin, end) gives to the second convolution's numbers and to the residual.
template <class T>
static void sum_outputs(
    const Part<T>& part, Columns<T> gradient, Columns<T> hidden, extent begin, extent end, extent sums) {
  const Problem<T>& p = part.p;
  for (extent t = 0; t < p.kernel && p.d_mix_output; ++t)
    dots<T>(p.heads, p.width, (end - begin) * part.wide, gradient(begin), gradient.row, hidden(begin + t - p.left),
        hidden.row, p.d_mix_output + sums * p.width * p.heads * p.kernel + t, p.width * p.kernel, p.kernel);
  for (extent c = begin; c < end && p.d_mix_residual; ++c)
    add_diagonals(part, p.heads, gradient, c, p.d_mix_residual + sums * p.heads * p.mix_distances, p.mix_distances);
}

// dpre of the columns [begin, end), and what it gives to the first convolution's numbers and table.
template <class T>
static void hidden_gradient(const Part<T>& part, const Strips<T>& strips, Columns<T> hidden, extent begin, extent end,
    Columns<T> dpre, extent sums) {
  const Problem<T>& p = part.p;
  const extent from = least(most(begin, part.first_seen), end), to = most(from, least(end, part.hidden_end));
  products<T, Finish::none>(p.width, part.packs(to - from), {p.heads, p.kernel, 1, -part.wide},
      {p.mix_output, p.kernel, p.width * p.kernel}, strips.gradient(from + p.left), strips.gradient.row, from_zero<T>(),
      0, part.by_column(from, [&](extent c) { return dpre(c); }), dpre.row, T(0));
  for (extent d = 0; d < p.width; ++d) {
    clear(dpre(d, begin), (from - begin) * part.wide), clear(dpre(d, to), (end - to) * part.wide);
    T* g = dpre(d, from);
    const T* y = hidden(d, from);
    for (extent n = 0; n < (to - from) * part.wide; n += lanes<T>)
      store<T>(g + n, load(y + n) > zero<T>() ? load(g + n) : load(g + n) * splat(p.slope));
    for (extent c = from; p.remask && c < to; ++c) clear(dpre(d, c), part.first_lane(c));
  }
  for (extent c = from; c < to && p.d_mix_table; ++c)
    add_diagonals(part, p.width, dpre, c,
        p.d_mix_table + (sums * (p.left + 1) + least(c - part.first_seen, p.left)) * p.width * p.mix_distances,
        p.mix_distances);
  for (extent t = 0; t < p.kernel && p.d_mix_input && from < to; ++t)
    dots<T>(p.width, p.heads, (to - from) * part.wide, dpre(from), dpre.row, strips.scores(from + t - p.left),
        strips.scores.row, p.d_mix_input + sums * p.width * p.heads * p.kernel + t, p.heads * p.kernel, p.kernel);
}

// dX of the columns [begin, end), added to dA.
template <class T>
static void score_gradient(const Part<T>& part, const Strips<T>& strips, Columns<T> dpre, extent begin, extent end) {
  const Problem<T>& p = part.p;
  const extent from = most(begin, part.first_seen), to = least(end, part.keys);
  if (from >= to) return;
  const auto column = [&](extent c) { return strips.gradient(c); };
  products<T, Finish::none>(p.heads, part.packs(to - from), {p.width, p.kernel, 1, -part.wide},
      {p.mix_input, p.kernel, p.heads * p.kernel}, dpre(from + p.left), dpre.row, part.by_column(from, column),
      strips.gradient.row, part.by_column(from, column), strips.gradient.row, T(0));
  for (extent c = from; c < to; ++c)
    for (extent h = 0; h < p.heads && part.first_lane(c) > 0; ++h) clear(strips.gradient(h, c), part.first_lane(c));
}

// `sums`: which part of the gradients' sums this one adds to.
template <class T>
static void mix_backward(const Problem<T>& p, extent b, extent sums, extent first_query, T* part_strips, T* scratch) {
  const Part<T> part(p, b, first_query, mix_rows<T>);
  const Strips<T> strips(p, part_strips);
  MixBackward<T> f;
  f.layout(p, scratch);
  for (extent h = 0; h < p.heads; ++h) {
    read_rows(part.of_head(h), f.log_sum + h * mix_rows<T>, f.output_dot + h * mix_rows<T>);
    // Products take whole tiles.
    clear(strips.pattern(h, part.first_seen / tile_keys<T> * tile_keys<T>), part.first_seen % tile_keys<T> * part.wide);
  }
  const extent segment = part.segment(), kept = p.kernel - 1;
  Columns<T> hidden{f.hidden, part.first_seen - p.left, f.row, part.wide},
      dpre{f.dpre, hidden.first - kept, f.row, part.wide};
  for (extent d = 0; d < p.width; ++d) clear(f.dpre + d * f.row, kept * part.wide);
  for (extent begin = part.first_seen; begin - 2 * p.left < part.keys; begin += segment) {
    const extent end = most(begin, least(begin + segment, part.keys)), base = hidden.first;
    hidden_columns(part, strips.scores, begin == part.first_seen ? base : base + kept, base + kept + segment, hidden);
    if (begin < end) {
      mixed_logits(part, strips.scores, hidden, begin, end, strips.pattern);
      for (extent h = 0; h < p.heads; ++h) {
        const Block<T> block = part.of_head(h);
        pattern_and_gradient(Tile<T>(block, begin, end - begin), f.log_sum + h * mix_rows<T>,
            f.output_dot + h * mix_rows<T>, strips.pattern(h, begin), strips.gradient(h, begin));
      }
      sum_outputs(part, strips.gradient, hidden, begin, end, sums);
    }
    hidden_gradient(part, strips, hidden, base, base + segment, dpre, sums);
    score_gradient(part, strips, dpre, base - p.left, base - p.left + segment);
    carry(p.width, kept, segment, hidden);
    carry(p.width, kept, segment, dpre);
  }
}

// dv, dk and dq of one head. All parts meet a tile of keys before the next one: sums over queries take them together
// where every part sees the whole tile.
template <class T>
static void mix_products(
    const Problem<T>& p, extent b, extent h, extent first_query, extent parts, T* block, T* scratch) {
  MixBackward<T> f;
  f.layout(p, scratch);
  const extent width = padded<T>(p.dim), value_width = padded<T>(p.value_dim), part_strips = mix_part_strips(p);
  const extent rows = least(parts * mix_rows<T>, p.queries - first_query);
  pack_rows(p.query.of(b, h) + first_query * p.query.row, p.query.row, rows, p.dim, width, f.rows, p.scale);
  pack_rows(p.output_gradient.of(b, h) + first_query * p.output_gradient.row, p.output_gradient.row, rows, p.value_dim,
      value_width, f.output_rows);
  clear(f.d_rows, rows * width);
  const Part<T> first(p, b, first_query, mix_rows<T>), last(p, b, first_query + (parts - 1) * mix_rows<T>, mix_rows<T>);
  const Strips<T> strips(p, block);
  tiles_down<T>(last.keys, [&](extent first_key, extent count) {
    if (first_key + count <= first.first_seen) return;
    const bool whole = !Tile<T>(first.block, first_key, count).edge && last.block.rows == mix_rows<T>;
    const extent together = whole ? parts : 1;
    T *d_value = p.d_value ? p.d_value.of(b, h) + first_key * p.d_value.row : nullptr,
      *d_key = p.d_key ? p.d_key.of(b, h) + first_key * p.d_key.row : nullptr;
    for (extent n = 0; n < parts; n += together) {
      const Part<T> part(p, b, first_query + n * mix_rows<T>, mix_rows<T>);
      if (first_key >= part.keys) continue;
      const Tile<T> tile(part.block, first_key, least(count, part.keys - first_key));
      const T *pattern = strips.pattern(h, first_key) + n * part_strips,
              *gradient = strips.gradient(h, first_key) + n * part_strips;
      const T *queries = f.rows + n * mix_rows<T> * width, *outputs = f.output_rows + n * mix_rows<T> * value_width;
      if (whole) {
        const Depth all{mix_rows<T>, parts, part_strips, mix_rows<T> * value_width};
        if (d_value)
          multiply<T>(count, value_width, all, {pattern, mix_rows<T>, 1}, outputs, value_width, d_value, p.d_value.row,
              Start::given);
        if (d_key)
          multiply<T>(count, width, {mix_rows<T>, parts, part_strips, mix_rows<T> * width}, {gradient, mix_rows<T>, 1},
              queries, width, d_key, p.d_key.row, Start::given);
      } else {
        if (d_value) sum_over_queries(tile, pattern, outputs, value_width, d_value, p.d_value.row);
        if (d_key) sum_over_queries(tile, gradient, queries, width, d_key, p.d_key.row);
      }
    }
    for (extent n = 0; n < parts; ++n) {
      const Part<T> part(p, b, first_query + n * mix_rows<T>, mix_rows<T>);
      if (first_key < part.keys)
        sum_over_keys(Tile<T>(part.block, first_key, least(count, part.keys - first_key)),
            strips.gradient(h, first_key) + n * part_strips, p.key.of(b, h) + first_key * p.key.row, p.key.row, width,
            f.d_rows + n * mix_rows<T> * width);
    }
  });
  for (extent i = 0; p.d_query && i < rows; ++i)
    for (extent c = 0; c < p.dim; ++c)
      p.d_query.of(b, h)[(first_query + i) * p.d_query.row + c] = f.d_rows[i * width + c] * p.scale;
}

}  // namespace whence::tiles::WHENCE_TILES_TARGET
