// Kernels that prepare the inputs of CoPE's scan (gate_scan.h): pairs of its table, and sums of gates at groups of
// keys.
#pragma once

#include "cuda/kernels/tiles/gate_scan.h"

namespace whence::gpu {

// z_i[m] and z_i[m+1] - z_i[m], in base 2, adjacent because one place reads both. After the last position, and the last
// query, there are zeros.
template <class T> struct PairsOfLogits {
  using C = compute_t<T>;
  static constexpr const char* name = "pairs of logits";
  static constexpr int threads = 256;
  Global<const T> z;  // [b h queries positions], of the scan's heads
  GateScan<T> scan;
  int queries;
  index_t count;
  WHENCE_HD void operator()(Thread& t) const {
    const index_t n = t.block() * threads + t.index(), row = n / scan.pitch,
                  of_z = row / scan.rows * queries + row % scan.rows;
    if (n >= count) return;
    const int m = static_cast<int>(n % scan.pitch), there = row % scan.rows < queries ? scan.positions : 0;
    Number<C> value = 0.0f, rise = 0.0f;
    if (m < there) value = load<C>(z, of_z * scan.positions + m) * log2e<C>;
    if (m + 1 < there) rise = load<C>(z, of_z * scan.positions + m + 1) * log2e<C> - value;
    const auto pair = two_of<Position<T>>(value, rise);
    store_pack<2>(scan.pairs, 2 * n, pair);
    if (m == scan.positions - 1) store(scan.last, row, from_stored<C>(pair.of[0]));
  }
};

// The sums of gates after each group of keys, for backward: a loop from right to left, over gates alone, until a row is
// full. Before it pairs are made, if they are of q.e.
template <class T, int width> struct GateSums {
  using C = compute_t<T>;
  static constexpr const char* name = "sums of gates";
  static constexpr int threads = head_threads;
  static constexpr int keys = gate_keys, own = keys / 4, fragments = fragments_of<T, width>, of_warp = 16 * fragments;
  static constexpr int rows = head_warps * of_warp;
  static constexpr unsigned blocks_at_once = 2;
  static std::size_t shared_bytes(bool makes_pairs, int positions) {
    const index_t of_e = makes_pairs ? blocks_for(positions, position_tile) * position_tile : 0;
    return shared_bytes_for<T>((rows + 2 * keys) * width) + shared_bytes_for<std::int32_t>(2 * head_warps) +
           shared_bytes_for<T>(static_cast<std::size_t>(of_e * width));
  }

  HeadFacts<C> facts;
  HeadRows<const T> q, k;              // of the gates
  HeadRows<const T> scores_q;          // if pairs are made from others than q, else null
  HeadRows<const T> position_keys;     // [1 1 positions d] if pairs are made from them, else null
  Global<const std::int32_t> present;  // [b 2], or null
  GateScan<T> scan;

  WHENCE_HD void operator()(Thread& t) const {
    const Shared<T> of_q = t.shared<T>((rows + 2 * keys) * width), tiles = of_q + rows * width;
    const Shared<std::int32_t> full =
        t.shared<std::int32_t>(2 * head_warps);  // one per warp, for this tile and the one before
    const Shared<T> of_e = t.shared<T>(
        position_keys.at ? (scan.positions + position_tile - 1) / position_tile * position_tile * width : 0);
    const int blocks = (facts.queries + rows - 1) / rows, nth = static_cast<int>(t.block()) % blocks,
              head = scan.first_head + static_cast<int>(t.block()) / blocks, b = head / facts.heads,
              h = head % facts.heads, first_query = (blocks - 1 - nth) * rows;
    const int begin = present ? int(present[b * 2]) : 0, end = present ? int(present[b * 2 + 1]) : facts.keys;
    const Global<const T> keys_of_head = k.of(b, h);
    const int first_token = facts.first() + first_query;
    const int from = larger(begin, first_token - facts.before), behind = smaller(end, first_token + rows + facts.after);
    const int lowest_tile = from / keys, highest_tile = behind > from ? (behind - 1) / keys : lowest_tile - 1;
    const auto phase = [](int key) { return key_phase<keys>(key); };
    const auto fetch = [&](int tile) {
      fetch_rows<keys, width>(
          t, tiles + tile % 2 * keys * width, k, keys_of_head, tile * keys, facts.keys, facts.d, phase);
    };
    const auto fetch_queries = [&](const HeadRows<const T>& source) {
      fetch_rows<rows, width>(t, of_q, source, source.of(b, h), first_query, facts.queries, facts.d, row_phase);
    };
    fetch_queries(scores_q.at ? scores_q : q);
    if (position_keys.at) fetch_positions<width>(t, of_e, position_keys, scan.positions, facts.d);
    if (highest_tile >= lowest_tile) fetch(highest_tile);
    cp_async_commit(t);
    cp_async_wait<0>(t);
    t.sync();

    const int first_row = first_query + t.warp() * of_warp, own_token = facts.first() + first_row;
    LeftRows<T, width, fragments, false> queries;
    queries.hold(t, of_q, t.warp() * of_warp);
    if (position_keys.at)
      make_pairs<T, width, fragments>(
          t, queries, of_e, scan.positions, scan.position_scale * log2e<C>, [&](auto a, int m, const auto& pack) {
            constexpr int numbers = pack_size<Position<T>>;
            const int row = first_row + 8 * a + t.lane() / 4;
            if (row >= scan.rows || m >= scan.pitch) return;
            const index_t of_row = scan.row_at(head, row);
            store_pack<numbers>(scan.pairs, (of_row * scan.pitch + m) * 2, pack);
            each<numbers / 2>([&](auto n) {
              if (m + n == scan.positions - 1) store(scan.last, of_row, from_stored<C>(pack.of[2 * n]));
            });
          });
    if (scores_q.at) {
      t.sync();  // they are no longer read
      fetch_queries(q);
      cp_async_commit(t);
      cp_async_wait<0>(t);
      t.sync();
    }
    LeftRows<T, width, fragments> held;
    held.hold(t, of_q, t.warp() * of_warp);
    Registers<Number<C>, 2 * fragments> sums;
    each<2 * fragments>([&](auto a) {  // missing rows count as full
      if (first_row + 8 * a + t.lane() / 4 >= facts.queries) sums[a] = scan.full();
    });
    int first_tile = 0;
    bool done = false;
    for (int tile = highest_tile; tile >= lowest_tile; --tile) {
      cp_async_wait<0>(t);
      t.sync();
      if (tile < highest_tile) {
        const Shared<std::int32_t> before = full + (tile + 1) % 2 * head_warps;
        if (before[0] && before[1] && before[2] && before[3]) break;
      }
      if (tile > lowest_tile) fetch(tile - 1);
      cp_async_commit(t);
      const int first_key = tile * keys;
      if (!done && first_key < own_token + of_warp + facts.after && first_key + keys > own_token - facts.before) {
        done = work(t, tiles + tile % 2 * keys * width, held, sums, head, first_row, tile, begin, end);
        if (done) first_tile = tile;
      }
      if (t.lane() == 0) full[tile % 2 * head_warps + t.warp()] = done;
    }
    cp_async_wait<0>(t);
    if (const int row = first_row + 8 * t.lane(); t.lane() < of_warp / 8 && row < scan.rows)
      store(scan.first_tile, scan.row_at(head, row) / 8, Number<C>(static_cast<C>(first_tile)));
  }

 private:
  // Returns true when all rows are full.
  WHENCE_HD bool work(Thread& t, Shared<T> tile_of_k, const LeftRows<T, width, fragments>& held,
      Registers<Number<C>, 2 * fragments>& sums, int head, int first_row, int tile, int begin, int end) const {
    SummedRows<T, keys, fragments> x;
    add_products<T, keys, width>(t, tile_of_k, held, x);
    const int quad = t.lane() % 4, own_key = tile * keys + quad * own;
    Number<C> least = scan.full();
    each<2 * fragments>([&](auto a) {
      const int row = first_row + 8 * a + t.lane() / 4, token = facts.first() + row;
      const int from = larger(begin, token - facts.before), behind = smaller(end, token + facts.after + 1);
      const SeenColumns seen(from - own_key, behind - own_key);
      const auto score = [&](auto j) {
        return seen.has(j) ? number(x, a, j) * facts.scale_of_powers : Number<C>(not_seen);
      };
      GateRow<C, own, 1, 2> gates;
      gates.add_up(t, score, sums[a]);
      if (row < scan.rows && quad % 2 == 0)
        store(scan.sums, scan.at(head, 2 * tile + 1 - quad / 2, row), quad == 0 ? sums[a] : gates.sum[Nth<0>{}]);
      sums[a] = gates.first(t);
      if (sums[a] < least) least = sums[a];
    });
    return !(least_of_rows(t, least) < scan.full());
  }
};

}  // namespace whence::gpu
