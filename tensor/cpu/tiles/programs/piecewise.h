// piecewise (FIRE): x[k][i] += slope_n a + offset_n, a = row_i distance[steps] in piece n: begin_n < a <= begin_{n+1}
// A lane's a moves along the keys in one direction and through few pieces: lanes keep theirs until one of them has left
// it, and what backward sums for a piece goes to the sums of all then.
//   d slope_n = sum dx a,  d offset_n = sum dx,  da = slope_n dx,  d row_i = sum_j da distance
//   d distance[m] = sum of da row_i along a diagonal
// begin_n gets no gradient: pieces meet, so that moving a border changes nothing.
#pragma once

#include "tensor/cpu/tiles/programs/by_distance.h"

namespace whence::tiles::WHENCE_TILES_TARGET {

template <class T> struct Piecewise : Program<T> {
  using V = Vector<T>;

  extent pieces;
  DistanceNumbers<T> distance;
  T *begins, *slopes, *offsets;  // [pieces + 1], [pieces], [pieces]
  T *rows, *d_rows;              // per lane
  T *d_slopes, *d_offsets;       // [pieces, lanes]
  T* d_diagonals;                // of a tile: what goes to distance

  static bool runs(const Problem<T>& p) { return static_cast<bool>(p.in[At::piece_begins]); }
  void take(Cutter<T>& cut, const Problem<T>& p, bool backward) {
    if (!runs(p)) return;
    distance.take(cut, p, backward);
    pieces = p.size('s');
    begins = cut.take(pieces + 1), slopes = cut.take(pieces), offsets = cut.take(pieces);
    rows = cut.take(block_rows<T>);
    if (!backward) return;
    d_rows = cut.take(block_rows<T>), d_diagonals = cut.take(tile_keys<T> * block_rows<T>);
    d_slopes = cut.take(pieces * lanes<T>), d_offsets = cut.take(pieces * lanes<T>);
  }
  void head(const Problem<T>& p, extent, extent h) {
    if (!runs(p)) return;
    distance.head(p, p.in[At::piece_distance].at);
    for (extent n = 0; n < pieces; ++n) {
      begins[n] = p.in[At::piece_begins].at[n];
      slopes[n] = p.in[At::piece_slopes].of(0, h)[n], offsets[n] = p.in[At::piece_offsets].of(0, h)[n];
    }
    begins[0] = nothing<T>(), begins[pieces] = -nothing<T>();
    if (distance.sums) clear(d_slopes, pieces * lanes<T>), clear(d_offsets, pieces * lanes<T>);
  }
  void block(const Block<T>& block) {
    const Problem<T>& p = block.p;
    if (!runs(p)) return;
    const T* from = p.in[At::piece_row].of(block.b, block.h) + block.first_query;
    for (extent i = 0; i < block_rows<T>; ++i) rows[i] = i < block.rows ? from[i] : T(0);
    if (distance.sums) clear(d_rows, block_rows<T>);
  }

  void add(const Tile<T>& tile, T* x) {
    const extent columns = tile.block.columns;
    if (!runs(tile.block.p)) return;
    Piece held[block_rows<T> / lanes<T>];
    for (extent k = 0; k < tile.keys; ++k) {
      const T* from = distance.read(tile, k);
      for (extent n = 0; n < columns; n += lanes<T>) {
        Piece& piece = held[n / lanes<T>];
        const V a = load(from + n) * load(rows + n);
        if (k == 0 || piece.left_by(a)) find(a, piece);
        T* at = x + k * columns + n;
        store<T>(at, load(at) + (piece.slope * a + piece.offset));
      }
    }
  }

  void gather(const Tile<T>& tile, const T* dx) {
    const Block<T>& block = tile.block;
    if (!runs(block.p)) return;
    Piece held[block_rows<T> / lanes<T>];
    for (extent k = 0; k < tile.keys; ++k) {
      const T* from = distance.read(tile, k);
      for (extent n = 0; n < block.columns; n += lanes<T>) {
        Piece& piece = held[n / lanes<T>];
        const V u = load(from + n), row = load(rows + n), a = u * row, gradient = load(dx + k * block.columns + n);
        if (k == 0 || piece.left_by(a)) {
          if (k > 0) to_sums(piece);
          find(a, piece);
        }
        piece.d_offset = piece.d_offset + gradient, piece.d_slope = piece.d_slope + gradient * a;
        const V da = gradient * piece.slope;
        store<T>(d_rows + n, load(d_rows + n) + da * u);
        store<T>(d_diagonals + k * block.columns + n, da * row);
      }
    }
    for (extent n = 0; n < block.packs(); ++n) to_sums(held[n]);
    distance.gather(tile, d_diagonals);
  }
  void finish(const Block<T>& block, Pairing<T>&) {
    const Rows<T> to = block.p.d[At::piece_row];
    for (extent i = 0; to && i < block.rows; ++i) to.of(block.b, block.h)[block.first_query + i] = d_rows[i];
  }
  void finish(const Problem<T>& p, extent b, extent h) {
    if (!runs(p)) return;
    if (p.d[At::piece_distance]) distance.finish(p, p.d[At::piece_distance].of(b, h));
    for (extent n = 0; n < pieces; ++n) {
      if (p.d[At::piece_slopes]) p.d[At::piece_slopes].of(b, h)[n] += sum_of_lanes<T>(load(d_slopes + n * lanes<T>));
      if (p.d[At::piece_offsets]) p.d[At::piece_offsets].of(b, h)[n] += sum_of_lanes<T>(load(d_offsets + n * lanes<T>));
    }
  }

 private:
  // One for each lane, and what it gets of a tile.
  struct Piece {
    V number, begin, end, slope, offset, d_slope, d_offset;
    bool left_by(V a) const { return bits<T>(a > end) != 0 || bits<T>(a <= begin) != 0; }
  };
  void find(V a, Piece& piece) const {
    V number = zero<T>();
    for (extent n = 1; n < pieces; ++n) number = number + (a > splat(begins[n]) ? splat(T(1)) : zero<T>());
    const auto read = [&](const T* from) {
      if constexpr (has_vectors<T>)
        return look_up(from, indices<T>(number));
      else
        return from[static_cast<extent>(static_cast<double>(number))];
    };
    piece = {number, read(begins), read(begins + 1), read(slopes), read(offsets), zero<T>(), zero<T>()};
  }
  void to_sums(const Piece& piece) const {
    if constexpr (has_vectors<T>) {
      const Mask<T> at = indices<T>(piece.number * splat(number<T>(lanes<T>)) + count_up<T>());
      scatter_add<T>(d_slopes, at, ~0u, piece.d_slope), scatter_add<T>(d_offsets, at, ~0u, piece.d_offset);
    } else {
      const auto at = static_cast<extent>(static_cast<double>(piece.number));
      d_slopes[at] += piece.d_slope, d_offsets[at] += piece.d_offset;
    }
  }
};

}  // namespace whence::tiles::WHENCE_TILES_TARGET
