// The tile program of CoPE: gates summed from the right, and the query's table read at the sum.
//   g = sigmoid(gate score), 0 where not seen     P_k = P_{k+1} + g_k along the keys of a row, from its last key down
//   p = min(P, n - 1),  f = floor p,  w = p - f    x += z[f] + w (z[f+1] - z[f])            (CoPE, Eq. 3 to 7)
//   with z given, or z = scale q.e of the block's own queries
//   or x += slope P                                                                         (CoPE_ALiBi, Eq. 10)
// Keys run down the tile, so that the sum is one addition of vectors per key. p rises by less than 1 from key to key:
// z[f] and z[f+1] - z[f] stay in two vectors, and lanes whose floor moved, few of them, are read anew one by one. Once
// all sums of a block have reached n - 1 they stay: x += z[n-1], plain attention.
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

  // x += scan for a tile, keys downwards. gates, places (backward): g and p of each pair, and slopes_at: dp / dx.
  void add(const Tile<T>& tile, const T* scores, T* x, T* gates, T* places, T* slopes_at) {
    using V = Vector<T>;
    const Block<T>& block = tile.block;
    const Problem<T>& p = block.p;
    const extent columns = block.columns;
    if (full) {
      for (extent k = 0; k < tile.keys; ++k)
        for (extent n = 0; n < columns; n += lanes<T>)
          store<T>(x + k * columns + n, load(x + k * columns + n) + load(low + n));
      return;
    }
    const V last = splat(number<T>(p.positions - 1));
    for (extent k = tile.keys - 1; k >= 0; --k) {
      for (extent n = 0; n < columns; n += lanes<T>) {
        const extent at = k * columns + n;
        V gate = sigmoid<T>(load(scores + at));
        if (tile.edge) gate = tile.seen(k, n / lanes<T>) ? gate : zero<T>();
        const V sum = load(sums + n) + gate;
        store<T>(sums + n, sum);
        if (gates) store<T>(gates + at, gate);
        if (!by_table) {
          store<T>(x + at, load(x + at) + splat(slope) * sum);
          if (places) store<T>(places + at, sum), store<T>(slopes_at + at, splat(slope));
          continue;
        }
        const V place = smaller<T>(sum, last), floor = whole_part<T>(place);
        if (bits<T>(floor != load(floors + n))) read_anew(block, n, floor);
        const V share = place - floor;
        store<T>(x + at, load(x + at) + (load(low + n) + share * load(step + n)));
        if (places) {
          store<T>(places + at, place);
          store<T>(slopes_at + at, share > zero<T>() ? load(step + n) : zero<T>());
        }
      }
    }
    if (!by_table) return;
    full = true;
    for (extent i = 0; i < columns; ++i) full = full && sums[i] >= number<T>(p.positions - 1);
  }

  // dz for a tile, keys downwards; `was_full`: the tile was added with full sums.
  void gather_table(const Tile<T>& tile, const T* dx, const T* places, bool was_full) {
    using V = Vector<T>;
    const Block<T>& block = tile.block;
    const extent columns = block.columns;
    for (extent k = tile.keys - 1; k >= 0; --k) {
      for (extent n = 0; n < columns; n += lanes<T>) {
        const extent at = k * columns + n;
        const V gradient = load(dx + at);
        const V place = was_full ? splat(number<T>(block.p.positions - 1)) : load(places + at);
        const V floor = was_full ? place : whole_part<T>(place);
        if (const unsigned moved = bits<T>(floor != load(run_floors + n))) write_runs(block, n, moved, floor);
        const V above = (place - floor) * gradient;
        store<T>(run_above + n, load(run_above + n) + above);
        store<T>(run_below + n, load(run_below + n) + (gradient - above));
      }
    }
  }

  // The block's dz to its rows, or on to the queries [block rows, width] and to e.
  void finish(const Block<T>& block, const T* query_rows, T* d_query_rows) {
    const Problem<T>& p = block.p;
    const extent width = padded<T>(p.dim);
    for (extent n = 0; n < block.columns; n += lanes<T>) write_runs(block, n, ~0u, load(run_floors + n));
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
    for (extent k = 0; k < tile.keys; ++k) {
      for (extent n = 0; n < columns; n += lanes<T>) {
        const extent at = k * columns + n;
        const V sum = load(prefix + n) + load(dp + at), gate = load(gates + at);
        store<T>(prefix + n, sum);
        store<T>(to + at, sum * gate * (splat(T(1)) - gate));
      }
    }
  }

 private:
  void read_anew(const Block<T>& block, extent n, Vector<T> floor) {
    store<T>(floors + n, floor);
    if constexpr (has_vectors<T>) {
      const Mask<T> here = place_of(block, n, floor),
                    last = place_of(block, n, splat(number<T>(block.p.positions - 1)));
      const Mask<T> next = here + static_cast<std::int32_t>(block.columns);
      const Vector<T> below = gather(table, here), above = gather(table, next < last ? next : last);
      store<T>(low + n, below), store<T>(step + n, above - below);
    } else {
      const extent f = static_cast<extent>(static_cast<double>(floor));
      low[n] = table[f * block.columns + n];
      step[n] = table[least(f + 1, block.p.positions - 1) * block.columns + n] - low[n];
    }
  }

  // Where table[floor, n + lane] lies.
  static Mask<T> place_of(const Block<T>& block, extent n, Vector<T> floor) {
    return indices<T>(floor) * static_cast<std::int32_t>(block.columns) +
           indices<T>(count_up<T>() + splat(number<T>(n)));
  }

  // Lanes leave the floor that their sums were for.
  void write_runs(const Block<T>& block, extent n, unsigned moved, Vector<T> floor) {
    using V = Vector<T>;
    const V before = load(run_floors + n), below = load(run_below + n), above = load(run_above + n);
    store<T>(run_floors + n, floor);
    if constexpr (has_vectors<T>) {
      const auto stay = [&](V x) {  // x where the lane did not move
        return moved == ~0u ? zero<T>() : (floor != before ? zero<T>() : x);
      };
      moved &= bits<T>(before >= zero<T>());
      const Mask<T> here = place_of(block, n, before);
      scatter_add<T>(d_table, here, moved, below);
      const unsigned higher = moved & bits<T>(above != zero<T>());  // never from the last row
      if (higher) scatter_add<T>(d_table, here + static_cast<std::int32_t>(block.columns), higher, above);
      store<T>(run_below + n, stay(below)), store<T>(run_above + n, stay(above));
    }
  }
};

}  // namespace whence::tiles::WHENCE_TILES_TARGET
