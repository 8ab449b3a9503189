// The tile program of CoPE: gates summed from the right, and the query's table read at the sum.
//   g = sigmoid(gate score), 0 where not seen     P_k = P_{k+1} + g_k along the keys of a row, from its last key down
//   p = min(P, n - 1),  f = floor p,  w = p - f    x += z[f] + w (z[f+1] - z[f])            (CoPE, Eq. 3 to 7)
//   with z given, or z = scale q.e of the block's own queries
//   or x += slope P                                                                         (CoPE_ALiBi, Eq. 10)
// Keys run down the tile, so that the sum is one addition of vectors per key. p rises by at most 1 from key to key, so
// z[f] and z[f+1] - z[f] stay in two vectors, which are read anew where some lane's floor moved. Where gates are sparse
// all floors of a tile are a few, and their rows are read once for all of its keys. Once all sums of a block have
// reached n - 1 they stay: x += z[n-1], plain attention.
// Backward, with dx the gradient at the logits:
//   dz[f] += (1-w) dx, dz[f+1] += w dx             summed while f stays, written once for each row and f
//   dp = (z[f+1] - z[f]) dx, 0 at whole p and from n - 1 on;  dg_k = sum_{l<=k} dp_l;  d score = dg g (1 - g)
// The last sum runs up the keys, against the first: g, dx and dp of the keys where sums still move are kept for it.
#pragma once

#include "tensor/cpu/tiles/tile.h"

namespace whence::tiles::WHENCE_TILES_TARGET {

template <class T> struct Scan {
  // Per lane of the block.
  T *sums, *floors, *low, *step, *run_below, *run_above, *run_floors, *prefix;
  T *table, *d_table;  // [n, block rows]: z of the block, lanes side by side, and its gradient (backward)
  T *keys, *queries;   // where z is made here: scale e [n, width], and the block's queries [d, block rows]
  T slope;
  bool by_table, full;  // full: all sums have reached n - 1

  static bool runs(const Problem<T>& p) { return p.scans; }
  static extent size(const Problem<T>& p, bool backward) {
    if (!runs(p)) return 0;
    const extent products = p.position_keys ? p.positions * padded<T>(p.dim) + p.dim * block_rows<T> : 0;
    return 8 * block_rows<T> + (backward ? 2 : 1) * p.positions * block_rows<T> + products;
  }
  void prepare(const Problem<T>& p, extent h, T* scratch, bool backward) {
    if (!runs(p)) return;
    by_table = !p.position_slopes;
    slope = p.position_slopes ? p.position_slopes[h] : T(0);
    T** const arrays[] = {&sums, &floors, &low, &step, &run_below, &run_above, &run_floors, &prefix};
    for (T** array : arrays) *array = scratch, scratch += block_rows<T>;
    table = scratch, scratch += p.positions * block_rows<T>;
    d_table = scratch, scratch += backward ? p.positions * block_rows<T> : 0;
    queries = scratch, keys = queries + p.dim * block_rows<T>;
    if (p.position_keys)
      pack_rows(p.position_keys.at, p.position_keys.row, p.positions, p.dim, padded<T>(p.dim), keys, p.position_scale);
  }

  void begin(const Block<T>& block, bool backward) {
    const Problem<T>& p = block.p;
    if (!runs(p)) return;
    full = false;
    clear(low, block_rows<T>), clear(step, block_rows<T>), clear(prefix, block_rows<T>);
    clear(run_below, block_rows<T>), clear(run_above, block_rows<T>);
    // Lanes without a query count as full from the start.
    for (extent i = 0; i < block_rows<T>; ++i) {
      sums[i] = i < block.rows ? T(0) : number<T>(p.positions);
      floors[i] = run_floors[i] = T(-1);
    }
    if (p.position_logits)
      pack_transposed(p.position_logits.of(block.b, block.h) + block.first_query * p.position_logits.row,
          p.position_logits.row, block.rows, p.positions, block.columns, T(1), table);
    if (p.position_keys) {
      pack_transposed(p.query.of(block.b, block.h) + block.first_query * p.query.row, p.query.row, block.rows, p.dim,
          block.columns, T(1), queries);
      multiply<T>(p.positions, block.columns, {p.dim}, {keys, padded<T>(p.dim), 1}, queries, block.columns, table,
          block.columns, Start::zero);
    }
    if (backward) clear(d_table, p.positions * block_rows<T>);
  }

  // x += scan for a tile, keys downwards. places: p of each pair, or P where slopes take it. Backward keeps gates, g of
  // each pair, and slopes_at, dp / dx.
  void add(const Tile<T>& tile, const T* scores, T* x, T* places, T* gates, T* slopes_at) {
    const extent columns = tile.block.columns;
    for (extent n = 0; n < columns; n += lanes<T>) {
      if (full) {
        for (extent at = n; at < tile.keys * columns; at += columns) store<T>(x + at, load(x + at) + load(low + n));
        continue;
      }
      sum_gates(tile, n, scores, places, gates);
      if (by_table)
        read_table(tile, n, places, x, slopes_at);
      else
        for (extent at = n; at < tile.keys * columns; at += columns) {
          store<T>(x + at, load(x + at) + splat(slope) * load(places + at));
          if (slopes_at) store<T>(slopes_at + at, splat(slope));
        }
    }
    if (!by_table || full) return;
    full = true;
    for (extent i = 0; i < columns; ++i) full = full && sums[i] >= number<T>(tile.block.p.positions - 1);
  }

  // dz for a tile, keys downwards; `was_full`: the tile was added with full sums.
  void gather_table(const Tile<T>& tile, const T* dx, const T* places, bool was_full) {
    using V = Vector<T>;
    const Block<T>& block = tile.block;
    const V last = splat(number<T>(block.p.positions - 1));
    for (extent n = 0; n < block.columns; n += lanes<T>) {
      if (!was_full && gather_few(tile, n, dx, places)) continue;
      V run_floor = load(run_floors + n), below = load(run_below + n), above = load(run_above + n);
      for (extent k = tile.keys - 1; k >= 0; --k) {
        const extent at = k * block.columns + n;
        const V gradient = load(dx + at), place = was_full ? last : load(places + at);
        const V floor = was_full ? last : whole_part<T>(place);
        if (const unsigned moved = bits<T>(floor != run_floor)) {
          write_runs(block, n, moved, run_floor, below, above);
          const auto begun_anew = [&](V sum) { return floor != run_floor ? zero<T>() : sum; };
          below = begun_anew(below), above = begun_anew(above), run_floor = floor;
        }
        const V share = (place - floor) * gradient;
        above = above + share, below = below + (gradient - share);
      }
      store<T>(run_floors + n, run_floor), store<T>(run_below + n, below), store<T>(run_above + n, above);
    }
  }

  // The block's dz to its rows, or on to the queries [block rows, width] and to e.
  void finish(const Block<T>& block, const T* query_rows, T* d_query_rows) {
    const Problem<T>& p = block.p;
    const extent width = padded<T>(p.dim);
    for (extent n = 0; n < block.columns; n += lanes<T>)
      write_runs(block, n, ~0u, load(run_floors + n), load(run_below + n), load(run_above + n));
    for (extent i = 0; p.d_position_logits && i < block.rows; ++i)
      for (extent c = 0; c < p.positions; ++c)
        p.d_position_logits.of(block.b, block.h)[(block.first_query + i) * p.d_position_logits.row + c] =
            d_table[c * block.columns + i];
    if (!p.position_keys) return;
    multiply<T>(
        block.rows, width, {p.positions}, {d_table, 1, block.columns}, keys, width, d_query_rows, width, Start::given);
    if (p.d_position_keys)
      multiply<T>(p.positions, width, {block.rows}, {d_table, block.columns, 1}, query_rows, width,
          p.d_position_keys.of(block.b, block.h), p.d_position_keys.row, Start::given);
  }

  // dg g (1-g) for a tile, keys upwards: to[k][i].
  void gather_gates(const Tile<T>& tile, const T* gates, const T* dp, T* to) {
    using V = Vector<T>;
    const extent columns = tile.block.columns;
    for (extent n = 0; n < columns; n += lanes<T>) {
      V sum = load(prefix + n);
      for (extent at = n; at < tile.keys * columns; at += columns) {
        const V gate = load(gates + at);
        sum = sum + load(dp + at);
        store<T>(to + at, sum * gate * (splat(T(1)) - gate));
      }
      store<T>(prefix + n, sum);
    }
  }

 private:
  // Gates and their sums first, for all keys of the tile: a wrong guess in the loop below, where lanes move to another
  // whole number, then costs no sigmoid.
  void sum_gates(const Tile<T>& tile, extent n, const T* scores, T* places, T* gates) const {
    using V = Vector<T>;
    const extent columns = tile.block.columns;
    const V last = splat(number<T>(tile.block.p.positions - 1));
    V sum = load(sums + n);
    for (extent k = tile.keys - 1; k >= 0; --k) {
      const extent at = k * columns + n;
      V gate = sigmoid<T>(load(scores + at));
      if (tile.edge) gate = tile.seen(k, n / lanes<T>) ? gate : zero<T>();
      sum = sum + gate;
      if (gates) store<T>(gates + at, gate);
      store<T>(places + at, by_table ? smaller<T>(sum, last) : sum);
    }
    store<T>(sums + n, sum);
  }

  void read_table(const Tile<T>& tile, extent n, const T* places, T* x, T* slopes_at) const {
    using V = Vector<T>;
    const Block<T>& block = tile.block;
    if (read_few(tile, n, places, x, slopes_at)) return;
    V before = load(floors + n), below = load(low + n), rise = load(step + n);
    for (extent k = tile.keys - 1; k >= 0; --k) {
      const extent at = k * block.columns + n;
      const V place = load(places + at), floor = whole_part<T>(place), share = place - floor;
      if (bits<T>(floor != before)) read_anew(block, n, floor, below, rise), before = floor;
      store<T>(x + at, load(x + at) + (below + share * rise));
      if (slopes_at) store<T>(slopes_at + at, share > zero<T>() ? rise : zero<T>());
    }
    store<T>(floors + n, before), store<T>(low + n, below), store<T>(step + n, rise);
  }

  // ---- sparse gates: all lanes stay within a few whole numbers, whose rows are read once. The keys of such a tile
  // then
  // ---- need no branch, which would be guessed wrongly whenever one of the lanes moves.

  static constexpr extent few = 3;
  // The first whole numbers of the tile, where no lane gets further than `few`.
  static bool stays_near(const Tile<T>& tile, extent n, const T* places, Vector<T>& first) {
    first = whole_part<T>(load(places + (tile.keys - 1) * tile.block.columns + n));
    return has_vectors<T> && bits<T>(load(places + n) >= first + splat(number<T>(few))) == 0;
  }

  bool read_few(const Tile<T>& tile, extent n, const T* places, T* x, T* slopes_at) const {
    using V = Vector<T>;
    const Block<T>& block = tile.block;
    V first, rows[few + 1];
    if (!stays_near(tile, n, places, first)) return false;
    for (extent r = 0; r <= few; ++r) rows[r] = row_of(block, n, first + splat(number<T>(r)));
    V floor = first, below = rows[0], rise = rows[1] - rows[0];
    for (extent k = tile.keys - 1; k >= 0; --k) {
      const extent at = k * block.columns + n;
      const V place = load(places + at);
      floor = whole_part<T>(place), below = rows[0], rise = rows[1] - rows[0];
      for (extent r = 1; r < few; ++r) {
        const auto reached = floor >= first + splat(number<T>(r));
        below = reached ? rows[r] : below, rise = reached ? rows[r + 1] - rows[r] : rise;
      }
      const V share = place - floor;
      store<T>(x + at, load(x + at) + (below + share * rise));
      if (slopes_at) store<T>(slopes_at + at, share > zero<T>() ? rise : zero<T>());
    }
    store<T>(floors + n, floor), store<T>(low + n, below), store<T>(step + n, rise);
    return true;
  }

  bool gather_few(const Tile<T>& tile, extent n, const T* dx, const T* places) {
    using V = Vector<T>;
    const Block<T>& block = tile.block;
    V first, below[few] = {}, above[few] = {};
    if (!stays_near(tile, n, places, first)) return false;
    for (extent k = tile.keys - 1; k >= 0; --k) {
      const extent at = k * block.columns + n;
      const V gradient = load(dx + at), place = load(places + at), floor = whole_part<T>(place);
      const V share = (place - floor) * gradient, rest = gradient - share;
      for (extent r = 0; r < few; ++r) {
        const auto here = floor == first + splat(number<T>(r));
        below[r] = below[r] + (here ? rest : zero<T>()), above[r] = above[r] + (here ? share : zero<T>());
      }
    }
    for (extent r = 0; r < few; ++r) {
      const V row = first + splat(number<T>(r));
      write_runs(block, n, bits<T>(row <= splat(number<T>(block.p.positions - 1))), row, below[r], above[r]);
    }
    return true;
  }

  // ---- rows of the table ----

  // z[floor], or the last row behind it
  Vector<T> row_of(const Block<T>& block, extent n, Vector<T> floor) const {
    const Vector<T> there = smaller<T>(floor, splat(number<T>(block.p.positions - 1)));
    if constexpr (has_vectors<T>)
      return gather(table, place_of(block, n, there));
    else
      return table[static_cast<extent>(static_cast<double>(there)) * block.columns + n];
  }
  // z[floor] and z[floor + 1] - z[floor]
  void read_anew(const Block<T>& block, extent n, Vector<T> floor, Vector<T>& below, Vector<T>& rise) const {
    below = row_of(block, n, floor), rise = row_of(block, n, floor + splat(T(1))) - below;
  }

  // Where table[floor, n + lane] lies.
  static Mask<T> place_of(const Block<T>& block, extent n, Vector<T> floor) {
    return indices<T>(floor) * static_cast<std::int32_t>(block.columns) +
           indices<T>(count_up<T>() + splat(number<T>(n)));
  }

  // Lanes that moved leave the floor that their sums were for.
  void write_runs(const Block<T>& block, extent n, unsigned moved, Vector<T> floor, Vector<T> below, Vector<T> above) {
    if constexpr (has_vectors<T>) {
      moved &= bits<T>(floor >= zero<T>());
      const Mask<T> here = place_of(block, n, floor);
      scatter_add<T>(d_table, here, moved, below);
      const unsigned higher = moved & bits<T>(floor < splat(number<T>(block.p.positions - 1)));
      if (higher) scatter_add<T>(d_table, here + static_cast<std::int32_t>(block.columns), higher, above);
    }
  }
};

}  // namespace whence::tiles::WHENCE_TILES_TARGET
