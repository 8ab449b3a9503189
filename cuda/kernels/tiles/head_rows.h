// Parts that the kernels of attention in tiles share: rows of heads in memory, which keys are present, and copies of rows and of
// tables into shared memory, ahead of their use.
#pragma once

#include <numbers>

#include "cuda/vocabulary/launch_kernel.h"
#include "cuda/vocabulary/packs.h"
#include "cuda/vocabulary/rows.h"
#include "cuda/vocabulary/tensor_cores.h"

namespace whence::gpu {

inline constexpr float log2e = std::numbers::log2e_v<float>, ln2 = std::numbers::ln2_v<float>;
inline constexpr int head_threads = 128, head_warps = head_threads / 32;  // of a block

// Rows of an operand or of a result, [b h|g t d]: a row is together, and that of an operand begins at 16 bytes.
template <class T> struct HeadRows {
  Global<T> at = nullptr;
  index_t batch = 0, head = 0, row = 0;  // strides
  int group = 1;                         // heads of queries that share a head of these
  WHENCE_HD index_t of(index_t b, index_t h) const { return b * batch + h / group * head; }
};

struct HeadFacts {
  int heads, queries, keys, d;
  int first_row, before, after;  // as in Band (tensor/pairs.h)
  int distances, lowest;         // of the table: row 0 is `lowest` steps
  float scale, scale_of_powers;  // of q.k, and times log2(e): logits are in base 2
};

WHENCE_HD inline int larger(int a, int b) { return a > b ? a : b; }
WHENCE_HD inline int smaller(int a, int b) { return a < b ? a : b; }

// The first key that is present, and the one behind the last.
struct PresentRange {
  static constexpr const char* name = "present range";
  static constexpr int threads = 32;
  Global<const bool> present;  // [b keys]
  Global<std::int32_t> range;  // [b 2]
  int keys;
  WHENCE_HD void operator()(Thread& t) const {
    int first = keys, end = 0;
    for (int j = t.lane(); j < keys; j += 32)
      if (present[t.block() * keys + j]) first = smaller(first, j), end = j + 1;
    for (int mask = 16; mask > 0; mask /= 2) {
      first = smaller(first, t.shuffle_xor(first, mask));
      end = larger(end, t.shuffle_xor(end, mask));
    }
    if (t.lane() > 0) return;
    range[t.block() * 2] = first, range[t.block() * 2 + 1] = end;
  }
};

// Rows [first, first + count) of a head, of which those before `end` are there, as a tile [count, width]; 0 elsewhere.
// phase(row) says how the packs of a row are exchanged (fragments.h).
template <int count, int width, class T, class Phase>
WHENCE_HD void fetch_rows(Thread& t, Shared<T> to, const HeadRows<const T>& from, index_t b, index_t h, int first,
    int end, int d, const Phase& phase) {
  constexpr int pack = matrix_row<T>, packs = width / pack;
  const index_t head = from.of(b, h);
  for (int n = t.index(); n < count * packs; n += head_threads) {
    const int row = n / packs, column = n % packs * pack;
    cp_async(t, to, tile_at<T>(row, column, width, phase(row)), from.at, head + (first + row) * from.row + column,
        first + row < end && column < d);
  }
}

// Numbers of the table for distances lowest, lowest + 1, ... in base 2; 0 beyond it.
template <int count>
WHENCE_HD void fetch_distances(
    Thread& t, Shared<float> to, Global<const float> table, const HeadFacts& facts, index_t h, int lowest) {
  for (int n = t.index(); n < count; n += head_threads) {
    const int at = lowest + n - facts.lowest;
    const bool there = at >= 0 && at < facts.distances;
    store(to, n, there ? load<float>(table, h * facts.distances + at) * log2e : Number<float>(0.0f));
  }
}

// Rows [first, first + 16 fragments) of a tile, as left factors.
template <class T, int width, int fragments>
WHENCE_HD void hold_rows(
    Thread& t, Shared<T> tile, int first, Registers<Registers<FragmentA<T>, width / 16>, fragments>& held) {
  const int matrix = t.lane() / 8, line = t.lane() % 8;
  each<fragments>([&](auto m) {
    each<width / 16>([&](auto h) {
      const int row = first + 16 * m + matrix % 2 * 8 + line;
      held[m][h] = ldmatrix(t, tile, tile_at<T>(row, 16 * h + matrix / 2 * 8, width, row_phase(row)));
    });
  });
}

// x += the rows that are held times those of a tile [count, width] in a lane's order.
template <class T, int count, int width, int fragments>
WHENCE_HD void add_products(Thread& t, Shared<T> tile,
    const Registers<Registers<FragmentA<T>, width / 16>, fragments>& held,
    Registers<Registers<FragmentC<T>, count / 8>, fragments>& x) {
  const int matrix = t.lane() / 8, line = t.lane() % 8;
  each<count / 8>([&](auto c) {
    const int key = key_of_column<count>(8 * c + line);
    each<width / 32>([&](auto h) {
      const auto b = ldmatrix(t, tile, tile_at<T>(key, 32 * h + 8 * matrix, width, key_phase<count>(key)));
      each<fragments>([&](auto m) {
        mma<T>(t, x[m][c], held[m][Nth<2 * h>{}], b[Nth<0>{}], b[Nth<1>{}]);
        mma<T>(t, x[m][c], held[m][Nth<2 * h + 1>{}], b[Nth<2>{}], b[Nth<3>{}]);
      });
    });
  });
}

// The number of line a and column j that a lane has: row 8 a + lane / 4, column lane % 4 * (columns / 4) + j.
template <class Fragment, int columns, int fragments, int a, int j>
WHENCE_HD auto& of_line(Registers<Registers<Fragment, columns>, fragments>& x, Nth<a>, Nth<j>) {
  return x[Nth<a / 2>{}][Nth<j / 2>{}][Nth<a % 2 * 2 + j % 2>{}];
}

// sums += x times the rows of a tile [count, width] in a lane's order. What stands in x is the next left factor as it is.
template <class T, int count, int width, int fragments>
WHENCE_HD void add_rows(Thread& t, Shared<T> tile, const Registers<Registers<FragmentC<T>, count / 8>, fragments>& x,
    Registers<Registers<FragmentC<T>, width / 8>, fragments>& sums) {
  const int matrix = t.lane() / 8, line = t.lane() % 8;
  each<count / 16>([&](auto step) {
    Registers<FragmentA<T>, fragments> left;
    each<fragments>([&](auto m) {
      each<4>([&](auto r) {
        const FragmentC<T>& of = x[m][Nth<2 * step + r / 2>{}];
        left[m][r] = pack_two<T>(of[Nth<r % 2 * 2>{}], of[Nth<r % 2 * 2 + 1>{}]);
      });
    });
    const int row = key_of_column<count>(16 * step + matrix % 2 * 8 + line);
    each<width / 16>([&](auto j) {
      const auto b = ldmatrix_turned(t, tile, tile_at<T>(row, 16 * j + matrix / 2 * 8, width, key_phase<count>(row)));
      each<fragments>([&](auto m) {
        mma<T>(t, sums[m][Nth<2 * j>{}], left[m], b[Nth<0>{}], b[Nth<1>{}]);
        mma<T>(t, sums[m][Nth<2 * j + 1>{}], left[m], b[Nth<2>{}], b[Nth<3>{}]);
      });
    });
  });
}

// Two neighbours of a row; at even widths in one store.
template <class T>
WHENCE_HD void store_two(const HeadRows<T>& to, index_t at, int column, int d, Number<float> low, Number<float> high) {
  if (column >= d) return;
  if (d % 2 == 0) {
    Pack<T, 2> pack;
    if constexpr (sizeof(T) == 2)
      pack = std::bit_cast<Pack<T, 2>>(pack_two<T>(low, high));
    else
      pack.of[0] = plain(low), pack.of[1] = plain(high);
    return store_pack<2>(to.at, at + column, pack);
  }
  store(to.at, at + column, low);
  if (column + 1 < d) store(to.at, at + column + 1, high);
}

// Columns are sums over many tokens, which f32 holds coarsely. So what the first query of each block of `rows` has is taken
// off the column of every key that the block sees.
template <int rows>
WHENCE_HD Number<float> taken_off(Global<const float> column, const HeadFacts& facts, index_t head, int query) {
  const int token = smaller(facts.first_row + query / rows * rows, facts.keys - 1);
  return load<float>(column, head * facts.keys + larger(token, 0));
}

}  // namespace whence::gpu
