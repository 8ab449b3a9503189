// Products of large matrices, in tiles that are each multiplied on one thread: by product.cpp if the processor has
// AVX-512, else by OpenBLAS. The shapes alone decide the bits. product.cpp: the tile size does not affect bits, so it
// follows the thread count. BLAS: it may, so it follows the shapes only.
#include <algorithm>
#include <cstddef>
#include <vector>

#include "tensor/cpu/blas.h"
#include "tensor/cpu/instruction_set.h"
#include "tensor/cpu/kernels.h"
#include "tensor/cpu/product.h"
#include "tensor/cpu/threads.h"
#include "tensor/parallel.h"
#include "tensor/raw.h"
#include "tensor/strided_index.h"

namespace whence {
namespace {

using products::Tile;

// The last two axes of a tensor.
struct Matrix {
  index_t rows, columns, row_stride, column_stride;

  explicit Matrix(const Tensor& x)
      : rows(x.size(-2)), columns(x.size(-1)), row_stride(x.strides()[-2]), column_stride(x.strides()[-1]) {
    if (rows == 1 && column_stride == 1) row_stride = std::max<index_t>(columns, 1);
    if (columns == 1 && row_stride == 1) column_stride = std::max<index_t>(rows, 1);
    if (columns == 1 && row_stride > 1) column_stride = 1;
    if (rows == 1 && column_stride > 1) row_stride = 1;
  }
  // If an extent is 1, its stride has no meaning, and the constructor sets one that BLAS accepts.
  bool is_readable() const {
    return (column_stride == 1 && row_stride >= std::max<index_t>(columns, 1)) ||
           (row_stride == 1 && column_stride >= std::max<index_t>(rows, 1));
  }
};

struct Tiling {
  index_t rows, columns, depth;  // of one tile of work: rows x columns of the result, depth of the inner axis
};

// Returns the length of equal parts of at most `longest`, a multiple of `unit` if there are several.
index_t even_part(index_t extent, index_t longest, index_t unit) {
  const index_t parts = (extent + longest - 1) / longest;
  return parts <= 1 ? extent : ((extent + parts - 1) / parts + unit - 1) / unit * unit;
}

// Cuts a long inner axis if there are few tiles. This decides the bits, so it depends on the shapes alone.
index_t slab_depth(index_t batch, index_t m, index_t n, index_t k) {
  const index_t room = batch * ((m + 127) / 128) * ((n + 191) / 192);
  return room < 32 && k >= 2048 ? even_part(k, std::max<index_t>(k * room / 32, 1024), 16) : k;
}

// Tiles of at most `tallest` x 1008, which are multiplied at full speed. If there are fewer than `wanted`, sides are
// halved, but no tile gets below 64 x 48 or 2 MFLOP. Each tile packs its own columns of b and, if `packs_a`, rows of a.
Tiling choose_tiles(index_t batch, index_t m, index_t n, index_t k, index_t tallest, index_t wanted, bool packs_a) {
  Tiling tile{even_part(m, tallest, 16), even_part(n, 1008, 48), slab_depth(batch, m, n, k)};
  const index_t slabs = (k + tile.depth - 1) / tile.depth;
  const auto tiles = [&] {
    return slabs * batch * ((m + tile.rows - 1) / tile.rows) * ((n + tile.columns - 1) / tile.columns);
  };
  const auto heavy = [&] {
    return 2.0 * static_cast<double>(tile.rows * tile.columns) * static_cast<double>(tile.depth) >= 4e6;
  };
  while (tiles() < wanted && heavy() && (tile.rows > 64 || tile.columns > 96))
    if (tile.columns > 96 && (tile.rows <= 64 || !packs_a || tile.columns >= tile.rows))
      tile.columns = (tile.columns / 2 + 47) / 48 * 48;
    else
      tile.rows = std::max<index_t>((tile.rows / 2 + 15) / 16 * 16, 64);
  return tile;
}

// The bias is written first, and the product added to it while the tile is in cache.
template <class T> void multiply_by_blas(const Tile<T>& tile) {
  const auto& [a, b, rows, columns, depth, alpha, bias, to, leading] = tile;
  for (index_t i = 0; bias && i < rows; ++i) std::copy_n(bias, columns, to + i * leading);
  const blas::Factor<T> left{a.at, a.along == 1 ? a.across : a.along, a.along != 1},
      right{b.at, b.across == 1 ? b.along : b.across, b.across != 1};
  blas::multiply<T>(rows, columns, depth, alpha, left, right, bias ? T(1) : T(0), to, leading);
}

// Returns memory of this thread for packed operands. Throws std::bad_alloc if there is none: another algorithm would
// give other bits.
template <class T> T* product_scratch(index_t count) {
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  static thread_local std::vector<Line> memory;
  const std::size_t lines = (static_cast<std::size_t>(count) * sizeof(T) + 63) / 64;
  if (memory.size() < lines) memory = {}, memory.resize(lines);
  return reinterpret_cast<T*>(memory.data());
}

// out = bias + the slabs, in order.
template <class T>
void join_slabs(const T* __restrict slab, index_t slabs, index_t count, const T* bias, index_t n, T* __restrict out) {
  parallel_for(count, cpu_grain, [&](index_t begin, index_t end) {
    for (index_t i = begin; i < end; ++i) out[i] = slab[i];
    for (index_t s = 1; s < slabs; ++s) {
      const T* __restrict other = slab + s * count;
      for (index_t i = begin; i < end; ++i) out[i] += other[i];
    }
    for (index_t i = begin; bias && i < end; ++i) out[i] += bias[i % n];
  });
}

// The slabs of a cut inner axis are separate products into scratch, summed afterwards in the order of the slabs. A chunk
// of tasks is worth at least a MFLOP, so that small products of a large batch are not distributed one by one.
template <class T>
void run_product(const Tensor& left, const Tensor& right, const T* bias, T alpha, const Tensor& out) {
  static const bool has_avx512 = products::compiled && instruction_set() == InstructionSet::avx512;
  const Matrix a(left), b(right);
  const index_t m = a.rows, n = b.columns, k = a.columns;
  const bool by_blas = !has_avx512 || n < 8;  // for a few columns, packing the other operand does not pay
  const StridedIndex<2> matrices(out.shape().leading(-2), {left.strides().leading(-2), right.strides().leading(-2)});
  const index_t wanted = threads() == 1 ? 1 : 4 * index_t{threads()}, batch = matrices.count();
  const Tiling part = by_blas ? choose_tiles(batch, m, n, k, 512, 8, true)
                              : choose_tiles(batch, m, n, k, 1024, wanted, a.column_stride != 1);
  const index_t down = (m + part.rows - 1) / part.rows, across = (n + part.columns - 1) / part.columns,
                slabs = (k + part.depth - 1) / part.depth;
  const Tensor partial = slabs > 1 ? Tensor::like(out, {slabs, out.numel()}) : out;
  const double work = 2.0 * static_cast<double>(part.rows * part.columns) * static_cast<double>(part.depth);
  const index_t grain = std::max<index_t>(static_cast<index_t>(1e6 / work), 1);
  parallel_for(slabs * batch * down * across, grain, [&](index_t begin, index_t end) {
    for (index_t task = begin; task < end; ++task) {
      const index_t column = task % across * part.columns, row = task / across % down * part.rows,
                    place = task / across / down, first = place / batch * part.depth;
      const auto at = matrices(place % batch);
      const Tile<T> tile{
          {left.data<T>() + at[0] + row * a.row_stride + first * a.column_stride, a.row_stride, a.column_stride},
          {right.data<T>() + at[1] + first * b.row_stride + column * b.column_stride, b.column_stride, b.row_stride},
          std::min(part.rows, m - row), std::min(part.columns, n - column), std::min(part.depth, k - first), alpha,
          bias && slabs == 1 ? bias + column : nullptr, partial.data<T>() + (place * m + row) * n + column, n};
      if (by_blas)
        multiply_by_blas(tile);
      else if constexpr (products::compiled)
        products::multiply<T>(tile, product_scratch<T>(products::scratch_size<T>(tile.columns)));
    }
  });
  if (slabs > 1) join_slabs(partial.data<T>(), slabs, out.numel(), bias, n, out.data<T>());
}

}  // namespace

// For a few rows, as in decoding, packing b does not pay, nor for small products a call of BLAS.
void CpuKernels::matmul(const Tensor& a, const Tensor& b, const Tensor* bias, double alpha, const Tensor& out) {
  const index_t m = a.size(-2), n = b.size(-1), k = a.size(-1);
  if (out.dtype() == DType::dual || out.numel() == 0 || m < 8 || m * n * k < 4096)
    return Kernels::matmul(a, b, bias, alpha, out);
  if (out.dtype() == DType::f16 || out.dtype() == DType::bf16) {
    const Tensor wide = Tensor::empty(out.shape(), DType::f32),
                 wide_bias = bias ? raw::cast(*bias, DType::f32) : Tensor();
    matmul(raw::cast(a, DType::f32), raw::cast(b, DType::f32), bias ? &wide_bias : nullptr, alpha, wide);
    return copy(wide, out);
  }
  const auto readable = [](const Tensor& x) { return Matrix(x).is_readable() ? x : raw::copy(x); };
  const Tensor left = readable(a), right = readable(b), shift = bias ? raw::contiguous(*bias) : Tensor();
  const auto run = [&]<class T>(Type<T>) {
    run_product<T>(left, right, bias ? shift.data<T>() : nullptr, static_cast<T>(alpha), out);
  };
  out.dtype() == DType::f64 ? run(Type<double>()) : run(Type<float>());
}

}  // namespace whence
