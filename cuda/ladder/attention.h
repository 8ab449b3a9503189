// Rungs 1 and 4 to 6 of attention (attention.cu), which CoPE's and DAPE's ladders (*_attention.cu) build on: three
// kernels that exchange all pairs through memory, and tiles on tensor cores.
#pragma once

#include <cmath>

#include "cuda/ladder/ladder.h"
#include "cuda/vocabulary/rows.h"
#include "cuda/vocabulary/tensor_cores.h"
#include "tensor/math.h"

namespace whence::gpu::ladder {

inline constexpr int warps = 4, widest = 64;                     // the largest d of tiles
inline constexpr int tile_queries = 16 * warps, tile_keys = 32;  // on tensor cores

struct Arguments {
  Global<const float> q, k, v;
  Global<float> y;
  index_t queries, keys, d, rows;  // rows: queries of all heads; the three kernels take many heads
  float scale;                     // 1 / sqrt d
  Global<const float> z;           // [queries, entries], for CoPE alone
  index_t entries;
};

// 1. Three kernels: a thread per pair, a warp per row, a thread per result. All pairs pass through memory, and each
// number of q, k and v once for every pair that it is in.
struct Scores {
  static constexpr const char* name = "scores";
  static constexpr int threads = 256;
  Arguments of;
  Global<float> s;
  WHENCE_HD void operator()(Thread& t) const {
    const index_t i = t.block() * threads + t.index(), row = i / of.keys,
                  key = row / of.queries * of.keys + i % of.keys;
    if (row >= of.rows) return;
    Number<float> sum = 0.0f;
    for (index_t c = 0; c < of.d; ++c) sum += load<float>(of.q, row * of.d + c) * load<float>(of.k, key * of.d + c);
    store(s, i, sum * of.scale);
  }
};
struct SoftmaxRows {
  static constexpr const char* name = "softmax of rows";
  static constexpr int threads = 32 * warps;
  Arguments of;
  Global<float> s;
  WHENCE_HD void operator()(Thread& t) const {
    const index_t row = t.block() * warps + t.warp(), begin = row * of.keys;
    if (row >= of.rows) return;
    Number<float> top = lowest<float>(), sum = 0.0f;
    for (index_t j = t.lane(); j < of.keys; j += 32) top = Larger{}(top, load<float>(s, begin + j));
    top = warp_reduce(t, top, Larger{});
    for (index_t j = t.lane(); j < of.keys; j += 32) sum += math::exp(load<float>(s, begin + j) - top);
    sum = warp_reduce(t, sum, Plus{});
    for (index_t j = t.lane(); j < of.keys; j += 32)
      store(s, begin + j, math::exp(load<float>(s, begin + j) - top) / sum);
  }
};
struct WeighedValues {
  static constexpr const char* name = "weighed values";
  static constexpr int threads = 256;
  Arguments of;
  Global<const float> p;
  WHENCE_HD void operator()(Thread& t) const {
    const index_t i = t.block() * threads + t.index(), row = i / of.d, c = i % of.d;
    if (row >= of.rows) return;
    const Global<const float> pairs = p + row * of.keys, v = of.v + row / of.queries * of.keys * of.d;
    Number<float> sum = 0.0f;
    for (index_t j = 0; j < of.keys; ++j) sum += load<float>(pairs, j) * load<float>(v, j * of.d + c);
    store(of.y, i, sum);
  }
};

// The running softmax of a row whose keys come tile by tile: the largest score so far, and the sum of powers below it.
// When a larger score comes, earlier sums are multiplied by `factor`. A quad of lanes shares a row.
struct RunningRow {
  Number<float> top = lowest<float>(), sum = 0.0f;

  WHENCE_HD Number<float> raise(Thread& t, Number<float> largest) {
    for (int mask = 1; mask <= 2; mask *= 2) largest = Larger{}(largest, t.shuffle_xor(largest, mask));
    const Number<float> before = top;
    top = Larger{}(top, largest);
    const Number<float> factor = math::exp(before - top);
    sum = sum * factor;  // each lane has the sum of its own keys
    return factor;
  }
  WHENCE_HD Number<float> whole(Thread& t) const {
    Number<float> all = sum;
    for (int mask = 1; mask <= 2; mask *= 2) all += t.shuffle_xor(all, mask);
    return all;
  }
};

// The logits of plain attention: the scores. A tile's columns are its keys in order.
struct ScoresAlone {
  static constexpr const char* name = "copies ahead";
  static constexpr bool lanes_order = false;
  static std::size_t shared_bytes(const Arguments&) { return 0; }
  WHENCE_HD ScoresAlone(Thread&, const Arguments&) {}
  template <class Scores> WHENCE_HD void add(Thread&, Scores&) {}
};

// 4. Tensor cores: a warp of 16 queries. Each factor is the sum of two numbers of tf32, so that three products make one
// of f32's precision. A quad of lanes has a row of sums. To become a factor, the pattern goes through shared memory.
// Tiles come from the last key down, as CoPE's sums need them.
// 5. `held`: the pattern stays in registers, as the factor of values that are read in another order (column_of_depth);
// queries stay there too.
// 6. `ahead`: the next tile is copied during the work on this one. With memory for two tiles, one barrier ensures both
// that a tile has arrived and that the one before is no longer used.
template <int rung, class Logits = ScoresAlone> struct TensorCores {
  static constexpr bool held = rung >= 5, ahead = rung >= 6;
  static constexpr const char* name = ahead ? Logits::name : held ? "pattern stays in registers" : "tensor cores";
  static constexpr int threads = 32 * warps, queries = tile_queries, keys = tile_keys, stages = ahead ? 2 : 1;
  static constexpr int of_stage = 2 * keys * widest, of_pattern = held ? 0 : queries * keys;
  static std::size_t shared_bytes(const Arguments& of) {
    return shared_bytes_for<float>(queries * widest + stages * of_stage + of_pattern) + Logits::shared_bytes(of);
  }
  using Raw = Registers<Register<float>, 4>;
  struct Halves {
    Raw big, small;
  };
  // The register of sums that is register r of the next left factor, whose columns m and m + 4 are their 2 m and 2 m +
  // 1.
  template <int r> using HandedOn = Nth<r % 2 * 2 + r / 2>;
  Arguments of;  // REQUIRES: d is a multiple of 4

  static WHENCE_HD Register<float> bits_of(Number<float> x) { return std::bit_cast<std::uint32_t>(plain(x)); }
  static WHENCE_HD Halves halves_of(const Raw& floats) {
    Halves halves;
    each<4>([&](auto r) {
      const Number<float> x = from_tf32(floats[r]);
      halves.big[r] = to_tf32(x);
      halves.small[r] = to_tf32(x - from_tf32(halves.big[r]));
    });
    return halves;
  }
  // sums += a b, where b is in registers `first` and `first` + 1.
  template <int first>
  static WHENCE_HD void multiply(Thread& t, FragmentC<float>& sums, const Halves& a, const Halves& b, Nth<first>) {
    constexpr Nth<first> upper;
    constexpr Nth<first + 1> lower;
    mma<float>(t, sums, a.small, b.big[upper], b.big[lower]);
    mma<float>(t, sums, a.big, b.small[upper], b.small[lower]);
    mma<float>(t, sums, a.big, b.big[upper], b.big[lower]);
  }
  static WHENCE_HD constexpr int key_of(int column) {
    return Logits::lanes_order ? key_of_column<keys>(column) : column;
  }
  static WHENCE_HD constexpr int phase_of(int key) {
    return Logits::lanes_order ? key_phase<keys>(key) : row_phase(key);
  }
  // Rows from `first` on, in packs of 16 bytes; 0 after the last row and column.
  template <int count, class Phase>
  WHENCE_HD void bring(
      Thread& t, Shared<float> to, Global<const float> from, index_t first, index_t rows, const Phase& phase) const {
    for (int pack = t.index(); pack < count * widest / 4; pack += threads) {
      const int row = pack / (widest / 4), column = pack % (widest / 4) * 4;
      cp_async(t, to, tile_at<float>(row, column, widest, phase(row)), from, (first + row) * of.d + column,
          first + row < rows && column < of.d);
    }
  }
  WHENCE_HD void operator()(Thread& t) const {
    const Shared<float> q = t.shared<float>(queries * widest), tiles = t.shared<float>(stages * of_stage),
                        p = t.shared<float>(of_pattern);
    const int lane = t.lane(), matrix = lane / 8, line = lane % 8, row = t.warp() * 16 + matrix % 2 * 8 + line;
    const index_t first_query = t.block() * queries, last_tile = (of.keys - 1) / keys * keys;
    const auto stage = [&](index_t first) { return tiles + static_cast<int>(first / keys % stages) * of_stage; };
    const auto bring_tile = [&](index_t first) {
      bring<keys>(t, stage(first), of.k, first, of.keys, phase_of);
      bring<keys>(t, stage(first) + keys * widest, of.v, first, of.keys, phase_of);
      cp_async_commit(t);
    };
    const auto left_factor = [&](Shared<float> from, int column, int width) {
      return ldmatrix(t, from, tile_at<float>(row, column + matrix / 2 * 4, width, row_phase(row)));
    };
    Logits logits(t, of);
    Registers<Raw, widest / 8> own_queries;
    RunningRow running[2];  // rows lane / 4 and 8 below
    Registers<FragmentC<float>, widest / 8> totals;
    bring<queries>(t, q, of.q, first_query, of.queries, row_phase);
    if constexpr (ahead) bring_tile(last_tile);
    for (index_t first = last_tile; first >= 0; first -= keys) {
      if constexpr (!ahead) t.sync(), bring_tile(first);  // the tile before is no longer used
      cp_async_wait<0>(t);
      t.sync();
      if (held && first == last_tile) each<widest / 8>([&](auto n) { own_queries[n] = left_factor(q, 8 * n, widest); });
      if (ahead && first > 0) bring_tile(first - keys);
      const Shared<float> k = stage(first), v = k + keys * widest;

      Registers<FragmentC<float>, keys / 8> scores;
      each<widest / 16>([&](auto h) {  // 16 columns: two products deep
        const auto part = [&](auto n) { return halves_of(held ? own_queries[n] : left_factor(q, 8 * n, widest)); };
        const Halves left = part(Nth<2 * h>{}), right = part(Nth<2 * h + 1>{});
        each<keys / 8>([&](auto c) {
          const int key = key_of(8 * c + line);
          const Halves b = halves_of(ldmatrix(t, k, tile_at<float>(key, 16 * h + 4 * matrix, widest, phase_of(key))));
          multiply(t, scores[c], left, b, Nth<0>{});
          multiply(t, scores[c], right, b, Nth<2>{});
        });
      });
      each<keys / 8>([&](auto c) {
        each<4>([&](auto r) {
          const bool there = first + key_of(8 * c + c_place(lane, r).column) < of.keys;
          scores[c][r] = there ? scores[c][r] * of.scale : lowest<float>();
        });
      });
      logits.add(t, scores);

      each<2>([&](auto half) {
        Number<float> largest = lowest<float>();
        each<keys / 8>(
            [&](auto c) { each<2>([&](auto e) { largest = Larger{}(largest, scores[c][Nth<2 * half + e>{}]); }); });
        const Number<float> factor = running[half].raise(t, largest);
        each<keys / 8>([&](auto c) {
          each<2>([&](auto e) {
            Number<float>& score = scores[c][Nth<2 * half + e>{}];
            score = math::exp(score - running[half].top);
            running[half].sum += score;
          });
          if constexpr (!held) {
            const Pack<float, 2> two{{plain(scores[c][Nth<2 * half>{}]), plain(scores[c][Nth<2 * half + 1>{}])}};
            const Place at = c_place(lane, 2 * half);
            store_pack<2>(p, tile_at<float>(t.warp() * 16 + at.row, 8 * c + at.column, keys, row_phase(at.row)), two);
          }
        });
        each<widest / 8>([&](auto c) { each<2>([&](auto e) { totals[c][Nth<2 * half + e>{}] *= factor; }); });
      });
      if constexpr (!held) t.sync_warp();
      each<keys / 8>([&](auto c) {
        Raw pattern;
        if constexpr (held)
          each<4>([&](auto r) { pattern[r] = bits_of(scores[c][HandedOn<r>{}]); });
        else
          pattern = left_factor(p, 8 * c, keys);
        const Halves a = halves_of(pattern);
        each<widest / 16>([&](auto j) {
          Raw values;
          each<4>([&](auto r) {
            const int k_th = 8 * c + b_place<float>(lane, r % 2, 0).row, column = 16 * j + r / 2 * 8 + lane / 4;
            const int key = key_of(held ? column_of_depth<float>(k_th) : k_th);
            values[r] = bits_of(load<float>(v, tile_at<float>(key, column, widest, phase_of(key))));
          });
          const Halves b = halves_of(values);
          multiply(t, totals[Nth<2 * j>{}], a, b, Nth<0>{});
          multiply(t, totals[Nth<2 * j + 1>{}], a, b, Nth<2>{});
        });
      });
    }
    each<2>([&](auto half) {
      const Number<float> scale = 1.0f / running[half].whole(t);
      const index_t query = first_query + t.warp() * 16 + c_place(lane, 2 * half).row;
      each<widest / 8>([&](auto c) {
        each<2>([&](auto e) {
          const int column = 8 * c + c_place(lane, e).column;
          if (query < of.queries && column < of.d)
            store(of.y, query * of.d + column, totals[c][Nth<2 * half + e>{}] * scale);
        });
      });
    });
  }
};

// Makes the arguments from q, k, v and, for CoPE, z.
inline Arguments arguments(const Tensors& in, const Tensor& y) {
  const index_t d = in[0].size(-1);
  const Tensor z = in.size() > 3 ? in[3] : Tensor();
  return {global<const float>(in[0]), global<const float>(in[1]), global<const float>(in[2]), global<float>(y),
      in[0].size(-2), in[1].size(-2), d, in[0].numel() / d, 1 / std::sqrt(static_cast<float>(d)),
      global<const float>(z), z.defined() ? z.size(1) : 0};
}

// Rung 1. to_logits(of, pairs) turns scores into the logits of the softmax.
template <class ToLogits> void all_pairs(const Tensors& in, const Tensor& y, const ToLogits& to_logits) {
  const Arguments of = arguments(in, y);
  const Tensor pairs = Tensor::empty({of.rows, of.keys}, DType::f32, y.device());
  launch_kernel(Scores{of, global<float>(pairs)}, {.blocks = blocks_for(pairs.numel(), Scores::threads)});
  to_logits(pairs);
  launch_kernel(SoftmaxRows{of, global<float>(pairs)}, {.blocks = blocks_for(of.rows, warps)});
  launch_kernel(
      WeighedValues{of, global<const float>(pairs)}, {.blocks = blocks_for(y.numel(), WeighedValues::threads)});
}

template <class Body> Rung rung(Count fewer, bool packs = false) {
  return {Body::name, fewer, packs, [](const Tensors& in, const Tensor& y) {
            const Arguments of = arguments(in, y);
            launch_kernel(
                Body{of}, {.blocks = blocks_for(of.queries, Body::queries), .shared_bytes = Body::shared_bytes(of)});
          }};
}

}  // namespace whence::gpu::ladder
