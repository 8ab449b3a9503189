// Copies whose axes are turned. A tile goes through shared memory, so that both sides are read
// and written along their own rows.
#pragma once

#include "cuda/vocabulary/launch_kernel.h"
#include "cuda/vocabulary/packs.h"
#include "tensor/strided_index.h"

namespace whence::gpu {

inline constexpr int tile_edge = 32;

// The other axes count planes of tiles. A block copies one tile: [down, along] of `to`, where `along` is contiguous in
// `to` and `down` in `from`. The tile has a spare column, so that its columns too lie in different banks.
// Per element: 1 number read, 1 written, no operation: memory.
template <class T> struct TransposeTiles {
  static constexpr const char* name = "copy, turned";
  static constexpr int threads = 256, step = threads / tile_edge;
  StridedIndex<2> planes;  // of from and to
  Global<const T> from;
  Global<T> to;
  index_t along, down, from_along, to_down;  // extents; strides
  Divisor tiles_along, tiles_in_plane;

  WHENCE_HD void operator()(Thread& t) const {
    const auto [plane_number, in_plane] = tiles_in_plane(t.block());
    const auto [tile_down, tile_along] = tiles_along(in_plane);
    const auto plane = planes(plane_number);
    const index_t first_along = tile_along * tile_edge, first_down = tile_down * tile_edge;
    const Shared<T> tile = t.template shared<T>(tile_edge * (tile_edge + 1));
    for (int row = t.warp(); row < tile_edge; row += step) {
      const index_t a = first_along + row, d = first_down + t.lane();
      if (a < along && d < down) tile[row * (tile_edge + 1) + t.lane()] = from[plane[0] + a * from_along + d];
    }
    t.sync();
    for (int row = t.warp(); row < tile_edge; row += step) {
      const index_t d = first_down + row, a = first_along + t.lane();
      if (a < along && d < down) to[plane[1] + d * to_down + a] = tile[t.lane() * (tile_edge + 1) + row];
    }
  }
};

// The axis along which x is contiguous and longer than one; -1 when there is none.
inline int contiguous_axis(const Tensor& x) {
  for (int axis = x.rank() - 1; axis >= 0; --axis)
    if (x.strides()[axis] == 1 && x.size(axis) > 1) return axis;
  return -1;
}

// Whether this was such a copy; if not, nothing is done.
template <class T> bool transpose(const Tensor& from, const Tensor& to) {
  const int along = contiguous_axis(to), down = contiguous_axis(from);
  if (along < 0 || down < 0 || along == down) return false;
  Shape shape;
  Strides of_from, of_to;
  for (int axis = 0; axis < to.rank(); ++axis) {
    if (axis == along || axis == down) continue;
    shape.push_back(to.size(axis));
    of_from.push_back(from.strides()[axis]);
    of_to.push_back(to.strides()[axis]);
  }
  const index_t tiles_along = blocks_for(to.size(along), tile_edge),
                tiles_in_plane = tiles_along * blocks_for(to.size(down), tile_edge),
                blocks = numel(shape) * tiles_in_plane;
  const TransposeTiles<T> kernel{.planes = StridedIndex<2>(shape, {of_from, of_to}),
      .from = global<const T>(from),
      .to = global<T>(to),
      .along = to.size(along),
      .down = to.size(down),
      .from_along = from.strides()[along],
      .to_down = to.strides()[down],
      .tiles_along = {tiles_along, blocks},
      .tiles_in_plane = {tiles_in_plane, blocks}};
  launch_kernel(kernel, {.blocks = blocks, .shared_bytes = shared_bytes_for<T>(tile_edge * (tile_edge + 1))});
  return true;
}

}  // namespace whence::gpu
