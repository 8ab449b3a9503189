// fill, copy and masked: they move numbers, and compute nothing but a rounding.
#include <algorithm>

#include "cuda/kernels/kernels.h"
#include "cuda/vocabulary/many_tensors.h"
#include "cuda/vocabulary/packs.h"
#include "tensor/launch.h"
#include "tensor/strided_index.h"

namespace whence {
namespace {

using gpu::Global, gpu::Pack, gpu::Thread;

constexpr int copy_threads = 256;

template <class T> struct Fill {
  StridedIndex<1> index;
  T* out;
  T value;
  WHENCE_HD void operator()(index_t i) const { out[index(i)[0]] = value; }
};

// Equal dtypes.
template <class T> struct Move {
  StridedIndex<2> index;
  const T* from;
  T* to;
  WHENCE_HD void operator()(index_t i) const {
    const auto at = index(i);
    to[at[1]] = from[at[0]];
  }
};

template <class T> struct MovedTensor {
  StridedIndex<2> index;  // of packs
  Global<const T> from;
  Global<T> to;
  index_t count, first_chunk;          // packs; a chunk is a block's
  index_t from_step = 0, to_step = 0;  // strides of the rows that `row` indexes
};

// Rows that are contiguous on both sides, such as heads copied from [b t h d] to [b h t d]; of one tensor, or of
// several that may differ in everything else.
// Per element: 1 number read, 1 written, no operation: memory.
template <class T, int pack, int most> struct MoveRows {
  static constexpr const char* name = "copy, rows in packs";
  static constexpr int threads = copy_threads;
  gpu::ManyTensors<MovedTensor<T>, most> all;
  Global<const index_t> row = nullptr;  // the first one, if only the device knows it
  WHENCE_HD void operator()(Thread& t) const {
    const MovedTensor<T>& mine = all.entry[all.of_chunk(t.block())];
    const index_t i = (t.block() - mine.first_chunk) * threads + t.index();
    if (i >= mine.count) return;
    const auto at = mine.index(i);
    const index_t first = row ? index_t(row[0]) : 0;
    gpu::store_pack<pack>(
        mine.to, at[1] + first * mine.to_step, gpu::load_pack<pack>(mine.from, at[0] + first * mine.from_step));
  }
};

// ---- Copies that transpose axes. A tile goes through shared memory, so that both sides are read and written along
// their own rows.

constexpr int tile_edge = 32;

// The other axes count planes of tiles. A block copies one tile: [down, along] of `to`, where `along` is contiguous in
// `to` and `down` in `from`. The tile has a spare column, so that its columns too are in different banks.
// Per element: 1 number read, 1 written, no operation: memory.
template <class T> struct TransposeTiles {
  static constexpr const char* name = "copy, transposed";
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
    const gpu::Shared<T> tile = t.template shared<T>(tile_edge * (tile_edge + 1));
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

// Returns the axis along which x is contiguous and longer than one, or -1.
int contiguous_axis(const Tensor& x) {
  for (int axis = x.rank() - 1; axis >= 0; --axis)
    if (x.strides()[axis] == 1 && x.size(axis) > 1) return axis;
  return -1;
}

// Returns true if this was such a copy; otherwise nothing is done.
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
  const index_t tiles_along = gpu::blocks_for(to.size(along), tile_edge),
                tiles_in_plane = tiles_along * gpu::blocks_for(to.size(down), tile_edge),
                blocks = numel(shape) * tiles_in_plane;
  const TransposeTiles<T> kernel{StridedIndex<2>(shape, {of_from, of_to}), gpu::global<const T>(from),
      gpu::global<T>(to), to.size(along), to.size(down), from.strides()[along], to.strides()[down],
      {tiles_along, blocks}, {tiles_in_plane, blocks}};
  gpu::launch_kernel(kernel, {.blocks = blocks, .shared_bytes = gpu::shared_bytes_for<T>(tile_edge * (tile_edge + 1))});
  return true;
}

// ---- Copies into another dtype.

template <class W> WHENCE_HD W load_as(DType dtype, const void* from, index_t i) {
  return visit(dtype, [&]<class T>(Type<T>) { return convert<W>(compute_t<T>(static_cast<const T*>(from)[i])); });
}

template <class W> WHENCE_HD void store_as(DType dtype, void* to, index_t i, W value) {
  visit(dtype, [&]<class T>(Type<T>) { static_cast<T*>(to)[i] = convert<T>(value); });
}

// Different dtypes, switched inside the kernel: one kernel per W instead of 56. W holds every value of both dtypes.
template <class W> struct Convert {
  StridedIndex<2> index;
  const void* from;
  void* to;
  DType from_dtype, to_dtype;
  WHENCE_HD void operator()(index_t i) const {
    const auto at = index(i);
    store_as(to_dtype, to, at[1], load_as<W>(from_dtype, from, at[0]));
  }
};

template <class W> void convert_all(const Tensor& from, const Tensor& to) {
  const Convert<W> body{
      {to.shape(), {from.strides(), to.strides()}}, from.bytes(), to.bytes(), from.dtype(), to.dtype()};
  launch("copy", to.device(), to.numel(), body);
}

// ---- Masks.

// y = mask ? x : value
template <class T> struct Masked {
  StridedIndex<2> index;
  const T* x;
  const bool* mask;
  T value;
  T* y;
  WHENCE_HD void operator()(index_t i) const {
    const auto at = index(i);
    y[i] = mask[at[1]] ? x[at[0]] : value;
  }
};

// Returns false, with nothing done, if rows of a tensor have no packs.
template <class T, int pack, int most>
bool move_rows(std::span<const Tensor> from, std::span<const Tensor> to, int axis = 0, const Tensor& row = {}) {
  MoveRows<T, pack, most> kernel;
  kernel.row = gpu::global<const index_t>(row);
  for (std::size_t k = 0; k < from.size(); ++k) {
    if (to[k].numel() == 0) continue;
    const auto step = [&](const Tensor& x, const Tensor& other) {
      return row.defined() && x.size(axis) > other.size(axis) ? x.strides()[axis] : 0;
    };
    const index_t from_step = step(from[k], to[k]), to_step = step(to[k], from[k]);
    const Shape& shape = to_step ? from[k].shape() : to[k].shape();
    const StridedIndex<2> index(shape, {from[k].strides(), to[k].strides()});
    const bool fits = pack == 1 || (from_step % pack == 0 && to_step % pack == 0 && index.has_packs(pack) &&
                                       index.inner_step(0) == 1 && index.inner_step(1) == 1 &&
                                       gpu::begins_with_pack(from[k], pack) && gpu::begins_with_pack(to[k], pack));
    if (!fits || kernel.all.full()) return false;
    const StridedIndex<2> packs = index.in_packs(pack);
    kernel.all.add({packs, gpu::global<const T>(from[k]), gpu::global<T>(to[k]), packs.count(), 0, from_step, to_step},
        copy_threads);
  }
  gpu::launch_kernel(kernel, {.blocks = kernel.all.chunks});
  return true;
}

// Moves by the widest packs that fit; through a tile if axes are transposed; else one by one.
template <class T> void move(const Tensor& from, const Tensor& to) {
  constexpr int pack = gpu::pack_size<T>;
  if constexpr (pack > 1) {
    if (move_rows<T, pack, 1>({&from, 1}, {&to, 1})) return;
  }
  if constexpr (pack > 4) {
    if (move_rows<T, pack / 4, 1>({&from, 1}, {&to, 1})) return;
  }
  if (transpose<T>(from, to)) return;
  launch("copy", to.device(), to.numel(),
      Move<T>{{to.shape(), {from.strides(), to.strides()}}, from.data<T>(), to.data<T>()});
}

}  // namespace

void CudaKernels::fill(const Tensor& out, double value) {
  visit(out.dtype(), [&]<class T>(Type<T>) {
    launch(
        "fill", out.device(), out.numel(), Fill<T>{{out.shape(), {out.strides()}}, out.data<T>(), convert<T>(value)});
  });
}

void CudaKernels::copy(const Tensor& from, const Tensor& to) {
  if (to.numel() == 0) return;
  if (from.dtype() != to.dtype()) {
    if (!is_floating(from.dtype())) return convert_all<std::int64_t>(from, to);
    return fits_float(from.dtype()) && fits_float(to.dtype()) ? convert_all<float>(from, to)
                                                              : convert_all<double>(from, to);
  }
  visit(to.dtype(), [&]<class T>(Type<T>) { move<T>(from, to); });
}

// In one launch: the weights of one joint product, or its heads together.
void CudaKernels::copy_all(std::span<const Tensor> from, std::span<const Tensor> to) {
  const auto as_first = [&](const Tensor& x) { return x.dtype() == to[0].dtype(); };
  bool done = from.empty();
  if (!done && std::ranges::all_of(from, as_first) && std::ranges::all_of(to, as_first))
    visit(to[0].dtype(), [&]<class T>(Type<T>) { done = move_rows<T, gpu::pack_size<T>, 8>(from, to); });
  if (!done) Kernels::copy_all(from, to);
}

void CudaKernels::copy_rows(std::span<const Tensor> from, std::span<const Tensor> to, int axis, const Tensor& row) {
  visit(to[0].dtype(), [&]<class T>(Type<T>) {
    if (!move_rows<T, gpu::pack_size<T>, 8>(from, to, axis, row) && !move_rows<T, 1, 8>(from, to, axis, row))
      Kernels::copy_rows(from, to, axis, row);
  });
}

void CudaKernels::masked(const Tensor& x, const Tensor& mask, double value, const Tensor& y) {
  visit_real("masked", x.dtype(), [&]<class T>(Type<T>) {
    launch("masked", y.device(), y.numel(),
        Masked<T>{{y.shape(), {x.strides(), mask.strides()}}, x.data<T>(), mask.data<bool>(), convert<T>(value),
            y.data<T>()});
  });
}

}  // namespace whence
