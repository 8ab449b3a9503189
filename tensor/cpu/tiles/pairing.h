// Pairing: queries and keys whose products are a tile, and the gradients of both from the tile's gradient.
#pragma once

#include "tensor/cpu/tiles/softmax.h"

namespace whence::tiles::WHENCE_TILES_TARGET {

template <class T> struct Pairing {
  Rows<const T> query, key;
  Rows<T> d_query, d_key;
  extent dim, width;
  T scale;
  bool backward;
  const T* keys;  // of the head: the operand's own rows; in backward, copies padded by zeros
  extent keys_row;
  T *copies, *d_keys, *transposed, *rows, *d_rows;

  void take(Cutter<T>& cut, const Problem<T>& p, At::Operand queries, At::Operand of_keys, T factor, bool gradients) {
    take(cut, p, p.in[queries], p.d[queries], of_keys, p.dim, factor, gradients);
  }
  void take(Cutter<T>& cut, const Problem<T>& p, Rows<const T> queries, Rows<T> d_queries, At::Operand of_keys,
      extent depth, T factor, bool gradients) {
    query = queries, key = p.in[of_keys], d_query = d_queries, d_key = p.d[of_keys];
    dim = depth, width = padded<T>(dim), scale = factor, backward = gradients;
    if (!query.at) return;
    transposed = cut.take(dim * block_rows<T>);
    if (!backward) return;
    copies = cut.take(p.keys * width), d_keys = cut.take(p.keys * width);
    rows = cut.take(block_rows<T> * width), d_rows = cut.take(block_rows<T> * width);
  }
  void head(const Problem<T>& p, extent b, extent h) {
    if (!query.at) return;
    keys = head_of(key, b, h), keys_row = key.row;
    if (!backward) return;
    pack_rows(keys, keys_row, p.keys, dim, width, copies);
    clear(d_keys, p.keys * width);
    keys = copies, keys_row = width;
  }
  void block(const QueryBlock<T>& block) {
    if (!query.at) return;
    const T* from = head_of(query, block.b, block.h) + block.first_query * query.row;
    pack_transposed(from, query.row, block.rows, dim, block.columns, scale, transposed);
    if (!backward) return;
    pack_rows(from, query.row, block.rows, dim, width, rows);
    if (d_query.at) clear(d_rows, block_rows<T> * width);
  }
  void products(const Tile<T>& tile, T* x) const {
    products_of_pairs(tile, dim, keys + tile.first_key * keys_row, keys_row, transposed, x);
  }
  // dx: the gradient of the tile, times scale
  void gather(const Tile<T>& tile, const T* dx) const {
    if (d_key.at) sum_over_queries(tile, dx, rows, width, d_keys + tile.first_key * width, width);
    if (d_query.at) sum_over_keys(tile, dx, keys + tile.first_key * width, width, width, d_rows);
  }
  void finish(const QueryBlock<T>& block) const {
    if (d_query.at)
      write(d_rows, block.rows, head_of(d_query, block.b, block.h) + block.first_query * d_query.row, d_query.row);
  }
  void finish(const Problem<T>& p, extent b, extent h) const {
    if (d_key.at) write(d_keys, p.keys, head_of(d_key, b, h), d_key.row);
  }
  void write(const T* from, extent count, T* to, extent to_row) const {
    for (extent r = 0; r < count; ++r)
      for (extent c = 0; c < dim; ++c) to[r * to_row + c] = from[r * width + c];
  }
};

template <class T> static void scale_tile(const Tile<T>& tile, T scale, T* x) {
  for (extent n = 0, count = tile.keys * tile.block.columns; n < count; n += lanes<T>)
    store<T>(x + n, load(x + n) * splat(scale));
}

}  // namespace whence::tiles::WHENCE_TILES_TARGET
