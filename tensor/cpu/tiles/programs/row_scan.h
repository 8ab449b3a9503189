// The tile program of CoPE: gates summed from the right, and the query's table read at the sum.
//   g = sigmoid(gate score), 0 where not seen     P_k = P_{k+1} + g_k along the keys of a row, from its last key down
//   p = min(P, n - 1),  f = floor p,  w = p - f    x += z[f] + w (z[f+1] - z[f])            (CoPE, Eq. 3 to 7)
//   with z given, or z = scale q.e of the block's own queries
//   or x += slope P                                                                         (CoPE_ALiBi, Eq. 10)
// Keys run down the tile, so that the sum is one addition of vectors per key. p rises by at most 1 from key to key, so
// z[f] and z[f+1] - z[f] stay in two vectors, which are reloaded when some lane's floor moves. If gates are sparse, a
// tile has only a few floors, and their rows are loaded once for all of its keys. Once all sums of a block have reached
// n - 1 they stay: x += z[n-1], plain attention.
// Backward, with dx the gradient at the logits:
//   dz[f] += (1-w) dx, dz[f+1] += w dx             summed while f stays, written once for each row and f
//   dp = (z[f+1] - z[f]) dx, 0 at whole p and from n - 1 on;  dg_k = sum_{l<=k} dp_l;  d score = dg g (1 - g)
// The last sum runs up the keys, in the opposite direction (kept_scan.h), over the keys where sums still move; their dx
// is kept too.
#pragma once

#include "tensor/cpu/tiles/programs/program.h"

namespace whence::tiles::WHENCE_TILES_TARGET {

template <class T> struct RowScan : Program<T> {
  bool backward, by_table;
  Pairing<T> gates;  // used if gates are not those of the scores
  T slope;
  // p_of_pairs is of one tile: p of each pair, or P if slopes use it. Loops copy the pointer to `positions`, because a
  // member would be reloaded after each store.
  T *gate_scores, *p_of_pairs;
  // Per lane of the block: P so far, and its rounding error; z[f], z[f+1] - z[f] and their f; dz[f], dz[f+1] so far and
  // their f; the sum of dp up the keys.
  T *sums, *rests, *floors, *z_floor, *z_rise, *dz_floor, *dz_above, *dz_floors;
  T *z, *dz;            // [n, block rows], lanes contiguous
  T *e, *queries;       // if z is computed here: scale e [n, width], and the block's queries [d, block rows]
  T* kept_dx;           // backward, [keys, block rows]
  KeptScan<T> up_keys;  // of dp; its factor is g. Where all sums are n - 1, gates have no gradient
  bool at_last;         // all sums have reached n - 1
  bool was_at_last;     // at_last when the tile was added

  static bool runs(const Problem<T>& p) {
    return p.in[At::position_logits].at || p.in[At::position_keys].at || p.in[At::position_slopes].at;
  }

  void take(Cutter<T>& cut, const Problem<T>& p, bool with_gradient) {
    if (!runs(p)) return;
    backward = with_gradient, by_table = !p.in[At::position_slopes].at;
    const extent tile = tile_keys<T> * block_rows<T>, table = p.positions * block_rows<T>;
    gates.take(cut, p, At::gate_query, At::gate_key, p.gate_scale, backward);
    gate_scores = cut.take(gates.query.at ? tile : 0), p_of_pairs = cut.take(tile);
    T** const of_lanes[] = {&sums, &rests, &floors, &z_floor, &z_rise, &dz_floor, &dz_above, &dz_floors};
    for (T** array : of_lanes) *array = cut.take(block_rows<T>);
    z = cut.take(table), dz = cut.take(backward ? table : 0);
    if (p.in[At::position_keys].at)
      e = cut.take(p.positions * padded<T>(p.dim)), queries = cut.take(p.dim * block_rows<T>);
    kept_dx = cut.take(backward ? (p.keys + tile_keys<T>)*block_rows<T> : 0), up_keys.take(cut, p, backward);
  }
  void head(const Problem<T>& p, extent b, extent h) {
    if (!runs(p)) return;
    gates.head(p, b, h);
    slope = by_table ? T(0) : *head_of(p.in[At::position_slopes], 0, h);
    if (const Rows<const T> from = p.in[At::position_keys]; from.at)
      pack_rows(from.at, from.row, p.positions, p.dim, padded<T>(p.dim), e, p.position_scale);
  }

  void block(const QueryBlock<T>& block) {
    const Problem<T>& p = block.p;
    if (!runs(p)) return;
    gates.block(block);
    at_last = false, up_keys.begin(block);
    T* const from_zero[] = {rests, z_floor, z_rise, dz_floor, dz_above};
    for (T* array : from_zero) clear(array, block_rows<T>);
    // Lanes without a query have reached n - 1 from the start.
    for (extent i = 0; i < block_rows<T>; ++i) {
      sums[i] = i < block.rows ? T(0) : number<T>(p.positions);
      floors[i] = dz_floors[i] = T(-1);
    }
    if (const Rows<const T> from = p.in[At::position_logits]; from.at)
      pack_transposed(head_of(from, block.b, block.h) + block.first_query * from.row, from.row, block.rows, p.positions,
          block.columns, T(1), z);
    if (p.in[At::position_keys].at) {
      const Rows<const T> from = p.in[At::query];
      pack_transposed(head_of(from, block.b, block.h) + block.first_query * from.row, from.row, block.rows, p.dim,
          block.columns, T(1), queries);
      multiply<T>(p.positions, block.columns, {p.dim}, {e, padded<T>(p.dim), 1}, queries, block.columns, z,
          block.columns, Start::zero);
    }
    if (backward) clear(dz, p.positions * block_rows<T>);
  }

  // Adds the scan to x for a tile, keys downwards. Backward keeps g of each pair, and dp / dx.
  void add(const Tile<T>& tile, T* x) {
    const extent columns = tile.block.columns;
    if (!runs(tile.block.p)) return;
    T* const kept_gate = backward ? up_keys.of_tile(tile, up_keys.factor) : nullptr;
    T* const slopes = backward ? up_keys.of_tile(tile, up_keys.dx) : nullptr;
    if (gates.query.at) gates.products(tile, gate_scores);
    was_at_last = at_last;
    const T* const positions = p_of_pairs;
    for (extent n = 0; n < columns; n += lanes<T>) {
      if (at_last) {
        for (extent at = n; at < tile.keys * columns; at += columns) store<T>(x + at, load(x + at) + load(z_floor + n));
        continue;
      }
      sum_gates(tile, n, gates.query.at ? gate_scores : x, kept_gate);
      if (by_table)
        read_table(tile, n, x, slopes);
      else
        for (extent at = n; at < tile.keys * columns; at += columns) {
          store<T>(x + at, load(x + at) + splat(slope) * load(positions + at));
          if (slopes) store<T>(slopes + at, splat(slope));
        }
    }
    if (!by_table || at_last) return;
    at_last = true;
    for (extent i = 0; i < columns; ++i) at_last = at_last && sums[i] >= number<T>(tile.block.p.positions - 1);
  }

  // Adds to dz for a tile, keys downwards.
  void gather(const Tile<T>& tile, const T* dx) {
    using V = Vector<T>;
    const QueryBlock<T>& block = tile.block;
    if (!runs(block.p) || !by_table) return;
    const V last = splat(number<T>(block.p.positions - 1));
    const T* const positions = p_of_pairs;
    for (extent n = 0; n < block.columns; n += lanes<T>) {
      if (!was_at_last && gather_near(tile, n, dx)) continue;
      V of_floor = load(dz_floors + n), below = load(dz_floor + n), above = load(dz_above + n);
      for (extent k = tile.keys - 1; k >= 0; --k) {
        const extent at = k * block.columns + n;
        const V gradient = load(dx + at), position = was_at_last ? last : load(positions + at);
        const V floor = was_at_last ? last : whole_part<T>(position);
        if (const unsigned moved = bits<T>(floor != of_floor)) {
          add_to_dz(block, n, moved, of_floor, below, above);
          const auto begun_anew = [&](V sum) { return floor != of_floor ? zero<T>() : sum; };
          below = begun_anew(below), above = begun_anew(above), of_floor = floor;
        }
        const V share = (position - floor) * gradient;
        above = above + share, below = below + (gradient - share);
      }
      store<T>(dz_floors + n, of_floor), store<T>(dz_floor + n, below), store<T>(dz_above + n, above);
    }
  }

  // True for a tile where sums moved: its scores wait for the gradient of their gates.
  bool keeps(const Tile<T>& tile, const T* dx) {
    const QueryBlock<T>& block = tile.block;
    const Problem<T>& p = block.p;
    if (!runs(p) || was_at_last) return false;
    up_keys.first = tile.first_key;
    T *const kept = up_keys.of_tile(tile, kept_dx), *const dp = up_keys.of_tile(tile, up_keys.dx);
    const T* const positions = p_of_pairs;
    const T scale = p.scale;
    Vector<T> slope_sum = zero<T>();
    for (extent n = 0, count = tile.keys * block.columns; n < count; n += lanes<T>) {
      const Vector<T> gradient = load(dx + n);
      store<T>(kept + n, gradient * splat(scale));
      if (!by_table) slope_sum = slope_sum + gradient * load(positions + n);
      store<T>(dp + n, load(dp + n) * gradient);
    }
    if (const Rows<T> to = p.d[At::position_slopes]; to.at)
      *head_of(to, block.b, block.h) += sum_of_lanes<T>(slope_sum);
    return true;
  }

  // Goes up the keys whose sums moved: dg g (1-g) to the gates' scores. Then adds dz to its rows, or to the gradients
  // of queries and e.
  void finish(const QueryBlock<T>& block, Pairing<T>& scores) {
    const Problem<T>& p = block.p;
    if (!runs(p)) return;
    using V = Vector<T>;
    up_keys.up(
        block, [](V dp, V gate, V before, V sum) { return (before + (sum + dp)) * gate * (splat(T(1)) - gate); },
        [&](const Tile<T>& tile, T* d_gates) { gather_scores(tile, d_gates, scores); });
    if (gates.query.at) gates.finish(block);
    for (extent n = 0; n < block.columns; n += lanes<T>)
      add_to_dz(block, n, ~0u, load(dz_floors + n), load(dz_floor + n), load(dz_above + n));
    if (const Rows<T> to = p.d[At::position_logits]; to.at)
      for (extent i = 0; i < block.rows; ++i)
        for (extent c = 0; c < p.positions; ++c)
          head_of(to, block.b, block.h)[(block.first_query + i) * to.row + c] = dz[c * block.columns + i];
    if (!p.in[At::position_keys].at) return;
    if (scores.d_query.at)
      multiply<T>(block.rows, scores.width, {p.positions}, {dz, 1, block.columns}, e, scores.width, scores.d_rows,
          scores.width, Start::given);
    if (const Rows<T> to = p.d[At::position_keys]; to.at)
      multiply<T>(p.positions, scores.width, {block.rows}, {dz, block.columns, 1}, scores.rows, scores.width,
          head_of(to, block.b, block.h), to.row, Start::given);
  }
  void finish(const Problem<T>& p, extent b, extent h) {
    if (runs(p) && gates.query.at) gates.finish(p, b, h);
  }

 private:
  void gather_scores(const Tile<T>& tile, T* d_gates, Pairing<T>& scores) {
    T* const kept = up_keys.of_tile(tile, kept_dx);
    if (gates.query.at) {
      scale_tile(tile, gates.scale, d_gates);
      gates.gather(tile, d_gates);
    } else {
      const T scale = scores.scale;
      for (extent n = 0, count = tile.keys * tile.block.columns; n < count; n += lanes<T>)
        store<T>(kept + n, load(kept + n) + load(d_gates + n) * splat(scale));
    }
    scores.gather(tile, kept);
  }

  // sum_gates is pass 1: gates and sums. Pass 2 branches when a lane's floor changes; without a sigmoid in it a
  // mispredicted branch is cheap. The tile's gates are summed on their own, so that P is rounded twice per tile and not
  // at every key: an error of P is an error of w, and of z[f] near a whole number.
  void sum_gates(const Tile<T>& tile, extent n, const T* scores, T* kept_gate) const {
    using V = Vector<T>;
    const extent columns = tile.block.columns;
    const V last = splat(number<T>(tile.block.p.positions - 1));
    T* const positions = p_of_pairs;
    const V before = load(sums + n);
    V sum = load(rests + n);
    for (extent k = tile.keys - 1; k >= 0; --k) {
      const extent at = k * columns + n;
      V gate = sigmoid<T>(load(scores + at));
      if (tile.edge) gate = tile.seen(k, n / lanes<T>) ? gate : zero<T>();
      sum = sum + gate;
      if (kept_gate) store<T>(kept_gate + at, gate);
      const V position = before + sum;
      store<T>(positions + at, by_table ? smaller<T>(position, last) : position);
    }
    const V after = before + sum, added = after - before;
    store<T>(sums + n, after), store<T>(rests + n, (before - (after - added)) + (sum - added));
  }

  void read_table(const Tile<T>& tile, extent n, T* x, T* slopes) const {
    using V = Vector<T>;
    const QueryBlock<T>& block = tile.block;
    const T* const positions = p_of_pairs;
    V before = load(floors + n), below = load(z_floor + n), rise = load(z_rise + n);
    const auto read = [&](const auto& move_to) {
      for (extent k = tile.keys - 1; k >= 0; --k) {
        const extent at = k * block.columns + n;
        const V position = load(positions + at), floor = whole_part<T>(position), share = position - floor;
        move_to(floor);
        store<T>(x + at, load(x + at) + (below + share * rise));
        if (slopes) store<T>(slopes + at, share > zero<T>() ? rise : zero<T>());
      }
    };
    if (V first; stays_near(tile, n, first)) {
      V rows[near + 1];
      for (extent r = 0; r <= near; ++r) rows[r] = row_of(block, n, first + splat(number<T>(r)));
      read([&](V floor) {
        before = floor, below = rows[0], rise = rows[1] - rows[0];
        for (extent r = 1; r < near; ++r) {
          const auto reached = floor >= first + splat(number<T>(r));
          below = reached ? rows[r] : below, rise = reached ? rows[r + 1] - rows[r] : rise;
        }
      });
    } else {
      read([&](V floor) {
        if (bits<T>(floor != before) == 0) return;
        before = floor, below = row_of(block, n, floor), rise = row_of(block, n, floor + splat(T(1))) - below;
      });
    }
    store<T>(floors + n, before), store<T>(z_floor + n, below), store<T>(z_rise + n, rise);
  }

  // ---- sparse gates: all lanes of a tile stay within `near` whole numbers, whose rows are loaded once. Its keys then
  // need no branch, which would be mispredicted whenever a lane moves. Three: with their rises and the numbers of a key
  // they fill the registers of AVX2. ----

  static constexpr extent near = 3;
  // True if no lane gets further than `near` from `first`, its first whole number in the tile.
  bool stays_near(const Tile<T>& tile, extent n, Vector<T>& first) const {
    first = whole_part<T>(load(p_of_pairs + (tile.keys - 1) * tile.block.columns + n));
    return has_vectors<T> && bits<T>(load(p_of_pairs + n) >= first + splat(number<T>(near))) == 0;
  }

  bool gather_near(const Tile<T>& tile, extent n, const T* dx) {
    using V = Vector<T>;
    const QueryBlock<T>& block = tile.block;
    const T* const positions = p_of_pairs;
    V first, below[near] = {}, above[near] = {};
    if (!stays_near(tile, n, first)) return false;
    for (extent k = tile.keys - 1; k >= 0; --k) {
      const extent at = k * block.columns + n;
      const V gradient = load(dx + at), position = load(positions + at), floor = whole_part<T>(position);
      const V share = (position - floor) * gradient, rest = gradient - share;
      for (extent r = 0; r < near; ++r) {
        const auto here = floor == first + splat(number<T>(r));
        below[r] = below[r] + (here ? rest : zero<T>()), above[r] = above[r] + (here ? share : zero<T>());
      }
    }
    for (extent r = 0; r < near; ++r) {
      const V row = first + splat(number<T>(r));
      add_to_dz(block, n, bits<T>(row <= splat(number<T>(block.p.positions - 1))), row, below[r], above[r]);
    }
    return true;
  }

  // ---- rows of the table ----

  // Returns z[floor], or the last row for a larger floor.
  Vector<T> row_of(const QueryBlock<T>& block, extent n, Vector<T> floor) const {
    const Vector<T> there = smaller<T>(floor, splat(number<T>(block.p.positions - 1)));
    if constexpr (has_vectors<T>)
      return look_up(z, index_of(block, n, there));
    else
      return z[static_cast<extent>(static_cast<double>(there)) * block.columns + n];
  }

  // The index of table[floor, n + lane].
  static Mask<T> index_of(const QueryBlock<T>& block, extent n, Vector<T> floor) {
    return indices<T>(floor) * static_cast<std::int32_t>(block.columns) +
           indices<T>(count_up<T>() + splat(number<T>(n)));
  }

  // Writes the sums of lanes that moved to the floor they were for; -1: no key yet.
  void add_to_dz(
      const QueryBlock<T>& block, extent n, unsigned moved, Vector<T> floor, Vector<T> below, Vector<T> above) {
    const T last = number<T>(block.p.positions - 1);
    if constexpr (has_vectors<T>) {
      moved &= bits<T>(floor >= zero<T>());
      const Mask<T> here = index_of(block, n, floor);
      scatter_add<T>(dz, here, moved, below);
      const unsigned higher = moved & bits<T>(floor < splat(last));
      if (higher) scatter_add<T>(dz, here + static_cast<std::int32_t>(block.columns), higher, above);
    } else if (moved && floor >= T(0)) {
      T* const here = dz + static_cast<extent>(static_cast<double>(floor)) * block.columns + n;
      *here += below;
      if (floor < last) here[block.columns] += above;
    }
  }
};

}  // namespace whence::tiles::WHENCE_TILES_TARGET
