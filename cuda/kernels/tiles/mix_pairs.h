// Pairs of the head mix in memory. A mix reads all heads of a pair, while products of rows are made head by head, so
// intermediate pairs pass through memory, for a group of rows at a time:
//   scores         S = q.k of every head, f16                              PairProducts
//                  and B, where the base has pieces                        MixPieces (mix_pieces.h)
//   mix            logits of every pair from the scores of all heads       MixLogits (mix_logits.h)
//   values         softmax, and sums of values                             MixValues (mix_values.h)
// Backward makes S and dP - delta = do.v - o.do, which is stored because it rounds less than dP, then P and dA, then
// dX, the gradient of S (mix_scores.h), and last
//   dv_j = sum_i P_ij do_i,  dk_j = scale sum_i dX_ij q_i,  dq_i = scale sum_j dX_ij k_j         PairSums
// Numbers are stored in blocks of 8 rows and 8 keys of a head. So each access is whole sectors: of one head for
// products, where a lane has a row of 16 keys, and of four adjacent heads for the mix.
#pragma once

#include "cuda/kernels/tiles/head_rows.h"
#include "tensor/tiles/gpu_programs.h"

namespace whence::gpu {

// The mix multiplies f16 numbers and sums in f32, for any type of the model: bf16 has an eighth of f16's precision.
template <class T> using Mixed = std::conditional_t<std::is_same_v<T, double>, double, Float16>;
// Scores, logits and hidden numbers are in units, so that f16 holds them up to 1.6e7. Scores are clamped to 6e4 units.
inline constexpr float mix_unit = 256, most_mixed = 6e4f;

inline constexpr int mix_tile = 64;  // keys

// Rows of queries whose pairs are in memory together: all of some sequences, or some of one.
struct MixRows {
  int first_sequence, sequences, first_query, rows;  // rows: of a sequence, a multiple of mix_strip
};

// Numbers of pairs, [sequence, row / 8, key / 8, head, 8 rows, of_row]. of_row: numbers of a row in a block of 8 keys.
template <class P, int of_row = 8> struct PairBlocks {
  Global<P> at = nullptr;
  int heads = 0, rows = 0, key_blocks = 0;
  // Returns the index of a row's numbers in the first block of keys; the next block is `step` further, the next head 8
  // of_row.
  WHENCE_HD index_t of(int sequence, int row, int head) const {
    return ((index_t(sequence) * (rows / 8) + row / 8) * key_blocks * heads + head) * 8 * of_row + row % 8 * of_row;
  }
  WHENCE_HD int step() const { return heads * 8 * of_row; }
};

// Keys that some row of a strip sees, in whole tiles: other pairs are neither stored nor read.
struct KeysOfStrip {
  int begin, end;
};
template <class C>
WHENCE_HD KeysOfStrip keys_of_strip(const HeadFacts<C>& facts, Global<const std::int32_t> present, int b, int query) {
  const int token = facts.first() + query / mix_strip * mix_strip;
  const int begin = larger(present ? int(present[b * 2]) : 0, token - facts.before),
            end = smaller(present ? int(present[b * 2 + 1]) : facts.keys, token + mix_strip + facts.after);
  if (end <= begin) return {0, 0};
  return {begin / mix_tile * mix_tile, (end + mix_tile - 1) / mix_tile * mix_tile};
}

// Returns x clamped to f16; NaN stays.
template <class P, class Real> WHENCE_HD Real held_within(Real x) {
  if constexpr (sizeof(P) > 2) return x;
  return x > most_mixed ? Real(most_mixed) : x < -most_mixed ? Real(-most_mixed) : x;
}

// Returns number(0) to number(7), stored as P.
template <class P, class F> WHENCE_HD Pack<P, 8> eight_of(const F& number) {
  Pack<P, 8> all;
  each<4>([&](auto two) {
    const Pack<P, 2> pair = two_of<P>(number(Nth<2 * two>{}), number(Nth<2 * two + 1>{}));
    all.of[2 * two] = pair.of[0], all.of[2 * two + 1] = pair.of[1];
  });
  return all;
}

// Products of rows of two operands for the pairs of a group, times `factor`; 0 where a pair is not seen. A block of
// threads has some rows of a head and up to four tiles of keys.
template <class T, class P, int width, bool scores> struct PairProducts {
  using C = compute_t<T>;
  static constexpr const char* name = "products of pairs";
  static constexpr int threads = head_threads, blocks_at_once = scores ? 0 : 3, keys = mix_tile, own = keys / 4,
                       tiles = 4;
  static constexpr int fragments = fragments_of<T, width>, of_warp = 16 * fragments, queries = head_warps * of_warp;
  static constexpr std::size_t shared_bytes = shared_bytes_for<T>((queries + 2 * keys) * width);

  HeadFacts<C> facts;
  MixRows group;
  HeadRows<const T> left, right;
  PairBlocks<P> to;
  Global<const std::int32_t> present;  // [b 2], or null
  C factor;
  // Scores are clamped to f16. Gradients, from which delta is subtracted, may overflow, because a loss scale must see
  // that.
  RowBlocks<C> deltas = {};

  static index_t blocks(const MixRows& group, int heads, int keys_in_all) {
    return index_t(group.sequences) * heads * (group.rows / queries) * blocks_for(keys_in_all, keys * tiles);
  }
  WHENCE_HD void operator()(Thread& t) const {
    const int walks = (facts.keys + keys * tiles - 1) / (keys * tiles), blocks_of_rows = group.rows / queries;
    int n = static_cast<int>(t.block());
    const int walk = n % walks, row = (n /= walks) % blocks_of_rows * queries, h = (n /= blocks_of_rows) % facts.heads,
              sequence = n / facts.heads, b = group.first_sequence + sequence, first_query = group.first_query + row;
    const KeysOfStrip seen = keys_of_strip(facts, present, b, first_query);
    const int from = larger(seen.begin / keys, walk * tiles), end = smaller(seen.end / keys, (walk + 1) * tiles);
    if (from >= end) return;
    const Shared<T> of_rows = t.shared<T>((queries + 2 * keys) * width), stages = of_rows + queries * width;
    const auto fetch = [&](int tile, int stage) {
      fetch_rows<keys, width>(t, stages + stage * keys * width, right, right.of(b, h), tile * keys, facts.keys, facts.d,
          [](int key) { return key_phase<keys>(key); });
    };
    fetch_rows<queries, width>(t, of_rows, left, left.of(b, h), first_query, facts.queries, facts.d, row_phase);
    fetch(from, 0);
    cp_async_commit(t);
    LeftRows<T, width, fragments> held;
    const Global<P> block = to.at + to.of(sequence, row + t.warp() * of_warp + t.lane() / 4, h);
    for (int tile = from, stage = 0; tile < end; ++tile, stage = 1 - stage) {
      cp_async_wait<0>(t);
      t.sync();
      if (tile == from) held.hold(t, of_rows, t.warp() * of_warp);
      if (tile + 1 < end) fetch(tile + 1, 1 - stage);
      cp_async_commit(t);
      SummedRows<T, keys, fragments> x;
      add_products<T, keys, width>(t, stages + stage * keys * width, held, x);
      put(t, b, h, first_query + t.warp() * of_warp, tile * keys + t.lane() % 4 * own, block, x);
    }
  }

 private:
  WHENCE_HD void put(
      Thread& t, int b, int h, int first_query, int key, Global<P> block, SummedRows<T, keys, fragments>& x) const {
    const int begin = present ? int(present[b * 2]) : 0, end = present ? int(present[b * 2 + 1]) : facts.keys;
    each<2 * fragments>([&](auto a) {
      const int row = first_query + 8 * a + t.lane() / 4, token = facts.first() + row;
      const int first = larger(begin, token - facts.before) - key,
                behind = row < facts.queries ? smaller(end, token + facts.after + 1) - key : first;
      const SeenColumns columns(first, behind);
      Number<C> delta = 0.0f;
      if (!scores && row < facts.queries)
        delta = load<C>(deltas.of(b * facts.heads + h, first_query + t.lane() / 4), RowBlocks<C>::rows + 8 * a);
      each<2>([&](auto eight) {
        const index_t at = index_t(a) * to.key_blocks * to.step() + (key / 8 + eight) * to.step();
        store_pack<8>(block, at, eight_of<P>([&](auto j) {
          const Number<C> product = number(x, a, Nth<8 * eight + j>{}) * factor;
          if (!columns.has(8 * eight + j)) return Number<C>(0.0f);
          return scores ? held_within<P>(product) : product - delta;
        }));
      });
    });
  }
};

// Sums over pairs, for 64 rows of the result: keys, which sum over the queries of a group, or queries, which sum over keys.
template <class T, int width, bool to_keys> struct PairSums {
  using C = compute_t<T>;
  static constexpr const char* name = to_keys ? "sums of pairs to keys" : "sums of pairs to queries";
  static constexpr int threads = head_threads, rows = 16 * head_warps, columns = 64;
  static constexpr std::size_t shared_bytes = shared_bytes_for<T>(2 * columns * (columns + width));

  HeadFacts<C> facts;
  MixRows group;
  PairBlocks<const T> pairs;
  HeadRows<const T> of;  // the rows that are summed: of queries, or of keys
  HeadRows<T> to;        // target, if a group has all that is summed; otherwise
  HeadRows<C> wide;      // the sums so far, added to unless
  bool first;            // this is the first group
  Global<const std::int32_t> present;
  C scale;

  WHENCE_HD void operator()(Thread& t) const {
    const int blocks = to_keys ? (facts.keys + rows - 1) / rows : group.rows / rows;
    int n = static_cast<int>(t.block());
    const int block = n % blocks, h = (n /= blocks) % facts.heads, sequence = n / facts.heads,
              b = group.first_sequence + sequence;
    const Shared<T> tiles = t.shared<T>(2 * columns * (columns + width));
    const auto is_seen = [&](int other) {  // true for a tile of rows and keys
      const int row = to_keys ? other : block, key = (to_keys ? block : other) * columns;
      const KeysOfStrip seen = keys_of_strip(facts, present, b, group.first_query + row * columns);
      return key >= seen.begin && key < seen.end;
    };
    const auto next = [&](int other) {
      const int end = to_keys ? group.rows / columns : (facts.keys + columns - 1) / columns;
      while (other < end && !is_seen(other)) ++other;
      return other < end ? other : -1;
    };
    const auto fetch = [&](int other, int stage) {
      const Shared<T> tile = tiles + stage * columns * (columns + width);
      const int row = to_keys ? other : block, key_block = (to_keys ? block : other) * (columns / 8);
      // Eight lanes copy eight rows of a block, which are adjacent.
      const int in_block = t.index() % 8;
      each<columns * columns / 8 / threads>([&](auto k) {
        const int which = k * (threads / 8) + t.index() / 8, r = which / 8 * 8 + in_block, c = which % 8;
        cp_async(t, tile, tile_at<T>(r, c * 8, columns, row_phase(r)), pairs.at,
            pairs.of(sequence, row * columns + r, h) + (key_block + c) * pairs.step());
      });
      const int first_row = to_keys ? group.first_query + other * columns : other * columns;
      fetch_rows<columns, width>(t, tile + columns * columns, of, of.of(b, h), first_row,
          to_keys ? facts.queries : facts.keys, facts.d, row_phase);
    };
    SummedRows<T, width, 1> sums;
    int other = next(0);
    if (other >= 0) fetch(other, 0);
    cp_async_commit(t);
    for (int stage = 0; other >= 0; stage = 1 - stage) {
      cp_async_wait<0>(t);
      t.sync();
      other = next(other + 1);
      if (other >= 0) fetch(other, 1 - stage);
      cp_async_commit(t);
      add_tile(t, tiles + stage * columns * (columns + width), sums);
    }
    cp_async_wait<0>(t);
    t.sync();
    put(t, b, h, (to_keys ? 0 : group.first_query) + block * rows + t.warp() * 16, tiles, sums);
  }

 private:
  WHENCE_HD void add_tile(Thread& t, Shared<T> tile, SummedRows<T, width, 1>& sums) const {
    const int matrix = t.lane() / 8, in_matrix = t.lane() % 8;
    // Rows of the transposed left factor are keys, which are columns of the tile.
    const int row = to_keys ? matrix / 2 * 8 + in_matrix : t.warp() * 16 + matrix % 2 * 8 + in_matrix,
              column = to_keys ? t.warp() * 16 + matrix % 2 * 8 : matrix / 2 * 8;
    const int at = tile_at<T>(row, column, columns, row_phase(row));
    const Place place = place_in_transposed<T>(t.lane());
    const int at_right = tile_at<T>(place.row, place.column, width, row_phase(place.row));
    each<columns / depth<T>>([&](auto step) {
      Registers<Factor<T>, 1> left;
      if constexpr (to_keys)
        left[Nth<0>{}].large = ldmatrix_trans(t, tile, moved(at, depth<T> * step, 0, columns));
      else
        left[Nth<0>{}].large = ldmatrix(t, tile, moved(at, 0, depth<T> * step, columns));
      add_step<T, width>(t, tile + columns * columns, at_right, depth<T> * step, left, sums);
    });
  }
  WHENCE_HD void put(Thread& t, int b, int h, int row, Shared<T> tile, SummedRows<T, width, 1>& sums) const {
    const int end = to_keys ? facts.keys : facts.queries;
    each<width / 8>([&](auto c) { each<4>([&](auto e) { sums[Nth<0>{}][c][e] *= scale; }); });
    if (to.at) return store_rows<T, width>(t, tile, sums, to, to.of(b, h), row, end, facts.d);
    const Global<C> head = wide.of(b, h);
    each<2>([&](auto a) {
      const int line = row + 8 * a + t.lane() / 4;
      if (line >= end) return;
      each<width / 8>([&](auto c) {
        each<2>([&](auto e) {
          const int column = 8 * c + t.lane() % 4 * 2 + e;
          if (column >= facts.d) return;
          const index_t at = line * wide.row + column;
          const Number<C> sum = sums[Nth<0>{}][c][Nth<2 * a + e>{}];
          store(head, at, first ? sum : load<C>(head, at) + sum);
        });
      });
    });
  }
};

}  // namespace whence::gpu
