// Pairs of the head mix in memory. A mix reads all heads of a pair, while products of rows are made head by head, so
// intermediate pairs pass through memory, for a group of rows at a time:
//   scores         S = q.k of every head, f16                              PairProducts
//                  and B, where the base has pieces                        MixPieces (mix_pieces.h)
//   mix            powers of logits from the scores of all heads           MixForward (mix_forward.h)
//   values         softmax, and sums of values                             PairSums
// Backward makes S and dP - delta = do.v - o.do, which is stored because it rounds less than dP, then P and dX, the
// gradient of S (mix_backward.h), and last
//   dv_j = sum_i P_ij do_i,  dk_j = scale sum_i dX_ij q_i,  dq_i = scale sum_j dX_ij k_j         PairSums
// Numbers are stored in blocks of 8 rows and 8 keys of a head, eight queries of a key in 16 bytes. So each access is
// whole sectors: of one head for products, where a lane has a key of 16 queries, and of four adjacent heads for the mix,
// whose tensor cores read a pair's heads as rows of such packs (mix_walk.h).
#pragma once

#include "cuda/kernels/tiles/dropout.h"
#include "tensor/tiles/gpu_programs.h"

namespace whence::gpu {

// The mix multiplies f16 numbers and sums in f32, for any type of the model: bf16 has an eighth of f16's precision.
template <class T> using Mixed = std::conditional_t<std::is_same_v<T, double>, double, Float16>;
// Scores, logits and hidden numbers are in units, so that f16 holds them up to 1.6e7; scores beyond end there.
inline constexpr float mix_unit = 256;

inline constexpr int mix_tile = 64;  // keys

// Rows of queries whose pairs are in memory together: all of some sequences, or some of one.
struct MixRows {
  int first_sequence, sequences, first_query, rows;  // rows: of a sequence, a multiple of mix_strip
};

// Numbers of pairs, [sequence, row / 8, key / 8, head, of_key, 8 rows]. of_key: numbers of a row in a block of 8 keys.
template <class P, int of_key = 8> struct PairBlocks {
  Global<P> at = nullptr;
  int heads = 0, rows = 0, key_blocks = 0;
  // Returns the index of a row's first number in the first block of keys; the next block is `step` further, the next
  // head 8 of_key, the next key 8.
  WHENCE_HD index_t of(int sequence, int row, int head) const {
    return ((index_t(sequence) * (rows / 8) + row / 8) * key_blocks * heads + head) * 8 * of_key + row % 8;
  }
  WHENCE_HD int step() const { return heads * 8 * of_key; }
  // Returns how much further on the next eight rows are.
  WHENCE_HD index_t row_step() const { return index_t(key_blocks) * step(); }
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

// Returns number(0) to number(7), stored as P.
template <class P, bool within, class F> WHENCE_HD Pack<P, 8> eight_of(const F& number) {
  Pack<P, 8> all;
  each<4>([&](auto two) {
    const Pack<P, 2> pair = two_of<P, within>(number(Nth<2 * two>{}), number(Nth<2 * two + 1>{}));
    all.of[2 * two] = pair.of[0], all.of[2 * two + 1] = pair.of[1];
  });
  return all;
}

// Products of rows of two operands for the pairs of a group, times `factor`; 0 where a pair is not seen. A block of
// threads has some keys of a head and up to four tiles of queries.
template <class T, class P, int width, bool scores> struct PairProducts {
  using C = compute_t<T>;
  static constexpr const char* name = "products of pairs";
  static constexpr int threads = head_threads, blocks_at_once = scores ? 0 : 3, queries = 64, own = queries / 4,
                       tiles = 4;
  static constexpr int fragments = fragments_of<T, width>, of_warp = 16 * fragments, keys = head_warps * of_warp;
  static constexpr std::size_t shared_bytes =
      shared_bytes_for<T>((keys + 2 * queries) * width) + (scores ? 0 : shared_bytes_for<C>(2 * queries));

  HeadFacts<C> facts;
  MixRows group;
  HeadRows<const T> of_keys, of_queries;
  PairBlocks<P> to;
  Global<const std::int32_t> present;  // [b 2], or null
  C factor;
  // Scores end with f16. Gradients, from which delta is subtracted, may overflow, because a loss scale must see that.
  RowBlocks<C> deltas = {};

  static index_t blocks(const MixRows& group, int heads, int keys_in_all) {
    return index_t(group.sequences) * heads * blocks_for(group.rows, queries * tiles) * blocks_for(keys_in_all, keys);
  }
  WHENCE_HD void operator()(Thread& t) const {
    const int blocks_of_keys = (facts.keys + keys - 1) / keys,
              walks = (group.rows + queries * tiles - 1) / (queries * tiles);
    int n = static_cast<int>(t.block());
    const int walk = n % walks, first_key = (n /= walks) % blocks_of_keys * keys,
              h = (n /= blocks_of_keys) % facts.heads, sequence = n / facts.heads, b = group.first_sequence + sequence,
              key = first_key + t.warp() * of_warp;
    const auto stored = [&](int tile) { return keys_of_strip(facts, present, b, group.first_query + tile * queries); };
    const auto next = [&](int tile) {  // the next one for which some of the keys are stored, or -1
      const int end = smaller(group.rows / queries, (walk + 1) * tiles);
      for (; tile < end; ++tile)
        if (const KeysOfStrip its = stored(tile); first_key < its.end && first_key + keys > its.begin) return tile;
      return -1;
    };
    const Shared<T> of_rows = t.shared<T>((keys + 2 * queries) * width), stages = of_rows + keys * width;
    Shared<C> delta{};
    if constexpr (!scores) delta = t.shared<C>(2 * queries);
    const auto fetch = [&](int tile, int stage) {
      const int query = group.first_query + tile * queries;
      fetch_rows<queries, width>(t, stages + stage * queries * width, of_queries, of_queries.of(b, h), query,
          facts.queries, facts.d, [](int row) { return key_phase<queries>(row); });
      if (const int row = query + 4 * t.index(); !scores && t.index() < queries / 4)
        cp_async<C, 4>(t, delta + stage * queries, 4 * t.index(), deltas.of(b * facts.heads + h, row),
            RowBlocks<C>::rows, row / RowBlocks<C>::rows < deltas.blocks);
    };
    int tile = next(walk * tiles);
    if (tile < 0) return;
    fetch_rows<keys, width>(t, of_rows, of_keys, of_keys.of(b, h), first_key, facts.keys, facts.d, row_phase);
    fetch(tile, 0);
    cp_async_commit(t);
    LeftRows<T, width, fragments> held;
    for (int stage = 0, first = tile; tile >= 0; stage = 1 - stage) {
      cp_async_wait<0>(t);
      t.sync();
      if (tile == first) held.hold(t, of_rows, t.warp() * of_warp);
      const int now = tile;
      tile = next(tile + 1);
      if (tile >= 0) fetch(tile, 1 - stage);
      cp_async_commit(t);
      const KeysOfStrip its = stored(now);
      if (key < its.begin || key >= its.end) continue;  // strips end where a warp's keys do
      SummedRows<T, queries, fragments> x;
      add_products<T, queries, width>(t, stages + stage * queries * width, held, x);
      const int query = group.first_query + now * queries, token = facts.first() + query;
      const int begin = present ? int(present[b * 2]) : 0, end = present ? int(present[b * 2 + 1]) : facts.keys;
      // True if all keys of the warp are seen by all queries of the tile.
      const bool whole = query + queries <= facts.queries && larger(begin, token + queries - 1 - facts.before) <= key &&
                         smaller(end, token + facts.after + 1) >= key + of_warp;
      const auto store = [&](auto is_whole) {
        put(t, key + t.lane() / 4, begin, end, query + t.lane() % 4 * own,
            to.at + (to.of(sequence, now * queries + t.lane() % 4 * own, h) + index_t(key / 8) * to.step() +
                        t.lane() / 4 * 8),
            delta + (stage * queries + t.lane() % 4 * own), x, is_whole);
      };
      whole ? store(std::true_type{}) : store(std::false_type{});
    }
    cp_async_wait<0>(t);
  }

 private:
  template <bool whole>
  WHENCE_HD void put(Thread&, int first_key, int begin, int end, int query, Global<P> block, Shared<C> delta,
      SummedRows<T, queries, fragments>& x, std::bool_constant<whole>) const {
    each<2 * fragments>([&](auto a) {
      const int key = first_key + 8 * a, seen_from = key - facts.after - facts.first(),
                behind = smaller(facts.queries, key + facts.before + 1 - facts.first());
      const SeenColumns rows(seen_from - query, key >= begin && key < end ? behind - query : 0);
      each<2>([&](auto eight) {
        const index_t at = index_t(eight) * to.row_step() + a * to.step();
        store_pack<8>(block, at, eight_of<P, scores>([&](auto j) {
          const Number<C> product = number(x, a, Nth<8 * eight + j>{});
          if (!whole && !rows.has(8 * eight + j)) return Number<C>(0.0f);
          if constexpr (scores)
            return product * factor;
          else
            return product - load<C>(delta, 8 * eight + j);
        }));
      });
    });
  }
};

// Sums over pairs for some rows of the result: keys, which sum over the queries of a group, or queries, which sum over
// keys. A tile has these rows, and 64 others. Values are sums over keys, too, of powers as MixForward stores them:
//   e_ij = 2^(A_ij - base),  base: for every eight keys of a row, the whole number above their logits
//   P_ij = e_ij 2^(base - top_i) share_i,  top_i >= all bases of the row,  o_i = sum_j drop(P_ij) v_j
// So a factor of powers is scaled by a power of two, which is exact. Its own sums, the rows', are those of a product
// with ones.
enum class SumsOf : unsigned char { keys, queries, values };
template <class T, int width, SumsOf what> struct PairSums {
  using C = compute_t<T>;
  static constexpr bool to_keys = what == SumsOf::keys, values = what == SumsOf::values;
  static constexpr const char* name = values    ? "values of the mix"
                                      : to_keys ? "sums of pairs to keys"
                                                : "sums of pairs to queries";
  static constexpr int fragments = fragments_of<T, width>, of_warp = 16 * fragments;
  static constexpr int threads = head_threads, rows = of_warp * head_warps, columns = 64;
  static constexpr int tile_queries = to_keys ? columns : rows, tile_keys = to_keys ? rows : columns;
  static constexpr int numbers = columns * (rows + width);  // of a tile, and of the rows that are summed
  static constexpr std::size_t shared_bytes =
      shared_bytes_for<T>(2 * numbers) + (values ? shared_bytes_for<C>(2 * columns / 8 * rows) : 0);
  static constexpr float lowest_top = -1e20f;  // a row's first top

  HeadFacts<C> facts;
  MixRows group;
  PairBlocks<const T> pairs;
  HeadRows<const T> of;  // the rows that are summed: of queries, or of keys
  HeadRows<T> to;        // target, if a group has all that is summed; otherwise
  HeadRows<C> wide;      // the sums so far, added to unless
  bool is_first;         // of the groups
  Global<const std::int32_t> present;
  C scale;
  // For values alone:
  PairBlocks<const C, 1> bases = {};
  Global<C> norms = nullptr;  // [b h queries 2]: top and share
  PairDropout<C> dropout = {};

  using Sums = SummedRows<T, width, fragments>;
  using Lines = Registers<Number<C>, 2 * fragments>;
  struct Rows {
    Lines top;
    Registers<FragmentC<T>, fragments> sums;
    std::uint64_t staying;  // of each line, two blocks of eight keys
  };

  static index_t blocks(const MixRows& group, const HeadFacts<C>& facts) {
    return index_t(group.sequences) * facts.heads * blocks_for(to_keys ? facts.keys : group.rows, rows);
  }
  WHENCE_HD void operator()(Thread& t) const {
    const int blocks = ((to_keys ? facts.keys : group.rows) + rows - 1) / rows;
    int n = static_cast<int>(t.block());
    // The last rows, which may see the most keys, come first; and the first keys, which the most rows may see.
    const int block = to_keys ? n % blocks : blocks - 1 - n % blocks, h = (n /= blocks) % facts.heads,
              sequence = n / facts.heads, b = group.first_sequence + sequence;
    const Shared<T> tiles = t.shared<T>(2 * numbers);
    Shared<C> of_bases{};
    if constexpr (values) of_bases = t.shared<C>(2 * columns / 8 * rows);
    const int first = to_keys ? block * rows : group.first_query + block * rows;
    // Keys that are stored for a row of the group
    const auto stored = [&](int row) { return keys_of_strip(facts, present, b, group.first_query + row); };
    const auto is_seen = [&](int other) {
      const int key = to_keys ? first : other * columns;
      const auto sees = [&](int row) {
        const KeysOfStrip its = stored(row);
        return row < group.rows && key + tile_keys > its.begin && key < its.end;
      };
      bool any = false;
      for (int row = 0; row < tile_queries; row += mix_strip)
        any = any || sees((to_keys ? other * columns : block * rows) + row);
      return any;
    };
    const auto next = [&](int other) {
      const int end = to_keys ? group.rows / columns : (facts.keys + columns - 1) / columns;
      while (other < end && !is_seen(other)) ++other;
      return other < end ? other : -1;
    };
    const auto fetch = [&](int other, int stage) {
      const Shared<T> tile = tiles + stage * numbers;
      // Eight lanes copy eight keys of a block, which are adjacent.
      const int row = (to_keys ? other * columns : block * rows) + t.index() / 8 % (tile_queries / 8) * 8,
                key = (to_keys ? first : other * columns) + t.index() / tile_queries * 8;
      const KeysOfStrip keys = stored(row);
      const int r = t.index() / tile_queries * 8 + t.index() % 8,
                at = tile_at<T>(r, t.index() / 8 % (tile_queries / 8) * 8, tile_queries, row_phase(r));
      const index_t from = pairs.of(sequence, row, h) + index_t(key / 8) * pairs.step() + t.index() % 8 * 8;
      constexpr int at_once = threads / tile_queries;  // blocks of eight keys
      each<tile_keys / 8 / at_once>([&](auto k) {
        const int beyond = key + 8 * at_once * k;
        cp_async(t, tile, moved(at, 8 * at_once * k, 0, tile_queries), pairs.at, from + k * at_once * pairs.step(),
            beyond >= keys.begin && beyond < keys.end && row < group.rows);
      });
      fetch_rows<columns, width>(t, tile + columns * rows, of, of.of(b, h),
          to_keys ? group.first_query + other * columns : other * columns, to_keys ? facts.queries : facts.keys,
          facts.d, row_phase);
      if constexpr (values)
        each<columns / 8 * rows / 4 / threads>(
            [&](auto k) {  // four rows at a time; rows without keys have the lowest top
              const int nth = t.index() + k * threads, of_key = nth / (rows / 4), line = nth % (rows / 4) * 4,
                        own = block * rows + line;
              const KeysOfStrip seen = stored(own);
              const int at_key = other * columns + of_key * 8;
              const Shared<C> to_bases = of_bases + stage * (columns / 8 * rows);
              if (own < group.rows && at_key >= seen.begin && at_key < seen.end)
                cp_async<C, 4>(t, to_bases, of_key * rows + line, bases.at,
                    bases.of(sequence, own, h) + index_t(at_key / 8) * bases.step());
              else
                each<4>([&](auto e) { store(to_bases, of_key * rows + line + e, Number<C>(lowest_top)); });
            });
    };
    Sums sums;
    Rows of_rows;
    if constexpr (values) each<2 * fragments>([&](auto a) { of_rows.top[a] = lowest_top; });
    int other = next(0);
    if (other >= 0) fetch(other, 0);
    cp_async_commit(t);
    for (int stage = 0; other >= 0; stage = 1 - stage) {
      cp_async_wait<0>(t);
      t.sync();
      const int now = other;
      other = next(other + 1);
      if (other >= 0) fetch(other, 1 - stage);
      cp_async_commit(t);
      const Shared<C> base = of_bases + stage * (columns / 8 * rows);
      if constexpr (values) {
        raise_top(t, base, of_rows, sums);
        of_rows.staying = 0;
        WHENCE_ROLLED
        for (int k = 0; dropout && k < 4 * fragments; ++k) {
          const std::uint64_t bits = dropout.template staying<8>(facts, b * facts.heads + h,
              first + t.warp() * of_warp + k / 2 * 8 + t.lane() / 4, now * columns + (k % 2 * 4 + t.lane() % 4) * 8);
          of_rows.staying |= bits << (8 * k);
        }
      }
      add_tile(t, tiles + stage * numbers, base, of_rows, sums);
    }
    cp_async_wait<0>(t);
    t.sync();
    if constexpr (values) finish(t, b, h, first + t.warp() * of_warp, of_rows, sums);
    put(t, b, h, first + t.warp() * of_warp, tiles, sums);
  }

 private:
  // Raises the rows' tops above the tile's bases, which become 2^(base - top).
  WHENCE_HD void raise_top(Thread& t, Shared<C> base, Rows& of_rows, Sums& sums) const {
    const Lines before = of_rows.top;
    int risen = 0;
    each<2 * fragments>([&](auto a) {
      const int at = t.lane() % 4 * rows + t.warp() * of_warp + 8 * a + t.lane() / 4;
      const Number<C> own = load<C>(base, at), next = load<C>(base, at + 4 * rows);
      Number<C> most = max_nan(own, next);
      for (int mask = 1; mask <= 2; mask *= 2) most = max_nan(most, t.shuffle_xor(most, mask));
      if (!(most <= of_rows.top[a])) risen = 1;
      const Number<C> top = of_rows.top[a] = max_nan(of_rows.top[a], most);
      store(base, at, ex2_approx(own - top)), store(base, at + 4 * rows, ex2_approx(next - top));
    });
    for (int mask = 4; mask <= 16; mask *= 2) risen |= t.shuffle_xor(risen, mask);
    t.sync_warp();
    if (risen)  // of some row of the warp
      each<2 * fragments>([&](auto a) {
        const Number<C> fade = ex2_approx(before[a] - of_rows.top[a]);
        each<2>([&](auto e) { of_rows.sums[Nth<a / 2>{}][Nth<a % 2 * 2 + e>{}] *= fade; });
        scale_line(sums, a, fade);
      });
  }
  // Scales a factor of powers, adds it to the rows' sums, and drops pairs. step: 16 keys
  template <int m, int step>
  WHENCE_HD void scale_powers(Thread& t, Shared<C> base, Rows& of_rows, FragmentA<T>& left, Nth<m>, Nth<step>) const {
    each<4>([&](auto r) {
      constexpr Nth<2 * m + r % 2> a{};
      const int row = t.warp() * of_warp + 8 * a + t.lane() / 4;
      const Number<C> unit = load<C>(base, (2 * step + r / 2) * rows + row);
      left[r] = times_two<T>(left[r], pack_two<T>(unit, unit));
    });
    const Register<T> one = pack_two<T>(1.0f, 1.0f);
    mma<T>(t, of_rows.sums[Nth<m>{}], left, one, one);
    if (!dropout) return;
    each<4>([&](auto r) {
      constexpr int block = 2 * step + r / 2;
      const auto of_line = static_cast<std::uint32_t>(of_rows.staying >> (16 * (2 * m + r % 2)));
      const std::uint32_t bits = t.shuffle(of_line, t.lane() / 4 * 4 + block % 4) >> (block / 4 * 8 + t.lane() % 4 * 2);
      left[r] = times_two<T>(left[r], pack_two<T>(bits & 1 ? 1.0f : 0.0f, bits & 2 ? 1.0f : 0.0f));
    });
  }
  WHENCE_HD void add_tile(Thread& t, Shared<T> tile, Shared<C> base, Rows& of_rows, Sums& sums) const {
    const int matrix = t.lane() / 8, in_matrix = t.lane() % 8, own = t.warp() * of_warp + matrix % 2 * 8;
    // Rows of the tile are keys; those of the transposed left factor are queries, its columns.
    const int row = to_keys ? own + in_matrix : matrix / 2 * 8 + in_matrix, column = to_keys ? matrix / 2 * 8 : own;
    const int at = tile_at<T>(row, column, tile_queries, row_phase(row));
    const Place place = place_in_transposed<T>(t.lane());
    const int at_right = tile_at<T>(place.row, place.column, width, row_phase(place.row));
    each<columns / depth<T>>([&](auto step) {
      Registers<Factor<T>, fragments> left;
      each<fragments>([&](auto m) {
        if constexpr (to_keys)
          left[m].large = ldmatrix(t, tile, moved(at, 16 * m, depth<T> * step, tile_queries));
        else
          left[m].large = ldmatrix_trans(t, tile, moved(at, depth<T> * step, 16 * m, tile_queries));
        if constexpr (values) scale_powers(t, base, of_rows, left[m].large, m, step);
      });
      add_step<T, width>(t, tile + columns * rows, at_right, depth<T> * step, left, sums);
    });
  }
  WHENCE_HD void finish(Thread& t, int b, int h, int first, Rows& of_rows, Sums& sums) const {
    each<2 * fragments>([&](auto a) {
      const Number<C> all = of_rows.sums[Nth<a / 2>{}][Nth<a % 2 * 2>{}];
      const Number<C> share = all > 0.0f ? rcp_approx(all) : Number<C>(0.0f);  // 0 for a row that sees nothing
      scale_line(sums, a, dropout ? share * dropout.factor : share);
      const int row = first + 8 * a + t.lane() / 4;
      if (t.lane() % 4 > 0 || row >= facts.queries) return;
      const index_t norm = (index_t(b * facts.heads + h) * facts.queries + row) * 2;
      store(norms, norm, of_rows.top[a]), store(norms, norm + 1, share);
    });
  }
  WHENCE_HD void put(Thread& t, int b, int h, int row, Shared<T> tile, Sums& sums) const {
    const int end = to_keys ? facts.keys : smaller(facts.queries, group.first_query + group.rows);
    if constexpr (!values) each<2 * fragments>([&](auto a) { scale_line(sums, a, Number<C>(scale)); });
    if (to.at) return store_rows<T, width>(t, tile, sums, to, to.of(b, h), row, end, facts.d);
    const Global<C> head = wide.of(b, h);
    each<2 * fragments>([&](auto a) {
      const int line = row + 8 * a + t.lane() / 4;
      if (line >= end) return;
      each<width / 8>([&](auto c) {
        each<2>([&](auto e) {
          const int column = 8 * c + t.lane() % 4 * 2 + e;
          if (column >= facts.d) return;
          const index_t at = line * wide.row + column;
          const Number<C> sum = sums[Nth<a / 2>{}][c][Nth<a % 2 * 2 + e>{}];
          store(head, at, is_first ? sum : load<C>(head, at) + sum);
        });
      });
    });
  }
};

}  // namespace whence::gpu
