// Products of rows of tiles on tensor cores, the building blocks of tiled attention. Numbers of 16 bits are factors as
// they are. A float is the sum of two tf32 numbers, so a product of two floats is the sum of the three products that
// f32 can still see: its error is twice that of f32, at a sixth of the rate of 16 bits.
#pragma once

#include "cuda/vocabulary/packs.h"
#include "cuda/vocabulary/tensor_cores.h"

namespace whence::gpu {

// Registers of a factor, and for a float the rest after its large part.
template <class T> struct Factor {
  Registers<Register<T>, 4> large, rest;
};
template <class T> WHENCE_HD Factor<T> factor_of(const Registers<Register<T>, 4>& of) {
  Factor<T> factor{of, {}};
  if constexpr (std::is_same_v<T, float>)
    each<4>([&](auto r) {
      const Number<float> x = from_tf32(of[r]);
      factor.large[r] = to_tf32(x), factor.rest[r] = to_tf32(x - from_tf32(factor.large[r]));
    });
  return factor;
}

// c += a b, with the right factor's halves in registers r and r + 1 of b.
template <class T, int r>
WHENCE_HD void add_product(Thread& t, FragmentC<T>& c, const Factor<T>& a, const Factor<T>& b, Nth<r>) {
  constexpr Nth<r + 1> lower{};
  if constexpr (std::is_same_v<T, float>) {
    mma<T>(t, c, a.rest, b.large[Nth<r>{}], b.large[lower]);
    mma<T>(t, c, a.large, b.rest[Nth<r>{}], b.rest[lower]);
  }
  mma<T>(t, c, a.large, b.large[Nth<r>{}], b.large[lower]);
}

// Sums of a warp's rows, of `columns` columns.
template <class T, int columns, int fragments>
using SummedRows = Registers<Registers<FragmentC<T>, columns / 8>, fragments>;

// A warp's rows of a tile as left factors, by steps of `depth` columns. Those of 16 bits are held in registers; floats,
// which need twice as many, stay in the tile.
template <class T, int width, int fragments, bool holds = per_register<T> == 2> class LeftRows {
 public:
  WHENCE_HD void hold(Thread& t, Shared<T> tile, int first) {
    const int matrix = t.lane() / 8, row = first + matrix % 2 * 8 + t.lane() % 8;
    tile_ = tile, at_ = tile_at<T>(row, matrix / 2 * matrix_row<T>, width, row_phase(row));
    if constexpr (holds)
      each<fragments>([&](auto m) { each<width / depth<T>>([&](auto h) { held_[m][h] = load(t, m, h); }); });
  }
  template <class M, class H> WHENCE_HD FragmentA<T> operator()(Thread& t, M m, H h) const {
    if constexpr (holds)
      return held_[m][h];
    else
      return load(t, m, h);
  }

 private:
  WHENCE_HD FragmentA<T> load(Thread& t, int m, int h) const {
    return ldmatrix(t, tile_, moved(at_, 16 * m, depth<T> * h, width));
  }
  Shared<T> tile_;
  int at_ = 0;
  Registers<Registers<FragmentA<T>, width / depth<T>>, fragments> held_;
};

// x += rows times those of a tile [count, width] in a lane's order. left(t, m, h): fragment m of the rows, columns from
// depth h on; for floats h is a run-time value, which keeps the code short.
template <class T, int count, int width, int fragments, class Left>
WHENCE_HD void add_products(Thread& t, Shared<T> tile, const Left& left, SummedRows<T, count, fragments>& x) {
  const int matrix = t.lane() / 8, key = key_of_column<count>(matrix / 2 * 8 + t.lane() % 8),
            at = tile_at<T>(key, matrix % 2 * matrix_row<T>, width, key_phase<count>(key));
  const auto add = [&](auto h) {
    Registers<Factor<T>, fragments> a;
    each<fragments>([&](auto m) { a[m] = factor_of<T>(left(t, m, h)); });
    each<count / 16>([&](auto c) {
      const auto b = factor_of<T>(ldmatrix(t, tile, moved(at, 4 * c, depth<T> * h, width)));
      each<fragments>([&](auto m) {
        add_product<T>(t, x[m][Nth<2 * c>{}], a[m], b, Nth<0>{});
        add_product<T>(t, x[m][Nth<2 * c + 1>{}], a[m], b, Nth<2>{});
      });
    });
  };
  if constexpr (per_register<T> == 2)
    each<width / depth<T>>(add);
  else
    for (int h = 0; h < width / depth<T>; ++h) add(h);
}

// Returns the row and the column of a lane's part of a right factor whose depth is rows of a tile.
template <class T> WHENCE_HD Place place_in_transposed(int lane) {
  if (per_register<T> == 1) return {lane % 4 * 2, lane / 4};
  return {lane / 8 % 2 * 8 + lane % 8, lane / 16 * 8};
}
// Returns that factor, 16 columns wide. Numbers of 16 bits are transposed while loading. Floats are loaded singly, from
// two neighbouring rows.
template <class T> WHENCE_HD Registers<Register<T>, 4> transposed(Thread& t, Shared<T> tile, int at, int width) {
  if constexpr (per_register<T> == 2) {
    return ldmatrix_trans(t, tile, at);
  } else {
    Registers<Register<T>, 4> r;
    each<4>([&](auto n) {
      const int beside = moved(at, 0, n / 2 * 8, width), of = n % 2 ? moved(beside, 1, matrix_row<T>, width) : beside;
      r[n] = std::bit_cast<std::uint32_t>(plain(load<float>(tile, of)));
    });
    return r;
  }
}

// Returns sums of a row as left factor number `step` of the next product.
template <class T, int count, int step>
WHENCE_HD FragmentA<T> left_of(const Registers<FragmentC<T>, count>& x, Nth<step>) {
  FragmentA<T> left;
  each<4>([&](auto r) {
    if constexpr (per_register<T> == 1) {
      left[r] = std::bit_cast<std::uint32_t>(plain(x[Nth<step>{}][Nth<r % 2 * 2 + r / 2>{}]));
    } else {
      const FragmentC<T>& of = x[Nth<2 * step + r / 2>{}];
      left[r] = pack_two<T>(of[Nth<r % 2 * 2>{}], of[Nth<r % 2 * 2 + 1>{}]);
    }
  });
  return left;
}

// sums += left times rows of a tile: the lane's part begins `rows` after `at`.
template <class T, int width, int fragments>
WHENCE_HD void add_step(Thread& t, Shared<T> tile, int at, int rows, const Registers<Factor<T>, fragments>& left,
    SummedRows<T, width, fragments>& sums) {
  each<width / 16>([&](auto j) {
    const auto b = factor_of<T>(transposed(t, tile, moved(at, rows, 16 * j, width), width));
    each<fragments>([&](auto m) {
      add_product<T>(t, sums[m][Nth<2 * j>{}], left[m], b, Nth<0>{});
      add_product<T>(t, sums[m][Nth<2 * j + 1>{}], left[m], b, Nth<2>{});
    });
  });
}

// sums += x times the rows of a tile [count, width] in a lane's order.
template <class T, int count, int width, int fragments>
WHENCE_HD void add_rows(
    Thread& t, Shared<T> tile, const SummedRows<T, count, fragments>& x, SummedRows<T, width, fragments>& sums) {
  const Place place = place_in_transposed<T>(t.lane());
  const int row = key_of_column<count>(place.row), at = tile_at<T>(row, place.column, width, key_phase<count>(row));
  each<count / depth<T>>([&](auto step) {
    Registers<Factor<T>, fragments> left;
    each<fragments>([&](auto m) { left[m] = factor_of<T>(left_of<T>(x[m], step)); });
    add_step<T, width>(t, tile, at, depth<T> / 4 * step, left, sums);
  });
}

// Rounds two neighbours for storing, and back. within: f16 ends at its largest number.
template <class T, bool within = false>
WHENCE_HD Pack<T, 2> two_of(Number<compute_t<T>> low, Number<compute_t<T>> high) {
  if constexpr (per_register<T> == 1)
    return {{plain(low), plain(high)}};
  else
    return std::bit_cast<Pack<T, 2>>(within ? pack_within<T>(low, high) : pack_two<T>(low, high));
}
template <class T> WHENCE_HD Two<Number<compute_t<T>>> numbers_of(const Pack<T, 2>& two) {
  if constexpr (per_register<T> == 1)
    return {two.of[0], two.of[1]};
  else
    return unpack_two<T>(std::bit_cast<Register<T>>(two));
}

}  // namespace whence::gpu
