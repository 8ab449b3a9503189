// Attention of one head: y = softmax(q k' / sqrt d) v, [queries, d] [keys, d] [keys, d] -> [queries, d]. From three kernels
// that hand each other a number for every pair to one that never writes a pair down, and then to tensor cores.
#include <cmath>

#include "cuda/ladder/ladder.h"
#include "cuda/vocabulary/rows.h"
#include "cuda/vocabulary/tensor_cores.h"
#include "tensor/kernels.h"
#include "tensor/random.h"
#include "tensor/raw.h"

namespace whence::gpu::ladder {
namespace {

constexpr int warps = 4, widest = 64;  // the largest d of rungs 3 and 4

struct Operands {
  Global<const float> q, k, v;
  Global<float> y;
  index_t queries, keys, d;
  float scale;  // 1 / sqrt d
};

// 1. Three kernels: a thread per pair, a warp per row, a thread per result. All pairs travel through memory, and each
// number of q, k and v once for every pair that it is in.
struct Scores {
  static constexpr const char* name = "scores";
  static constexpr int threads = 256;
  Operands of;
  Global<float> s;
  WHENCE_HD void operator()(Thread& t) const {
    const index_t i = t.block() * threads + t.index(), row = i / of.keys, key = i % of.keys;
    if (row >= of.queries) return;
    Number<float> sum = 0.0f;
    for (index_t c = 0; c < of.d; ++c) sum += load<float>(of.q, row * of.d + c) * load<float>(of.k, key * of.d + c);
    store(s, i, sum * of.scale);
  }
};
struct SoftmaxRows {
  static constexpr const char* name = "softmax of rows";
  static constexpr int threads = 32 * warps;
  Operands of;
  Global<float> s;
  WHENCE_HD void operator()(Thread& t) const {
    const index_t row = t.block() * warps + t.warp(), begin = row * of.keys;
    if (row >= of.queries) return;
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
  Operands of;
  Global<const float> p;
  WHENCE_HD void operator()(Thread& t) const {
    const index_t i = t.block() * threads + t.index(), row = i / of.d, c = i % of.d;
    if (row >= of.queries) return;
    Number<float> sum = 0.0f;
    for (index_t j = 0; j < of.keys; ++j) sum += load<float>(p, row * of.keys + j) * load<float>(of.v, j * of.d + c);
    store(of.y, i, sum);
  }
};

// 2. One kernel, a warp per query, which keeps its query and its row of pairs in shared memory: only k and v are still
// read for every pair. The row must fit there.
struct WarpPerQuery {
  static constexpr const char* name = "a warp per query";
  static constexpr int threads = 32 * warps, queries = warps;
  static std::size_t shared_bytes(const Operands& of) {
    return shared_bytes_for<float>(static_cast<std::size_t>(warps * (of.keys + of.d)));
  }
  Operands of;
  WHENCE_HD void operator()(Thread& t) const {
    const int keys = static_cast<int>(of.keys), d = static_cast<int>(of.d);
    const Shared<float> own = t.shared<float>(warps * (keys + d)) + t.warp() * (keys + d);  // the row, then the query
    const index_t row = t.block() * warps + t.warp();
    if (row >= of.queries) return;
    for (int c = t.lane(); c < d; c += 32) store(own, keys + c, load<float>(of.q, row * d + c) * of.scale);
    t.sync_warp();
    Number<float> top = lowest<float>(), sum = 0.0f;
    for (int j = t.lane(); j < keys; j += 32) {
      Number<float> score = 0.0f;
      for (int c = 0; c < d; ++c) score += load<float>(own, keys + c) * load<float>(of.k, j * of.d + c);
      store(own, j, score);
      top = Larger{}(top, score);
    }
    top = warp_reduce(t, top, Larger{});
    for (int j = t.lane(); j < keys; j += 32) {
      const Number<float> power = math::exp(load<float>(own, j) - top);
      store(own, j, power);
      sum += power;
    }
    sum = warp_reduce(t, sum, Plus{});
    t.sync_warp();
    for (int c = t.lane(); c < d; c += 32) {
      Number<float> total = 0.0f;
      for (int j = 0; j < keys; ++j) total += load<float>(own, j) * load<float>(of.v, j * of.d + c);
      store(of.y, row * d + c, total / sum);
    }
  }
};

// The running softmax of a row whose keys come tile by tile: the largest score so far, and the sum of powers below it. When
// a larger one comes, what was added up until then shrinks by `factor`. A quad of lanes shares a row.
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

// 3. Tiles: a block of 32 queries brings 32 keys and values at a time into shared memory, where all its queries use
// them: a thirty-second of the bytes. No row of pairs is whole at any time.
struct Tiles {
  static constexpr const char* name = "tiles, running softmax";
  static constexpr int threads = 32 * warps, queries = 32, keys = 32, pitch = widest + 1, own_keys = keys / 4;
  static std::size_t shared_bytes(const Operands&) {
    return 3 * shared_bytes_for<float>(queries * pitch) + shared_bytes_for<float>(queries * (keys + 1));
  }
  Operands of;
  WHENCE_HD void bring(Thread& t, Shared<float> to, Global<const float> from, index_t first, index_t rows) const {
    for (int row = t.index() / 32; row < queries; row += warps)
      for (int c = t.lane(); c < widest; c += 32) {
        const bool there = first + row < rows && c < of.d;
        store(to, row * pitch + c, there ? load<float>(from, (first + row) * of.d + c) : Number<float>(0.0f));
      }
  }
  WHENCE_HD void operator()(Thread& t) const {
    const Shared<float> q = t.shared<float>(queries * pitch), k = t.shared<float>(keys * pitch),
                        v = t.shared<float>(keys * pitch), p = t.shared<float>(queries * (keys + 1));
    const int row = t.index() / 4, part = t.index() % 4, d = static_cast<int>(of.d);
    const index_t first_query = t.block() * queries;
    bring(t, q, of.q, first_query, of.queries);
    RunningRow running;
    Registers<Number<float>, widest / 4> totals;  // of columns part, part + 4, ...
    for (index_t first = 0; first < of.keys; first += keys) {
      t.sync();  // nobody uses the tiles before
      bring(t, k, of.k, first, of.keys), bring(t, v, of.v, first, of.keys);
      t.sync();
      Number<float> score[own_keys], largest = lowest<float>();
      for (int j = 0; j < own_keys; ++j) {
        score[j] = 0.0f;
        for (int c = 0; c < d; ++c)
          score[j] += load<float>(q, row * pitch + c) * load<float>(k, (part + 4 * j) * pitch + c);
        score[j] = first + part + 4 * j < of.keys ? score[j] * of.scale : lowest<float>();
        largest = Larger{}(largest, score[j]);
      }
      const Number<float> factor = running.raise(t, largest);
      for (int j = 0; j < own_keys; ++j) {
        const Number<float> power = math::exp(score[j] - running.top);
        store(p, row * (keys + 1) + part + 4 * j, power);
        running.sum += power;
      }
      t.sync_warp();
      each<widest / 4>([&](auto c) {  // so that totals are registers
        if (part + 4 * c >= d) return;
        Number<float> total = totals[c] * factor;
        for (int j = 0; j < keys; ++j)
          total += load<float>(p, row * (keys + 1) + j) * load<float>(v, j * pitch + part + 4 * c);
        totals[c] = total;
      });
    }
    const Number<float> sum = running.whole(t);
    each<widest / 4>([&](auto c) {
      if (first_query + row < of.queries && part + 4 * c < d)
        store(of.y, (first_query + row) * of.d + part + 4 * c, totals[c] / sum);
    });
  }
};

// 4. Tensor cores: a warp of 16 queries. Each factor is the sum of two numbers of tf32, so that three products make one of
// f32's precision. Keys lie in a lane's order (fragments.h): a quad of lanes has a row, and the pattern is the next product's
// factor where it is, in registers. They are 200 a thread, with which two blocks live on a multiprocessor.
struct TensorCores {
  static constexpr const char* name = "tensor cores";
  static constexpr int threads = 32 * warps, queries = 16 * warps, keys = 32;
  static std::size_t shared_bytes(const Operands&) { return shared_bytes_for<float>((queries + 2 * keys) * widest); }
  using Raw = Registers<Register<float>, 4>;
  struct Halves {
    Raw big, small;
  };
  Operands of;  // REQUIRES: d is a multiple of 4

  static WHENCE_HD Halves halves_of(const Raw& floats) {
    Halves halves;
    each<4>([&](auto r) {
      const Number<float> x = from_tf32(floats[r]);
      halves.big[r] = to_tf32(x);
      halves.small[r] = to_tf32(x - from_tf32(halves.big[r]));
    });
    return halves;
  }
  // sums += a b, where b is registers `first` and the one behind.
  template <int first>
  static WHENCE_HD void multiply(Thread& t, FragmentC<float>& sums, const Halves& a, const Halves& b, Nth<first>) {
    constexpr Nth<first> upper;
    constexpr Nth<first + 1> lower;
    mma<float>(t, sums, a.small, b.big[upper], b.big[lower]);
    mma<float>(t, sums, a.big, b.small[upper], b.small[lower]);
    mma<float>(t, sums, a.big, b.big[upper], b.big[lower]);
  }
  // Rows from `first` on, in packs of 16 bytes; 0 behind the last row and column.
  template <int count, class PhaseOf>
  WHENCE_HD void bring(
      Thread& t, Shared<float> to, Global<const float> from, index_t first, index_t rows, const PhaseOf& phase) const {
    for (int pack = t.index(); pack < count * widest / 4; pack += threads) {
      const int row = pack / (widest / 4), column = pack % (widest / 4) * 4;
      cp_async(t, to, tile_at<float>(row, column, widest, phase(row)), from, (first + row) * of.d + column,
          first + row < rows && column < of.d);
    }
  }
  WHENCE_HD void operator()(Thread& t) const {
    const Shared<float> q = t.shared<float>(queries * widest), k = t.shared<float>(keys * widest),
                        v = t.shared<float>(keys * widest);
    const auto of_key = [](int key) { return key_phase<keys>(key); };
    const int lane = t.lane(), matrix = lane / 8, line = lane % 8, row = t.warp() * 16 + matrix % 2 * 8 + line;
    const index_t first_query = t.block() * queries;
    bring<queries>(t, q, of.q, first_query, of.queries, row_phase);
    RunningRow running[2];  // rows lane / 4 and 8 below
    Registers<FragmentC<float>, widest / 8> totals;
    for (index_t first = 0; first < of.keys; first += keys) {
      t.sync();
      bring<keys>(t, k, of.k, first, of.keys, of_key), bring<keys>(t, v, of.v, first, of.keys, of_key);
      cp_async_commit(t);
      cp_async_wait<0>(t);
      t.sync();
      Registers<FragmentC<float>, keys / 8> scores;
      each<widest / 16>([&](auto h) {  // 16 columns: two products deep
        const int column = 16 * h + matrix / 2 * 4;
        const Halves left = halves_of(ldmatrix(t, q, tile_at<float>(row, column, widest, row_phase(row)))),
                     right = halves_of(ldmatrix(t, q, tile_at<float>(row, column + 8, widest, row_phase(row))));
        each<keys / 8>([&](auto c) {
          const int key = key_of_column<keys>(8 * c + line);
          const Halves b = halves_of(ldmatrix(t, k, tile_at<float>(key, 16 * h + 4 * matrix, widest, of_key(key))));
          multiply(t, scores[c], left, b, Nth<0>{});
          multiply(t, scores[c], right, b, Nth<2>{});
        });
      });
      each<2>([&](auto half) {
        Number<float> largest = lowest<float>();
        each<keys / 8>([&](auto c) {
          each<2>([&](auto e) {
            Number<float>& score = scores[c][Nth<2 * half + e>{}];
            const index_t key = first + key_of_column<keys>(8 * c + c_place(lane, e).column);
            score = key < of.keys ? score * of.scale : lowest<float>();
            largest = Larger{}(largest, score);
          });
        });
        const Number<float> factor = running[half].raise(t, largest);
        each<keys / 8>([&](auto c) {
          each<2>([&](auto e) {
            Number<float>& score = scores[c][Nth<2 * half + e>{}];
            score = math::exp(score - running[half].top);
            running[half].sum += score;
          });
        });
        each<widest / 8>([&](auto c) { each<2>([&](auto e) { totals[c][Nth<2 * half + e>{}] *= factor; }); });
      });
      each<keys / 8>([&](auto c) {
        const FragmentC<float>& s = scores[c];
        Raw pattern;
        each<4>([&](auto r) {  // its columns 2 m and 2 m + 1 are the factor's m and m + 4
          pattern[r] = bits_of(s[Nth<r % 2 * 2 + r / 2>{}]);
        });
        const Halves p = halves_of(pattern);
        each<widest / 16>([&](auto j) {
          Raw values;
          each<4>([&](auto r) {
            const int key = key_of_column<keys>(column_of_depth<float>(8 * c + b_place<float>(lane, r % 2, 0).row));
            const int column = 16 * j + r / 2 * 8 + lane / 4;
            values[r] = bits_of(load<float>(v, tile_at<float>(key, column, widest, of_key(key))));
          });
          const Halves b = halves_of(values);
          multiply(t, totals[Nth<2 * j>{}], p, b, Nth<0>{});
          multiply(t, totals[Nth<2 * j + 1>{}], p, b, Nth<2>{});
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
  static WHENCE_HD Register<float> bits_of(Number<float> x) { return std::bit_cast<std::uint32_t>(plain(x)); }
};

Operands operands(const Tensors& in, const Tensor& y) {
  const index_t d = in[0].size(1);
  return {global<const float>(in[0]), global<const float>(in[1]), global<const float>(in[2]), global<float>(y),
      in[0].size(0), in[1].size(0), d, 1 / std::sqrt(static_cast<float>(d))};
}

void three_kernels(const Tensors& in, const Tensor& y) {
  const Operands of = operands(in, y);
  const Tensor pairs = Tensor::empty({of.queries, of.keys}, DType::f32, y.device());
  launch_kernel(Scores{of, global<float>(pairs)}, {.blocks = blocks_for(pairs.numel(), Scores::threads)});
  launch_kernel(SoftmaxRows{of, global<float>(pairs)}, {.blocks = blocks_for(of.queries, warps)});
  launch_kernel(
      WeighedValues{of, global<const float>(pairs)}, {.blocks = blocks_for(y.numel(), WeighedValues::threads)});
}

template <class Body> Rung rung(Count fewer, bool packs = false) {
  return {Body::name, fewer, packs, [](const Tensors& in, const Tensor& y) {
            const Operands of = operands(in, y);
            launch_kernel(
                Body{of}, {.blocks = blocks_for(of.queries, Body::queries), .shared_bytes = Body::shared_bytes(of)});
          }};
}

}  // namespace

Ladder attention() {
  return {"attention", "y = softmax(q k' / sqrt d) v   [queries, keys, d]", {64, 128, 64}, {4096, 4096, 64},
      [](const Shape& sizes) {
        return Tensors{Tensor::normal({sizes[0], sizes[2]}, 0, 1, Stream(1, "q")),
            Tensor::normal({sizes[1], sizes[2]}, 0, 1, Stream(1, "k")),
            Tensor::normal({sizes[1], sizes[2]}, 0, 1, Stream(1, "v"))};
      },
      [](const Tensors& in) {
        const double scale = 1 / std::sqrt(static_cast<double>(in[0].size(1)));
        const Tensor pairs = raw::matmul(in[0], raw::transpose(in[1]), scale), pattern = Tensor::empty(pairs.shape());
        kernels(Device::cpu()).softmax(pairs, Tensor(), pattern);
        return raw::matmul(pattern, in[2]);
      },
      {{"three kernels", {}, false, three_kernels}, rung<WarpPerQuery>(Count::bytes), rung<Tiles>(Count::bytes),
          rung<TensorCores>(Count::arithmetic, true)}};
}

}  // namespace whence::gpu::ladder
