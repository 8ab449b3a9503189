// Program: the interface of tile programs. A program adds to the logits of a tile, and sums the tile's gradient to its
// own operands. Every hook may be left out.
#pragma once

#include "tensor/cpu/tiles/kept_scan.h"
#include "tensor/cpu/tiles/pairing.h"

namespace whence::tiles::WHENCE_TILES_TARGET {

template <class T> struct Program {
  void take(Cutter<T>&, const Problem<T>&, bool /*backward*/) {}  // scratch
  void head(const Problem<T>&, extent /*b*/, extent /*h*/) {}     // before a head's blocks
  void block(const QueryBlock<T>&) {}                             // before a block's tiles, from the last key down
  void add(const Tile<T>&, T* /*x*/) {}                           // forward, and again in backward

  // Forward: a program may sum the pattern, as the values are. `fade` scales earlier sums after a top has risen.
  void sum(const Tile<T>&, const T* /*pattern*/) {}
  void fade(const QueryBlock<T>&, const RunningSoftmax<T>&) {}
  void write(const QueryBlock<T>&, const RunningSoftmax<T>&) {}
  // Backward of that: adds the sums' part to o.do of each row, and to the pattern's gradient.
  void add_output_dot(const QueryBlock<T>&, T* /*output_dot*/) {}
  void add_gradient(const Tile<T>&, T* /*d_pattern*/) {}

  // Backward: dx to its own operands. `keeps` returns true if it keeps dx, to add it to the scores in finish().
  void gather(const Tile<T>&, const T* /*dx*/) {}
  bool keeps(const Tile<T>&, const T* /*dx*/) { return false; }
  void finish(const QueryBlock<T>&, Pairing<T>& /*scores*/) {}
  void finish(const Problem<T>&, extent /*b*/, extent /*h*/) {}
};

}  // namespace whence::tiles::WHENCE_TILES_TARGET
