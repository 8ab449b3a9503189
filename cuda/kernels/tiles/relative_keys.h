// Keys by distance in tiles of heads, and sums of the pattern over bins of distances (tensor/tiled_call.h).
//   x_ij += relative_scale p_i.r[m],  m = i - j;    bins_i[n] = sum_{j: bin(m) = n} m_ij P_ij
//   dp_i = relative_scale sum_m dA_{i,i-m} r[m];    dr[m] = relative_scale sum_i dA_{i,i-m} p_i
//   dP_ij += m_ij dbins_i[bin(m)]
// Two of query, key and distance determine the third. A kernel has two of them as rows and columns, and the third is a
// band: 16 rows of a warp and its columns meet 16 + columns - 1 of them. The product of the band with the rows (or with
// the columns) is stored in shared memory so that a diagonal of it is a row of the tile.
#pragma once

#include "cuda/kernels/tiles/gate_backward.h"

namespace whence::gpu {

// Facts of these kernels; there are no gates.
template <class T> struct RelativeKeys : GateScan<T> {
  using C = compute_t<T>;
  int lowest = 0, count = 0;     // r[m] is row m - lowest of `count`
  C scale = 1;                   // scale of p.r
  C factor = 1;                  // factor of the band's product, in units of the other one
  int bins = 0;                  // at most most_bins_on_gpu
  Global<const index_t> bin_of;  // [count]
  HeadRows<T> bin_sums;          // [b h i bins]
  HeadRows<const T> d_bins;      // their gradient, or null

  // Returns the bin of m steps, or -1.
  WHENCE_HD int bin_at(int m) const {
    return m >= lowest && m < lowest + count ? static_cast<int>(bin_of[m - lowest]) : -1;
  }
  static constexpr int mixed = -2;
  // Returns the bin of all of steps [first, first + many), or `mixed`: most tiles are in one.
  WHENCE_HD int bin_of_all(Thread& t, int first, int many) const {
    int bin = bin_at(first + smaller(t.lane(), many - 1));
    for (int n = t.lane() + 32; n < many; n += 32)
      if (bin_at(first + n) != bin) bin = mixed;
    for (int mask = 1; mask < 32; mask *= 2)
      if (t.shuffle_xor(bin, mask) != bin) bin = mixed;
    return bin;
  }
};

// Rows that the band of a block's tiles reads, in sixteens: row 0 of sixteen s is row 16 s + 1 + first_row - lowest of
// the operand. A ring: neighbouring tiles share all but columns / 16 of them. by_columns: products are with the
// columns.
template <class T, int width, int rows, int columns, bool by_columns = false> struct BandOfRows {
  static constexpr int of_block = (rows + columns) / 16, of_tile = columns / 16, slots = of_block + of_tile,
                       numbers = slots * 16 * width;
  Shared<T> at;
  WHENCE_HD Shared<T> sixteen(int s) const {
    return at + static_cast<int>(static_cast<unsigned>(s + (slots << 20)) % slots) * (16 * width);
  }
  // Copies `count` sixteens, of rows from 16 s + shift on.
  WHENCE_HD void fetch(Thread& t, const HeadRows<const T>& from, Global<const T> head, int s, int count, int shift,
      int end, int d) const {
    constexpr int pack = matrix_row<T>, packs = width / pack;
    for (int n = t.index(); n < count * 16 * packs; n += head_threads) {
      const int line = n / packs % 16, of = s + n / packs / 16, column = n % packs * pack, row = 16 * of + line + shift;
      const int phase = by_columns ? row_phase(line) : key_phase<16>(line);
      cp_async(t, sixteen(of), tile_at<T>(line, column, width, phase), head, row * from.row + column,
          row >= 0 && row < end && column < d);
    }
  }
};

// A warp's area of shared memory is 16 rows of columns + 16 distances. The index for line 0 and the lane's column j is
// first_of_lane - j.
template <int columns> WHENCE_HD int first_of_lane(Thread& t) {
  return t.lane() / 4 * (columns + 17) + columns - 1 - t.lane() % 4 * (columns / 4);
}

// x = factor times the product of the warp's rows and the band from sixteen `first` on.
template <int columns, int width, class T, class Ring, class Left, class C, class Pairs>
WHENCE_HD void band_of_rows(
    Thread& t, const Ring& ring, int first, const Left& left, Shared<C> area, C factor, Pairs& x) {
  constexpr int pitch = columns + 16, own = columns / 4;
  for (int n = 0; n < pitch / 16; ++n) {
    SummedRows<T, 16, 1> y;
    add_products<T, 16, width>(t, ring.sixteen(first + n), left, y);
    each<2>([&](auto a) {
      Pack<C, 4> pack;
      each<4>([&](auto e) { pack.of[e] = plain(number(y, a, e)); });
      store_pack<4>(area, (8 * a + t.lane() / 4) * pitch + 16 * n + t.lane() % 4 * 4, pack);
    });
  }
  t.sync_warp();
  const int from = first_of_lane<columns>(t);
  each<2>([&](auto a) {
    each<own>([&](auto j) { number(x, a, j) = load<C>(area, from + 8 * (pitch + 1) * a - j) * factor; });
  });
  t.sync_warp();
}

// Stores x to the area, by distance.
template <int columns, class C, class Pairs> WHENCE_HD void put_by_distance(Thread& t, Shared<C> area, const Pairs& x) {
  const int to = first_of_lane<columns>(t);
  each<2>([&](auto a) {
    each<columns / 4>([&](auto j) { store(area, to + 8 * (columns + 17) * a - j, number(x, a, j)); });
  });
  t.sync_warp();
}

// sums += dx times the band from sixteen `first` on.
template <int columns, int width, class T, class Ring, class C, class Pairs, class Sums>
WHENCE_HD void add_band(Thread& t, const Ring& ring, int first, Shared<C> area, const Pairs& dx, Sums& sums) {
  put_by_distance<columns>(t, area, dx);
  for (int n = 0; n < columns / 16 + 1; ++n) {
    SummedRows<T, 16, 1> by_distance;
    each<2>([&](auto a) {
      const int row = 8 * a + t.lane() / 4, at = 16 * n + t.lane() % 4 * 4;
      const auto pack = load_pack<4>(area, row * (columns + 16) + at);
      each<4>([&](auto e) {  // beyond the row's keys are numbers of other products
        const int key = at + e - row;
        number(by_distance, a, e) = key >= 0 && key < columns ? Number<C>(pack.of[e]) : Number<C>(0.0f);
      });
    });
    add_rows<T, 16, width>(t, ring.sixteen(first + n), by_distance, sums);
  }
  t.sync_warp();
}

// The product of a block's band, from sixteen `first` on, and the tile's columns goes to the area [columns,
// pitch_by_columns]; then x is factor times it: row r of the block and column c have the band's number c - r + rows -
// 1.
template <class Ring> inline constexpr int pitch_by_columns = 16 * Ring::of_block + 1;
template <int columns, int width, class T, class Ring, class C>
WHENCE_HD void put_band(Thread& t, const Ring& ring, int first, Shared<T> tile, Shared<C> area) {
  constexpr int own = columns / 4;
  for (int n = t.warp(); n < Ring::of_block; n += head_warps) {
    SummedRows<T, columns, 1> y;
    LeftRows<T, width, 1, false> left;
    left.hold(t, ring.sixteen(first + n), 0);
    add_products<T, columns, width>(t, tile, left, y);
    const int at = t.lane() % 4 * own * pitch_by_columns<Ring> + 16 * n + t.lane() / 4;
    each<2>([&](auto a) {
      each<own>([&](auto j) { store(area, at + j * pitch_by_columns<Ring> + 8 * a, number(y, a, j)); });
    });
  }
}
template <int columns, class Ring, class C, class Pairs>
WHENCE_HD void take_band(Thread& t, Shared<C> area, int row, C factor, Pairs& x) {
  constexpr int own = columns / 4, pitch = pitch_by_columns<Ring> + 1;
  const int at = t.lane() % 4 * own * pitch + 16 * Ring::of_block - columns - 1 - row;
  each<2>(
      [&](auto a) { each<own>([&](auto j) { number(x, a, j) = load<C>(area, at + j * pitch - 8 * a) * factor; }); });
}

// In the gradients of heads: rings of `count` operands, and areas of the block or the warp. by_columns: products are
// with the columns.
template <class T, class Ring, int columns, bool by_columns, int count> struct RelativeBand : NoScan {
  using C = compute_t<T>;
  static constexpr int one_area = by_columns ? columns * pitch_by_columns<Ring> : 16 * (columns + 16),
                       numbers = one_area * (by_columns ? count : head_warps);
  Ring rings[count];
  Shared<C> area;

  static std::size_t shared_bytes(const RelativeKeys<T>&) {
    return count * shared_bytes_for<T>(Ring::numbers) + shared_bytes_for<C>(numbers);
  }
  template <class Facts>
  WHENCE_HD RelativeBand(Thread& t, const RelativeKeys<T>& told, const Facts& facts, int head, int row)
      : NoScan(t, told, facts, head, row) {
    for (Ring& ring : rings) ring.at = t.shared<T>(Ring::numbers);
    area = t.shared<C>(numbers) + (by_columns ? 0 : t.warp() * one_area);
  }
  // Copies the rows that a tile reads and the one before did not, or all. Bands by columns rise with the tiles and gain
  // their last rows.
  WHENCE_HD void fetch(Thread& t, int n, const HeadRows<const T>& from, Global<const T> head, int first, bool all,
      int shift, int end, int d) const {
    const int skipped = by_columns && !all ? Ring::of_block - Ring::of_tile : 0;
    rings[n].fetch(t, from, head, first + skipped, all ? Ring::of_block : Ring::of_tile, shift, end, d);
  }
};

// The sums of a warp's rows by bins, over its tiles.
template <class T, int columns> struct BinSums {
  using C = compute_t<T>;
  const RelativeKeys<T>& of;
  Shared<C> sums;  // [16 bins]

  WHENCE_HD void clear(Thread& t) const {
    for (int n = t.lane(); n < 16 * of.bins; n += 32) store(sums, n, Number<C>(0.0f));
    t.sync_warp();
  }
  // Calls f(bin, its index in sums, its sum), by the lanes of the row of line a
  template <class F> WHENCE_HD void each_of_row(Thread& t, int a, const F& f) const {
    const int first = (8 * a + t.lane() / 4) * of.bins;
    for (int n = t.lane() % 4; n < of.bins; n += 4) f(n, first + n, load<C>(sums, first + n));
  }
  // lowest: the steps of the area's number 0
  template <class Pairs> WHENCE_HD void add(Thread& t, int lowest, Shared<C> area, const Pairs& x) const {
    const int bin = of.bin_of_all(t, lowest, columns + 15);
    t.sync_warp();
    if (bin >= 0)
      each<2>([&](auto a) {
        Number<C> sum = 0.0f;
        each<columns / 4>([&](auto j) { sum += number(x, a, j); });
        for (int mask = 1; mask <= 2; mask *= 2) sum += t.shuffle_xor(sum, mask);
        if (t.lane() % 4 == 0) add_to(8 * a + t.lane() / 4, bin, sum);
      });
    if (bin == RelativeKeys<T>::mixed) {  // a lane walks along its row
      put_by_distance<columns>(t, area, x);
      Number<C> sum = 0.0f;
      int own = -1;
      for (int n = t.lane(); t.lane() < 16 && n <= t.lane() + columns; ++n) {
        const int next = n < t.lane() + columns ? of.bin_at(lowest + n) : -1;
        if (next != own) add_to(t.lane(), own, sum), own = next, sum = 0.0f;
        if (next >= 0) sum += load<C>(area, t.lane() * (columns + 16) + n);
      }
    }
    t.sync_warp();
  }

 private:
  WHENCE_HD void add_to(int row, int bin, Number<C> sum) const {
    const int at = row * of.bins + bin;
    if (bin >= 0) store(sums, at, load<C>(sums, at) + sum);
  }
};

}  // namespace whence::gpu
