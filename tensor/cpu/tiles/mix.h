// The tile program of DAPE and CDAPE: all heads of some queries at once, as the scores of one head go into the logits of
// all.                                                          Zheng et al. 2024, arXiv:2405.14722 and 2410.04798
//   hidden_d[c] = leaky(u[d, i-c] + sum_{h,t} W1[d h t] X_h[c + t - left])
//   A_h[j]      = X_h[j] + residual[h, i-j] + b2_h + sum_{d,t} W2[h d t] hidden_d[j + t - left]
// Scores of a part of the queries lie as [head, key, lane]. Keys next to each other are rows next to each other: a tap
// of the convolution is the same product from a pointer that is one row further.
// Backward, with dA = P (dP - o.do):
//   dpre_d[c] = leaky'(hidden) sum_{h,t} W2[h d t] dA_h[c - t + left]
//   dX_h[c]   = dA_h[c] + sum_{d,t} W1[d h t] dpre_d[c - t + left]
//   dW2[h d t] = sum dA_h[j] hidden_d[j + t - left], dW1[d h t] = sum dpre_d[c] X_h[c + t - left], du = diagonals of dpre
// It walks up the keys by segments. Hidden numbers exist for one segment and the kernel - 1 columns before it; dpre
// follows `left` columns behind, and dX again `left` behind that, when all that they read is there.
#pragma once

#include "tensor/cpu/tiles/heads.h"

namespace whence::tiles::WHENCE_TILES_TARGET {

// Queries of a part, and pairs of a segment.
template <class T> inline constexpr extent mix_rows = sizeof(T) == 4 ? 16 : has_vectors<T> ? 8 : 2;
template <class T> inline constexpr extent segment_pairs = has_vectors<T> ? 512 : 8;

template <class T> struct Part {
  const Problem<T>& p;
  Block<T> block;  // of head 0: which queries
  extent columns, keys, margin, strip;  // strip: numbers of one head
  extent first_seen, hidden_end;        // columns where hidden is computed, those behind nobody's reach left out

  Part(const Problem<T>& problem, extent b, extent first_query)
      : p(problem),
        block(problem, b, 0, first_query, least(mix_rows<T>, problem.queries - first_query)),
        columns(block.columns),
        keys(block.keys()),
        margin(margin_of(problem)),
        strip(strip_of(problem)) {
    first_seen = 0;
    extent end = p.keys;
    if (const bool* present = block.present()) {
      while (first_seen < p.keys && !present[first_seen]) ++first_seen;
      while (end > first_seen && !present[end - 1]) --end;
    }
    hidden_end = least(end == p.keys ? p.keys + p.behind : end, keys + p.right);
  }
  static extent margin_of(const Problem<T>& p) { return 2 * p.kernel; }
  static extent strip_of(const Problem<T>& p) {
    return ((p.keys + 2 * margin_of(p)) * mix_rows<T> + 15) / 16 * 16;
  }
  extent segment_keys() const { return most(1, segment_pairs<T> / columns); }
  T* at(T* strips, extent key) const { return strips + (key + margin) * columns; }
  // Where a table of distances is read for lane 0 and a column.
  extent place(extent column) const { return block.first_token() - column - p.mix_lowest; }
  // Lanes from here on see column c, were it a key.
  extent first_lane(extent c) const { return p.causal ? most(0, c - block.first_token()) : 0; }
};

// to[r, c] for the columns [begin, end) of all rows, in groups of vectors, from[...] reading `right_row` apart.
// start(c): where row 0 of column c begins, rows `start_row` apart.
template <class T, Finish finish, class S>
static void mix_product(const Part<T>& part, extent rows, extent begin, extent end, const Depth& depth, Left<T> weight,
    const T* from, extent from_row, const S& start, extent start_row, T* to, extent to_row, T slope) {
  const extent packs_of_column = part.columns / lanes<T>, packs = (end - begin) * packs_of_column;
  const T* starts[most_packs];
  extent done = 0;
  const auto run = [&]<extent N>() {
    for (extent n = 0; n < N; ++n)
      starts[n] = start(begin + (done + n) / packs_of_column) + (done + n) % packs_of_column * lanes<T>;
    column<T, N, finish>(rows, depth, weight, from + done * lanes<T>, from_row, starts[0] ? starts : nullptr, start_row,
        to + done * lanes<T>, to_row, slope);
    done += N;
  };
  while (packs - done >= most_packs) run.template operator()<most_packs>();
  while (packs - done >= 1) run.template operator()<1>();
}

// Scores of one head into its strip, 0 where not seen; with `values`, likewise the products of another pair of operands.
template <class T>
static void scores_strip(const Part<T>& part, extent dim, const T* keys, extent keys_row, const T* transposed, T* strip) {
  const extent before = part.margin * part.columns;
  clear(strip, before);
  tiles_down<T>(part.keys, [&](extent first_key, extent count) {
    const Tile<T> tile(part.block, first_key, count);
    T* x = part.at(strip, first_key);
    products_of_pairs(tile, dim, keys + first_key * keys_row, keys_row, transposed, x);
    if (!tile.edge) return;
    for (extent k = 0; k < count; ++k) {
      for (extent n = 0; n < part.columns; n += lanes<T>) {
        T* at = x + k * part.columns + n;
        store<T>(at, tile.seen(k, n / lanes<T>) ? load(at) : zero<T>());
      }
    }
  });
  clear(part.at(strip, part.keys), before);
}

// hidden for the columns [begin, end) into a tile whose first column is `base`.
template <class T>
static void hidden_columns(
    const Part<T>& part, const T* strips, extent begin, extent end, extent base, extent tile_row, T* hidden) {
  const Problem<T>& p = part.p;
  const extent from = least(most(begin, part.first_seen), end), to = most(least(end, part.hidden_end), from);
  const auto blank = [&](extent a, extent b) {
    for (extent d = 0; d < p.width; ++d) clear(hidden + d * tile_row + (a - base) * part.columns, (b - a) * part.columns);
  };
  blank(begin, from), blank(to, end);
  mix_product<T, Finish::leaky>(part, p.width, from, to, {p.heads, p.kernel, 1, part.columns},
      {p.mix_input, p.heads * p.kernel, p.kernel}, strips + (from - p.left + part.margin) * part.columns, part.strip,
      [&](extent c) {
        const extent variant = least(c - part.first_seen, p.left);
        return p.mix_table + variant * p.width * p.mix_distances + part.place(c);
      },
      p.mix_distances, hidden + (from - base) * part.columns, tile_row, p.slope);
  if (!p.remask) return;
  for (extent c = from; c < to; ++c)
    for (extent d = 0; d < p.width; ++d)
      clear(hidden + d * tile_row + (c - base) * part.columns, least(part.first_lane(c), part.columns));
}

// Logits of the keys [begin, end) into strips, from hidden's tile.
template <class T>
static void mixed_logits(const Part<T>& part, const T* scores, const T* hidden, extent base, extent tile_row,
    extent begin, extent end, T* logits) {
  const Problem<T>& p = part.p;
  mix_product<T, Finish::none>(part, p.heads, begin, end, {p.width, p.kernel, 1, part.columns},
      {p.mix_output, p.width * p.kernel, p.kernel}, hidden + (begin - p.left - base) * part.columns, tile_row,
      [&](extent c) { return p.mix_residual ? p.mix_residual + part.place(c) : nullptr; }, p.mix_distances,
      part.at(logits, begin), part.strip, T(0));
  for (extent h = 0; h < p.heads; ++h) {
    const Vector<T> bias = splat(p.mix_output_bias[h]);
    const T* x = part.at(const_cast<T*>(scores) + h * part.strip, begin);
    T* y = part.at(logits + h * part.strip, begin);
    for (extent n = 0; n < (end - begin) * part.columns; n += lanes<T>)
      store<T>(y + n, load(y + n) + (load(x + n) + bias));
  }
}

// The tile's last kernel - 1 columns become its first.
template <class T> static void carry(const Part<T>& part, extent kept, extent segment, extent tile_row, T* tile) {
  for (extent d = 0; d < part.p.width; ++d)
    for (extent n = 0; n < kept * part.columns; ++n)
      tile[d * tile_row + n] = tile[d * tile_row + segment * part.columns + n];
}

// ---- forward ----

template <class T> struct MixForward {
  T *queries, *scores, *logits, *hidden, *output;
  RunningSoftmax<T> softmax;
  extent tile_row;

  extent layout(const Problem<T>& p, T* at) {
    Cutter<T> cut{at};
    tile_row = (segment_pairs<T> + mix_rows<T>*(p.kernel + 1) + 15) / 16 * 16;
    queries = cut.take(p.dim * mix_rows<T>);
    scores = cut.take(p.heads * Part<T>::strip_of(p)), logits = cut.take(p.heads * Part<T>::strip_of(p));
    hidden = cut.take(p.width * tile_row);
    output = cut.take(block_rows<T> * padded<T>(p.value_dim));
    softmax.take(cut);
    return cut.taken;
  }
};

template <class T> static extent mix_forward_scratch(const Problem<T>& p) { return MixForward<T>().layout(p, nullptr); }

template <class T> static void mix_forward(const Problem<T>& p, extent b, extent first_query, T* scratch) {
  const Part<T> part(p, b, first_query);
  MixForward<T> f;
  f.layout(p, scratch);
  for (extent h = 0; h < p.heads; ++h) {
    pack_transposed(p.query.of(b, h) + first_query * p.query.row, p.query.row, part.block.rows, p.dim, part.columns,
        p.scale, f.queries);
    scores_strip(part, p.dim, p.key.of(b, h), p.key.row, f.queries, f.scores + h * part.strip);
  }
  const extent segment = part.segment_keys(), kept = p.kernel - 1;
  for (extent begin = part.first_seen; begin < part.keys; begin += segment) {
    const extent base = begin - p.left;
    const bool first = begin == part.first_seen;
    hidden_columns(part, f.scores, first ? base : base + kept, base + kept + segment, base, f.tile_row, f.hidden);
    mixed_logits(part, f.scores, f.hidden, base, f.tile_row, begin, least(begin + segment, part.keys), f.logits);
    carry(part, kept, segment, f.tile_row, f.hidden);
  }
  const extent width = padded<T>(p.value_dim);
  for (extent h = 0; h < p.heads; ++h) {
    const Block<T> block(p, b, h, first_query, part.block.rows);
    f.softmax.begin();
    clear(f.output, block.rows * width);
    tiles_down<T>(part.keys, [&](extent first_key, extent count) {
      if (first_key + count <= part.first_seen) return;
      const Tile<T> tile(block, first_key, count);
      T* x = part.at(f.logits + h * part.strip, first_key);
      if (f.softmax.add(tile, x)) {
        for (extent i = 0; i < block.rows; ++i)
          for (extent c = 0; c < width; ++c) f.output[i * width + c] *= f.softmax.factor[i];
      }
      drop(tile, x);
      const T* rows = p.value.of(b, h) + first_key * p.value.row;
      sum_over_keys(tile, x, rows, p.value.row, width, f.output);
    });
    for (extent i = 0; i < block.rows; ++i) {
      const T total = f.softmax.total[i], share = total > T(0) || total != total ? T(1) / total : T(0);
      T* to = p.output.of(b, h) + (first_query + i) * p.output.row;
      for (extent c = 0; c < p.value_dim; ++c) to[c] = f.output[i * width + c] * share;
      p.log_sum.of(b, h)[first_query + i] = total == T(0) ? -nothing<T>() : f.softmax.top[i] + logarithm(total);
    }
  }
}

// ---- backward ----

// Of each part: scores X, then dP, dA and at last dX, then the logits and at last the pattern; heads by strips.
template <class T> static extent mix_part_strips(const Problem<T>& p) { return 3 * p.heads * Part<T>::strip_of(p); }
template <class T> struct Strips {
  T *scores, *gradient, *pattern;
  Strips(const Problem<T>& p, T* part)
      : scores(part),
        gradient(part + p.heads * Part<T>::strip_of(p)),
        pattern(part + 2 * p.heads * Part<T>::strip_of(p)) {}
};

template <class T> struct MixBackward {
  T *transposed, *rows, *d_rows, *hidden, *dpre, *log_sum, *output_dot;
  extent tile_row;

  extent layout(const Problem<T>& p, T* at) {
    Cutter<T> cut{at};
    const extent wide = most(padded<T>(p.dim), padded<T>(p.value_dim));
    tile_row = (segment_pairs<T> + mix_rows<T>*(p.kernel + 1) + 15) / 16 * 16;
    transposed = cut.take(wide * mix_rows<T>);
    rows = cut.take(mix_rows<T>* wide), d_rows = cut.take(mix_rows<T>* wide);
    hidden = cut.take(p.width * tile_row), dpre = cut.take(p.width * tile_row);
    log_sum = cut.take(p.heads * mix_rows<T>), output_dot = cut.take(p.heads * mix_rows<T>);
    return cut.taken;
  }
};
template <class T> static extent mix_backward_scratch(const Problem<T>& p) { return MixBackward<T>().layout(p, nullptr); }

// X and dP of one head, for all parts.
template <class T>
static void mix_scores(
    const Problem<T>& p, extent b, extent h, extent first_query, extent parts, T* block, T* scratch) {
  MixBackward<T> f;
  f.layout(p, scratch);
  for (extent n = 0; n < parts; ++n, first_query += mix_rows<T>, block += mix_part_strips(p)) {
    const Part<T> part(p, b, first_query);
    const Strips<T> strips(p, block);
    pack_transposed(p.query.of(b, h) + first_query * p.query.row, p.query.row, part.block.rows, p.dim, part.columns,
        p.scale, f.transposed);
    scores_strip(part, p.dim, p.key.of(b, h), p.key.row, f.transposed, strips.scores + h * part.strip);
    pack_transposed(p.output_gradient.of(b, h) + first_query * p.output_gradient.row, p.output_gradient.row,
        part.block.rows, p.value_dim, part.columns, T(1), f.transposed);
    scores_strip(part, p.value_dim, p.value.of(b, h), p.value.row, f.transposed, strips.gradient + h * part.strip);
  }
}

// The logits of [begin, end) become P, and dP becomes dA: 0 where not seen.
template <class T>
static void pattern_and_gradient(
    const Part<T>& part, const MixBackward<T>& f, extent begin, extent end, const Strips<T>& strips) {
  using V = Vector<T>;
  for (extent h = 0; h < part.p.heads; ++h) {
    const Block<T> block(part.p, part.block.b, h, part.block.first_query, part.block.rows);
    const Tile<T> tile(block, begin, end - begin);
    T *x = part.at(strips.pattern + h * part.strip, begin), *dx = part.at(strips.gradient + h * part.strip, begin);
    for (extent k = 0; part.p.draw && k < tile.keys; k += tile_keys<T>)
      drop(Tile<T>(block, begin + k, least(tile_keys<T>, tile.keys - k)), dx + k * part.columns);
    for (extent n = 0; n < part.columns; n += lanes<T>) {
      const V norm = load(f.log_sum + h * mix_rows<T> + n), dot = load(f.output_dot + h * mix_rows<T> + n);
      for (extent k = 0; k < tile.keys; ++k) {
        const extent at = k * part.columns + n;
        V pattern = exponential<T>(load(x + at) - norm), gradient = pattern * (load(dx + at) - dot);
        if (tile.edge) {
          const Mask<T> seen = tile.seen(k, n / lanes<T>);
          pattern = seen ? pattern : zero<T>();
          gradient = seen ? gradient : zero<T>();
        }
        store<T>(x + at, pattern);
        store<T>(dx + at, gradient);
      }
    }
    for (extent k = 0; part.p.draw && k < tile.keys; k += tile_keys<T>)
      drop(Tile<T>(block, begin + k, least(tile_keys<T>, tile.keys - k)), x + k * part.columns);
  }
}

// sums[r][steps] += rows of a tile [r, columns of keys], along the diagonals. Neighbouring keys go to overlapping
// places: rows run inside, so that a place is not read right after it was written.
template <class T>
static void add_diagonals(
    const Part<T>& part, extent rows, const T* from, extent from_row, extent column, T* sums, extent sums_row) {
  const extent place = part.place(column);
  for (extent r = 0; r < rows; ++r)
    for (extent n = 0; n < part.columns; n += lanes<T>) {
      T* to = sums + r * sums_row + place + n;
      store<T>(to, load(to) + load(from + r * from_row + n));
    }
}

// `sums`: which part of the gradients' sums this one adds to.
template <class T>
static void mix_backward(const Problem<T>& p, extent b, extent sums, extent first_query, T* part_strips, T* scratch) {
  const Part<T> part(p, b, first_query);
  const Strips<T> strips(p, part_strips);
  MixBackward<T> f;
  f.layout(p, scratch);
  const extent columns = part.columns, weights = p.width * p.heads * p.kernel, row = f.tile_row;
  for (extent h = 0; h < p.heads; ++h) {
    for (extent i = 0; i < columns; ++i) {
      T* dot = f.output_dot + h * mix_rows<T> + i;
      *dot = T(0);
      f.log_sum[h * mix_rows<T> + i] = -nothing<T>();
      if (i >= part.block.rows) continue;
      const extent at = first_query + i;
      f.log_sum[h * mix_rows<T> + i] = p.log_sum.of(b, h)[at];
      const T *output = p.output.of(b, h) + at * p.output.row,
              *gradient = p.output_gradient.of(b, h) + at * p.output_gradient.row;
      for (extent c = 0; c < p.value_dim; ++c) *dot += output[c] * gradient[c];
    }
  }
  const extent segment = part.segment_keys(), kept = p.kernel - 1;
  for (extent d = 0; d < p.width; ++d) clear(f.dpre + d * row, kept * columns);
  for (extent h = 0; h < p.heads; ++h)  // products take whole tiles
    clear(part.at(strips.pattern + h * part.strip, part.first_seen / tile_keys<T> * tile_keys<T>),
        part.first_seen % tile_keys<T> * columns);
  for (extent begin = part.first_seen; begin - 2 * p.left < part.keys; begin += segment) {
    const extent base = begin - p.left, end = most(begin, least(begin + segment, part.keys));
    const bool first = begin == part.first_seen;
    hidden_columns(part, strips.scores, first ? base : base + kept, base + kept + segment, base, row, f.hidden);
    if (begin < end) {
      mixed_logits(part, strips.scores, f.hidden, base, row, begin, end, strips.pattern);
      pattern_and_gradient(part, f, begin, end, strips);
      const T* gradient = part.at(strips.gradient, begin);
      for (extent t = 0; t < p.kernel && p.d_mix_output; ++t)
        dots<T>(p.heads, p.width, (end - begin) * columns, gradient, part.strip, f.hidden + t * columns, row,
            p.d_mix_output + sums * weights + t, p.width * p.kernel, p.kernel);
      for (extent h = 0; h < p.heads; ++h) {
        Vector<T> sum = zero<T>();
        for (extent n = 0; n < (end - begin) * columns; n += lanes<T>)
          sum = sum + load(gradient + h * part.strip + n);
        p.d_mix_output_bias[sums * p.heads + h] += sum_of_lanes<T>(sum);
      }
      for (extent c = begin; c < end && p.d_mix_residual; ++c)
        add_diagonals(part, p.heads, part.at(strips.gradient, c), part.strip, c,
            p.d_mix_residual + sums * p.heads * p.mix_distances, p.mix_distances);
    }
    // dpre of [base, base + segment), into a tile whose first column is `behind`.
    const extent behind = base - kept, from = most(base, part.first_seen),
                 to = most(from, least(base + segment, part.hidden_end));
    for (extent d = 0; d < p.width; ++d) {
      clear(f.dpre + d * row + (base - behind) * columns, (from - base) * columns);
      clear(f.dpre + d * row + (to - behind) * columns, (base + segment - to) * columns);
    }
    mix_product<T, Finish::none>(part, p.width, from, to, {p.heads, p.kernel, 1, -columns},
        {p.mix_output, p.kernel, p.width * p.kernel}, part.at(strips.gradient, from + p.left), part.strip,
        [](extent) -> const T* { return nullptr; }, 0, f.dpre + (from - behind) * columns, row, T(0));
    for (extent d = 0; d < p.width; ++d) {
      T* g = f.dpre + d * row + (from - behind) * columns;
      const T* hidden = f.hidden + d * row + (from - base) * columns;
      for (extent n = 0; n < (to - from) * columns; n += lanes<T>)
        store<T>(g + n, load(hidden + n) > zero<T>() ? load(g + n) : load(g + n) * splat(p.slope));
      for (extent c = from; p.remask && c < to; ++c)
        clear(g + (c - from) * columns, least(part.first_lane(c), columns));
    }
    for (extent c = from; c < to && p.d_mix_table; ++c) {
      const extent variant = least(c - part.first_seen, p.left);
      add_diagonals(part, p.width, f.dpre + (c - behind) * columns, row, c,
          p.d_mix_table + (sums * (p.left + 1) + variant) * p.width * p.mix_distances, p.mix_distances);
    }
    for (extent t = 0; t < p.kernel && p.d_mix_input && from < to; ++t)
      dots<T>(p.width, p.heads, (to - from) * columns, f.dpre + (from - behind) * columns, row,
          part.at(strips.scores, from + t - p.left), part.strip, p.d_mix_input + sums * weights + t, p.heads * p.kernel,
          p.kernel);
    // dX of [base - left, base - left + segment)
    const extent first_key = most(base - p.left, part.first_seen),
                 last_key = most(first_key, least(base - p.left + segment, part.keys));
    mix_product<T, Finish::none>(part, p.heads, first_key, last_key, {p.width, p.kernel, 1, -columns},
        {p.mix_input, p.kernel, p.heads * p.kernel}, f.dpre + (first_key + p.left - behind) * columns, row,
        [&](extent c) { return static_cast<const T*>(part.at(strips.gradient, c)); }, part.strip,
        part.at(strips.gradient, first_key), part.strip, T(0));
    for (extent c = first_key; c < last_key; ++c)
      for (extent h = 0; h < p.heads && part.first_lane(c) > 0; ++h)
        clear(part.at(strips.gradient + h * part.strip, c), least(part.first_lane(c), columns));
    carry(part, kept, segment, row, f.hidden);
    carry(part, kept, segment, row, f.dpre);
  }
}

// dv, dk and dq of one head, for all parts.
template <class T>
static void mix_products(
    const Problem<T>& p, extent b, extent h, extent first_query, extent parts, T* block, T* scratch) {
  MixBackward<T> f;
  f.layout(p, scratch);
  const extent width = padded<T>(p.dim), value_width = padded<T>(p.value_dim);
  for (extent n = 0; n < parts; ++n, first_query += mix_rows<T>, block += mix_part_strips(p)) {
    const Part<T> part(p, b, first_query);
    const Strips<T> strips(p, block);
    const T *pattern = strips.pattern + h * part.strip, *gradient = strips.gradient + h * part.strip;
    const auto each_tile = [&](const auto& body) {
      tiles_down<T>(part.keys, [&](extent first_key, extent count) {
        if (first_key + count > part.first_seen) body(Tile<T>(part.block, first_key, count));
      });
    };
    pack_rows(p.output_gradient.of(b, h) + first_query * p.output_gradient.row, p.output_gradient.row, part.block.rows,
        p.value_dim, value_width, f.rows);
    if (p.d_value)
      each_tile([&](const Tile<T>& tile) {
        sum_over_queries(tile, part.at(const_cast<T*>(pattern), tile.first_key), f.rows, value_width,
            p.d_value.of(b, h) + tile.first_key * p.d_value.row, p.d_value.row);
      });
    pack_rows(p.query.of(b, h) + first_query * p.query.row, p.query.row, part.block.rows, p.dim, width, f.rows, p.scale);
    clear(f.d_rows, part.block.rows * width);
    each_tile([&](const Tile<T>& tile) {
      const T* x = part.at(const_cast<T*>(gradient), tile.first_key);
      if (p.d_key)
        sum_over_queries(tile, x, f.rows, width, p.d_key.of(b, h) + tile.first_key * p.d_key.row, p.d_key.row);
      sum_over_keys(tile, x, p.key.of(b, h) + tile.first_key * p.key.row, p.key.row, width, f.d_rows);
    });
    for (extent i = 0; p.d_query && i < part.block.rows; ++i)
      for (extent c = 0; c < p.dim; ++c)
        p.d_query.of(b, h)[(first_query + i) * p.d_query.row + c] = f.d_rows[i * width + c] * p.scale;
  }
}

}  // namespace whence::tiles::WHENCE_TILES_TARGET
