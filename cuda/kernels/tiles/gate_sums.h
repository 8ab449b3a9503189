// What CoPE's scan (gate_scan.h) reads beside rows of heads: pairs of its table, and the sums of gates at groups of keys.
#pragma once

#include "cuda/kernels/tiles/gate_scan.h"

namespace whence::gpu {

// z_i[m] and z_i[m+1] - z_i[m], f16 in base 2: what one place reads lies in 4 bytes. Behind the last position, and the last query,
// there are zeros.
template <class T> struct PairsOfLogits {
  static constexpr const char* name = "pairs of logits";
  static constexpr int threads = 256;
  Global<const T> z;  // [b h queries positions]
  Global<Float16> pairs;
  Global<float> last;
  int positions, pitch, queries, rows;
  index_t count;
  WHENCE_HD void operator()(Thread& t) const {
    const index_t n = t.block() * threads + t.index(), row = n / pitch, of_z = row / rows * queries + row % rows;
    if (n >= count) return;
    const int m = static_cast<int>(n % pitch), there = row % rows < queries ? positions : 0;
    Number<float> value = 0.0f, rise = 0.0f;
    if (m < there) value = load<float>(z, of_z * positions + m) * log2e;
    if (m + 1 < there) rise = load<float>(z, of_z * positions + m + 1) * log2e - value;
    store_pack<2>(pairs, 2 * n, std::bit_cast<Pack<Float16, 2>>(pack_two<Float16>(value, rise)));
    if (m == positions - 1) store(last, row, value);
  }
};

// The same of z_i[m] = scale q_i.e[m]. The last positions come first: what rises from one lane's last is the next one's first.
template <class T, int width> struct PairsOfQueries {
  static constexpr const char* name = "pairs of queries";
  static constexpr int threads = head_threads, rows = 16 * head_warps, columns = 32, own = columns / 4;
  static std::size_t shared_bytes(int positions) {
    return shared_bytes_for<T>(rows * width) + shared_bytes_for<T>(blocks_for(positions, columns) * columns * width);
  }
  HeadRows<const T> q, e;
  Global<Float16> pairs;
  Global<float> last;
  int positions, pitch, heads, queries, padded, d;  // padded: rows of pairs
  float scale;                                      // times log2(e)

  WHENCE_HD void operator()(Thread& t) const {
    const int steps = (positions + columns - 1) / columns, blocks = (padded + rows - 1) / rows;
    const Shared<T> of_q = t.shared<T>(rows * width), of_e = t.shared<T>(steps * columns * width);
    const int head = static_cast<int>(t.block()) / blocks;
    const int first = static_cast<int>(t.block() % blocks) * rows, quad = t.lane() % 4;
    fetch_rows<rows, width>(t, of_q, q, q.of(head / heads, head % heads), first, queries, d, row_phase);
    for (int step = 0; step < steps; ++step)
      fetch_rows<columns, width>(t, of_e + step * columns * width, e, e.at, step * columns, positions, d,
          [](int row) { return key_phase<columns>(row); });
    cp_async_commit(t);
    cp_async_wait<0>(t);
    t.sync();
    Registers<Registers<FragmentA<T>, width / 16>, 1> held;
    hold_rows<T, width, 1>(t, of_q, t.warp() * 16, held);
    Registers<Number<float>, 2> behind;
    for (int step = steps - 1; step >= 0; --step) {
      Registers<Registers<FragmentC<T>, columns / 8>, 1> z;
      add_products<T, columns, width, 1>(t, of_e + step * columns * width, held, z);
      each<2>([&](auto a) {
        const int row = first + t.warp() * 16 + 8 * a + t.lane() / 4, m = step * columns + quad * own;
        const Number<float> own_first = number(z, a, Nth<0>{});
        const Number<float> next = t.shuffle(quad == 0 ? behind[a] : own_first, (t.lane() & ~3) | (quad + 1) % 4);
        behind[a] = own_first;
        each<own / 4>([&](auto four) {
          Pack<Float16, 8> pack;
          each<4>([&](auto k) {
            constexpr int j = 4 * four + k;
            const Number<float> value = number(z, a, Nth<j>{}) * scale;
            Number<float> above = next;
            if constexpr (j + 1 < own) above = number(z, a, Nth<j + 1>{});
            const Number<float> rise = m + j + 1 < positions ? above * scale - value : Number<float>(0.0f);
            const auto pair = std::bit_cast<Pack<Float16, 2>>(pack_two<Float16>(value, rise));
            pack.of[2 * k] = pair.of[0], pack.of[2 * k + 1] = pair.of[1];
            if (m + j == positions - 1 && row < padded) store(last, index_t(head) * padded + row, value);
          });
          const int place = m + 4 * four;
          if (row < padded && place < pitch)
            store_pack<8>(pairs, ((index_t(head) * padded + row) * pitch + place) * 2, pack);
        });
      });
    }
  }
};

// The sums of gates behind each group of keys, for backward: a walk from right to left, over gates alone, until a row is full.
template <class T, int width> struct GateSums {
  static constexpr const char* name = "sums of gates";
  static constexpr int threads = head_threads;
  static constexpr int keys = gate_keys, own = keys / 4, fragments = width <= 64 ? 2 : 1, of_warp = 16 * fragments;
  static constexpr int rows = head_warps * of_warp;
  static constexpr unsigned blocks_at_once = 2;
  static constexpr std::size_t shared_bytes =
      shared_bytes_for<T>((rows + 2 * keys) * width) + shared_bytes_for<std::int32_t>(2 * head_warps);

  HeadFacts facts;
  HeadRows<const T> q, k;
  Global<const std::int32_t> present;  // [b 2], or null
  GateScan scan;

  WHENCE_HD void operator()(Thread& t) const {
    const Shared<T> of_q = t.shared<T>((rows + 2 * keys) * width), tiles = of_q + rows * width;
    const Shared<std::int32_t> full =
        t.shared<std::int32_t>(2 * head_warps);  // of the warps, at this tile and the one before
    const int blocks = (facts.queries + rows - 1) / rows, nth = static_cast<int>(t.block()) % blocks,
              head = scan.first_head + static_cast<int>(t.block()) / blocks, b = head / facts.heads,
              h = head % facts.heads, first_query = (blocks - 1 - nth) * rows;
    const int begin = present ? int(present[b * 2]) : 0, end = present ? int(present[b * 2 + 1]) : facts.keys;
    const Global<const T> keys_of_head = k.of(b, h);
    const int first_token = facts.first_row + first_query;
    const int from = larger(begin, first_token - facts.before), behind = smaller(end, first_token + rows + facts.after);
    const int lowest_tile = from / keys, highest_tile = behind > from ? (behind - 1) / keys : lowest_tile - 1;
    const auto phase = [](int key) { return key_phase<keys>(key); };
    const auto fetch = [&](int tile) {
      fetch_rows<keys, width>(
          t, tiles + tile % 2 * keys * width, k, keys_of_head, tile * keys, facts.keys, facts.d, phase);
    };
    fetch_rows<rows, width>(t, of_q, q, q.of(b, h), first_query, facts.queries, facts.d, row_phase);
    if (highest_tile >= lowest_tile) fetch(highest_tile);
    cp_async_commit(t);

    const int first_row = first_query + t.warp() * of_warp, own_token = facts.first_row + first_row;
    Registers<Registers<FragmentA<T>, width / 16>, fragments> held;
    Registers<Number<float>, 2 * fragments> sums;
    each<2 * fragments>([&](auto a) {  // rows that are not there count as full
      if (first_row + 8 * a + t.lane() / 4 >= facts.queries) sums[a] = scan.full();
    });
    int first_tile = 0;
    bool done = false;
    for (int tile = highest_tile; tile >= lowest_tile; --tile) {
      cp_async_wait<0>(t);
      t.sync();
      if (tile == highest_tile) {
        hold_rows<T, width, fragments>(t, of_q, t.warp() * of_warp, held);
      } else {
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
      store(scan.first_tile, scan.first_tile_at(head, row), Number<float>(static_cast<float>(first_tile)));
  }

 private:
  // True when all rows are full.
  WHENCE_HD bool work(Thread& t, Shared<T> tile_of_k,
      const Registers<Registers<FragmentA<T>, width / 16>, fragments>& held,
      Registers<Number<float>, 2 * fragments>& sums, int head, int first_row, int tile, int begin, int end) const {
    Registers<Registers<FragmentC<T>, keys / 8>, fragments> x;
    add_products<T, keys, width, fragments>(t, tile_of_k, held, x);
    const int quad = t.lane() % 4, own_key = tile * keys + quad * own;
    Number<float> least = scan.full();
    each<2 * fragments>([&](auto a) {
      const int row = first_row + 8 * a + t.lane() / 4, token = facts.first_row + row;
      const int from = larger(begin, token - facts.before), behind = smaller(end, token + facts.after + 1);
      const auto score = [&](auto j) { return number(x, a, j) * facts.scale_of_powers; };
      const auto seen = [&](auto j) { return own_key + j >= from && own_key + j < behind; };
      GateRow<own, 1, 2> gates;
      const Number<float> first = gates.add_up(t, score, seen, sums[a]);
      if (row < scan.rows && quad % 2 == 0)
        store(scan.sums, scan.at(head, 2 * tile + 1 - quad / 2, row), quad == 0 ? sums[a] : gates.sum[Nth<0>{}]);
      sums[a] = first;
      if (sums[a] < least) least = sums[a];
    });
    return !(least_of_rows(t, least) < scan.full());
  }
};

}  // namespace whence::gpu
