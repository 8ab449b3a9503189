// by row and distance: x[k][i] += relative_scale p_i.r[steps], with the band of distances that a tile spans.
#pragma once

#include "tensor/cpu/tiles/programs/program.h"

namespace whence::tiles::WHENCE_TILES_TARGET {

template <class T> struct ByRowAndDistance : Program<T> {
  bool backward;
  T *transposed, *band, *rows, *d_rows, *keys;

  static bool runs(const Problem<T>& p) { return p.in[At::relative_query].at != nullptr; }
  static extent width(const Problem<T>& p) { return padded<T>(p.dim); }

  void take(Cutter<T>& cut, const Problem<T>& p, bool with_gradient) {
    if (!runs(p)) return;
    backward = with_gradient;
    transposed = cut.take(p.dim * block_rows<T>), band = cut.take((block_rows<T> + tile_keys<T>)*block_rows<T>);
    if (!backward) return;
    rows = cut.take(block_rows<T> * width(p)), d_rows = cut.take(block_rows<T> * width(p));
    keys = cut.take(p.distances * width(p));
  }
  void head(const Problem<T>& p, extent, extent h) {
    const Rows<const T> from = p.in[At::relative_keys];
    if (runs(p) && backward) pack_rows(head_of(from, 0, h), from.row, p.distances, p.dim, width(p), keys);
  }
  void block(const QueryBlock<T>& block) {
    const Problem<T>& p = block.p;
    if (!runs(p)) return;
    const Rows<const T> query = p.in[At::relative_query];
    const T* from = head_of(query, block.b, block.h) + block.first_query * query.row;
    pack_transposed(from, query.row, block.rows, p.dim, block.columns, p.relative_scale, transposed);
    if (!backward) return;
    pack_rows(from, query.row, block.rows, p.dim, width(p), rows);
    clear(d_rows, block_rows<T> * width(p));
  }

  // Rows of the band; the first is at `lowest` steps. The table has `count` of them, after the first `skipped`.
  struct Band {
    extent rows, lowest, skipped, count;
    explicit Band(const Tile<T>& tile) {
      const Problem<T>& p = tile.block.p;
      rows = tile.block.columns + tile.keys - 1;
      lowest = tile.block.first_token() - tile.first_key - tile.keys + 1;
      skipped = max(0, p.lowest - lowest);
      count = max(0, min(lowest + rows, p.lowest + p.distances) - lowest - skipped);
    }
  };

  void add(const Tile<T>& tile, T* x) {
    const QueryBlock<T>& block = tile.block;
    const Problem<T>& p = block.p;
    if (!runs(p)) return;
    const Rows<const T> relative = p.in[At::relative_keys];
    const Band of(tile);
    const extent columns = block.columns;
    clear(band, of.rows * columns);
    const T* from = head_of(relative, 0, block.h) + (of.lowest + of.skipped - p.lowest) * relative.row;
    multiply<T>(of.count, columns, {p.dim}, {from, relative.row, 1}, transposed, columns, band + of.skipped * columns,
        columns, Start::zero);
    for (extent k = 0; k < tile.keys; ++k) {
      const T* diagonal = band + (tile.keys - 1 - k) * columns;
      for (extent i = 0; i < columns; ++i) x[k * columns + i] += diagonal[i * (columns + 1)];
    }
  }

  void gather(const Tile<T>& tile, const T* dx) {
    const QueryBlock<T>& block = tile.block;
    const Problem<T>& p = block.p;
    if (!runs(p)) return;
    const Rows<T> d_keys = p.d[At::relative_keys];
    const Band of(tile);
    const extent columns = block.columns;
    clear(band, of.rows * columns);
    for (extent k = 0; k < tile.keys; ++k) {
      T* diagonal = band + (tile.keys - 1 - k) * columns;
      for (extent i = 0; i < block.rows; ++i) diagonal[i * (columns + 1)] = dx[k * columns + i] * p.relative_scale;
    }
    const T* used = band + of.skipped * columns;
    const extent first = of.lowest + of.skipped - p.lowest;
    if (p.d[At::relative_query].at)
      multiply<T>(block.rows, width(p), {of.count}, {used, 1, columns}, keys + first * width(p), width(p), d_rows,
          width(p), Start::given);
    if (d_keys.at)
      multiply<T>(of.count, width(p), {block.rows}, {used, columns, 1}, rows, width(p),
          head_of(d_keys, block.b, block.h) + first * d_keys.row, d_keys.row, Start::given);
  }

  void finish(const QueryBlock<T>& block, Pairing<T>&) {
    const Problem<T>& p = block.p;
    const Rows<T> to = p.d[At::relative_query];
    for (extent i = 0; to.at && i < block.rows; ++i)
      for (extent c = 0; c < p.dim; ++c)
        head_of(to, block.b, block.h)[(block.first_query + i) * to.row + c] = d_rows[i * width(p) + c];
  }
  using Program<T>::finish;
};

}  // namespace whence::tiles::WHENCE_TILES_TARGET
