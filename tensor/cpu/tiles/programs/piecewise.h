// piecewise (FIRE): x[k][i] += slope_n a + offset_n, a = row_i distance[steps] in piece n: begin_n < a <= begin_{n+1}
// A lane's a moves along the keys in one direction and through few pieces. So lanes keep their pieces until one of them
// has left its piece; then backward adds the sums of the pieces to memory.
//   d slope_n = sum dx a,  d offset_n = sum dx,  da = slope_n dx,  d row_i = sum_j da distance
//   d distance[m] = sum of da row_i along a diagonal
// begin_n gets no gradient: pieces meet, so that moving a border changes nothing.
// The head mix holds all heads at once, attention one.
#pragma once

#include "tensor/cpu/tiles/programs/by_distance.h"

namespace whence::tiles::WHENCE_TILES_TARGET {

template <class T> struct Piecewise : Program<T> {
  using V = Vector<T>;

  extent pieces, first_head;
  DistanceNumbers<T> distance;
  T* begins;                // [pieces + 1]
  T *slopes, *offsets;      // [head, pieces]
  T *rows, *d_rows;         // [head, lane]
  T *d_slopes, *d_offsets;  // [head, pieces, lanes], of a block
  T* d_diagonals;           // of a tile: the gradient of `distance`

  static bool runs(const Problem<T>& p) { return p.in[At::piece_begins].at != nullptr; }
  void take(Cutter<T>& cut, const Problem<T>& p, bool backward) { take(cut, p, backward, 1); }
  void take(Cutter<T>& cut, const Problem<T>& p, bool backward, extent heads) {
    if (!runs(p)) return;
    distance.take(cut, p, backward);
    pieces = p.sizes['s' - 'a'];
    begins = cut.take(pieces + 1), slopes = cut.take(heads * pieces), offsets = cut.take(heads * pieces);
    rows = cut.take(heads * block_rows<T>);
    if (!backward) return;
    d_rows = cut.take(heads * block_rows<T>), d_diagonals = cut.take(tile_keys<T> * block_rows<T>);
    d_slopes = cut.take(heads * pieces * lanes<T>), d_offsets = cut.take(heads * pieces * lanes<T>);
  }
  void head(const Problem<T>& p, extent, extent h) { hold(p, h, 1); }
  void hold(const Problem<T>& p, extent first, extent heads) {
    if (!runs(p)) return;
    first_head = first;
    distance.head(p, p.in[At::piece_distance].at);
    for (extent n = 0; n < pieces; ++n) begins[n] = p.in[At::piece_begins].at[n];
    begins[0] = nothing<T>(), begins[pieces] = -nothing<T>();
    for (extent n = 0; n < heads * pieces; ++n)
      slopes[n] = head_of(p.in[At::piece_slopes], 0, first)[n],
      offsets[n] = head_of(p.in[At::piece_offsets], 0, first)[n];
  }
  void block(const QueryBlock<T>& block) {
    const Problem<T>& p = block.p;
    if (!runs(p)) return;
    const T* from = head_of(p.in[At::piece_row], block.b, block.h) + block.first_query;
    T* to = rows + held(block) * block_rows<T>;
    for (extent i = 0; i < block_rows<T>; ++i) to[i] = i < block.rows ? from[i] : T(0);
    if (!distance.sums) return;
    clear(d_rows + held(block) * block_rows<T>, block_rows<T>);
    clear(d_slopes + sums_of(held(block)), pieces * lanes<T>),
        clear(d_offsets + sums_of(held(block)), pieces * lanes<T>);
  }

  void add(const Tile<T>& tile, T* x) {
    const extent columns = tile.block.columns;
    if (!runs(tile.block.p)) return;
    const extent head = held(tile.block);
    const T* const row = rows + head * block_rows<T>;
    Piece of_lanes[block_rows<T> / lanes<T>];
    for (extent k = 0; k < tile.keys; ++k) {
      const T* from = distance.read(tile, k);
      for (extent n = 0; n < columns; n += lanes<T>) {
        Piece& piece = of_lanes[n / lanes<T>];
        const V a = load(from + n) * load(row + n);
        if (k == 0 || piece.left_by(a)) find(head, a, piece);
        T* at = x + k * columns + n;
        store<T>(at, load(at) + (piece.slope * a + piece.offset));
      }
    }
  }

  void gather(const Tile<T>& tile, const T* dx) {
    const QueryBlock<T>& block = tile.block;
    if (!runs(block.p)) return;
    const extent head = held(block);
    const T* const row = rows + head * block_rows<T>;
    Piece of_lanes[block_rows<T> / lanes<T>];
    V d_row[block_rows<T> / lanes<T>] = {};  // of the tile
    for (extent k = 0; k < tile.keys; ++k) {
      const T* from = distance.read(tile, k);
      for (extent n = 0; n < block.columns; n += lanes<T>) {
        Piece& piece = of_lanes[n / lanes<T>];
        const V u = load(from + n), r = load(row + n), a = u * r, gradient = load(dx + k * block.columns + n);
        if (k == 0 || piece.left_by(a)) {
          if (k > 0) to_sums(head, piece);
          find(head, a, piece);
        }
        piece.d_offset = piece.d_offset + gradient, piece.d_slope = piece.d_slope + gradient * a;
        const V da = gradient * piece.slope;
        d_row[n / lanes<T>] = d_row[n / lanes<T>] + da * u;
        store<T>(d_diagonals + k * block.columns + n, da * r);
      }
    }
    for (extent n = 0; n < block.packs(); ++n) {
      T* const to = d_rows + head * block_rows<T> + n * lanes<T>;
      store<T>(to, load(to) + d_row[n]);
      to_sums(head, of_lanes[n]);
    }
    distance.gather(tile, d_diagonals);
  }
  void finish(const QueryBlock<T>& block, Pairing<T>&) {
    if (runs(block.p)) finish(block);
  }
  void finish(const QueryBlock<T>& block) const {
    const Problem<T>& p = block.p;
    const Rows<T> to_rows = p.d[At::piece_row];
    const T* const d_row = d_rows + held(block) * block_rows<T>;
    for (extent i = 0; to_rows.at && i < block.rows; ++i)
      head_of(to_rows, block.b, block.h)[block.first_query + i] = d_row[i];
    const auto add_to = [&](Rows<T> to, const T* sums) {
      for (extent n = 0; to.at && n < pieces; ++n)
        head_of(to, block.b, block.h)[n] += sum_of_lanes<T>(load(sums + n * lanes<T>));
    };
    add_to(p.d[At::piece_slopes], d_slopes + sums_of(held(block)));
    add_to(p.d[At::piece_offsets], d_offsets + sums_of(held(block)));
  }
  void finish(const Problem<T>& p, extent b, extent h) {
    if (p.d[At::piece_distance].at) distance.finish(p, head_of(p.d[At::piece_distance], b, h));
  }

 private:
  extent held(const QueryBlock<T>& block) const { return block.h - first_head; }
  extent sums_of(extent head) const { return head * pieces * lanes<T>; }
  // The piece of each lane, and its gradients in a tile.
  struct Piece {
    V number, begin, end, slope, offset, d_slope, d_offset;
    bool left_by(V a) const { return bits<T>(a > end) != 0 || bits<T>(a <= begin) != 0; }
  };
  void find(extent head, V a, Piece& piece) const {
    V number = zero<T>();
    for (extent n = 1; n < pieces; ++n) number = number + (a > splat(begins[n]) ? splat(T(1)) : zero<T>());
    const auto read = [&](const T* from) {
      if constexpr (has_vectors<T>)
        return look_up(from, indices<T>(number));
      else
        return from[static_cast<extent>(static_cast<double>(number))];
    };
    piece = {number, read(begins), read(begins + 1), read(slopes + head * pieces), read(offsets + head * pieces),
        zero<T>(), zero<T>()};
  }
  void to_sums(extent head, const Piece& piece) const {
    T *const of_slopes = d_slopes + sums_of(head), *const of_offsets = d_offsets + sums_of(head);
    if constexpr (has_vectors<T>) {
      const Mask<T> at = indices<T>(piece.number * splat(number<T>(lanes<T>)) + count_up<T>());
      scatter_add<T>(of_slopes, at, ~0u, piece.d_slope), scatter_add<T>(of_offsets, at, ~0u, piece.d_offset);
    } else {
      const auto at = static_cast<extent>(static_cast<double>(piece.number));
      of_slopes[at] += piece.d_slope, of_offsets[at] += piece.d_offset;
    }
  }
};

}  // namespace whence::tiles::WHENCE_TILES_TARGET
