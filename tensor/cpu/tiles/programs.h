// The tile programs of a head, in the order in which they add to a tile. To add one: write its file, and add its name
// here.
#pragma once

#include "tensor/cpu/tiles/programs/bins.h"
#include "tensor/cpu/tiles/programs/by_distance.h"
#include "tensor/cpu/tiles/programs/by_row_and_distance.h"
#include "tensor/cpu/tiles/programs/column.h"
#include "tensor/cpu/tiles/programs/fading.h"
#include "tensor/cpu/tiles/programs/piecewise.h"
#include "tensor/cpu/tiles/programs/row_scan.h"

namespace whence::tiles::WHENCE_TILES_TARGET {

// Each hook calls that of all programs.
template <class T, class... P> struct ListOf : P... {
  void take(Cutter<T>& cut, const Problem<T>& p, bool backward) { (P::take(cut, p, backward), ...); }
  void head(const Problem<T>& p, extent b, extent h) { (P::head(p, b, h), ...); }
  void block(const QueryBlock<T>& block) { (P::block(block), ...); }
  void add(const Tile<T>& tile, T* x) { (P::add(tile, x), ...); }
  void sum(const Tile<T>& tile, const T* pattern) { (P::sum(tile, pattern), ...); }
  void fade(const QueryBlock<T>& block, const RunningSoftmax<T>& softmax) { (P::fade(block, softmax), ...); }
  void write(const QueryBlock<T>& block, const RunningSoftmax<T>& softmax) { (P::write(block, softmax), ...); }
  void add_output_dot(const QueryBlock<T>& block, T* output_dot) { (P::add_output_dot(block, output_dot), ...); }
  void add_gradient(const Tile<T>& tile, T* d_pattern) { (P::add_gradient(tile, d_pattern), ...); }
  void gather(const Tile<T>& tile, const T* dx) { (P::gather(tile, dx), ...); }
  bool keeps(const Tile<T>& tile, const T* dx) {
    bool kept = false;
    ((kept |= P::keeps(tile, dx)), ...);
    return kept;
  }
  void finish(const QueryBlock<T>& block, Pairing<T>& scores) { (P::finish(block, scores), ...); }
  void finish(const Problem<T>& p, extent b, extent h) { (P::finish(p, b, h), ...); }
};

// A row scan reads the scores, so it comes before anything is added to them.
template <class T>
using Programs = ListOf<T, RowScan<T>, ByDistance<T>, ByRowAndDistance<T>, Piecewise<T>, Column<T>, Fading<T>, Bins<T>>;

}  // namespace whence::tiles::WHENCE_TILES_TARGET
