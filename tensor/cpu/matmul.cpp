// Matrix products. One tile is multiplied on one thread, by product.cpp if the processor has AVX-512, else by OpenBLAS;
// the shapes alone decide the bits. product.cpp: the tile size does not affect bits, so it follows the thread count.
// BLAS: it may, so it follows the shapes only. For a few rows, as in decoding, packing the other operand does not pay:
// few_rows() reads it once, at the speed of memory.
#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "tensor/cpu/blas.h"
#include "tensor/cpu/block.h"
#include "tensor/cpu/instruction_set.h"
#include "tensor/cpu/kernels.h"
#include "tensor/cpu/product.h"
#include "tensor/cpu/rows.h"
#include "tensor/cpu/threads.h"
#include "tensor/parallel.h"
#include "tensor/raw.h"
#include "tensor/strided_loop.h"

namespace whence {
namespace {

using products::Tile;

constexpr index_t most_few_rows = 7;

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
  bool is_plain() const { return column_stride == 1 && row_stride >= std::max<index_t>(columns, 1); }
  bool is_transposed() const { return row_stride == 1 && column_stride >= std::max<index_t>(rows, 1); }
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

// to = bias + alpha a b by plain loops, for products where a call of BLAS costs more.
template <class T> void small_product(const Tile<T>& tile) {
  const auto& [a, b, rows, columns, depth, alpha, bias, to, leading] = tile;
  for (index_t i = 0; i < rows; ++i) {
    T* __restrict row = to + i * leading;
    for (index_t j = 0; j < columns; ++j) row[j] = bias ? bias[j] : T(0);
    for (index_t l = 0; l < depth; ++l) {
      const T factor = alpha * a.at[i * a.across + l * a.along];
      const T* __restrict other = b.at + l * b.along;
      if (b.across == 1)
        for (index_t j = 0; j < columns; ++j) row[j] += factor * other[j];
      else
        for (index_t j = 0; j < columns; ++j) row[j] += factor * other[j * b.across];
    }
  }
}

// to[r, j] = bias[j] + alpha sum_k a[r, k] b[k, j] for a few rows of a, each contiguous. b is read once from memory, in
// its own order: column by column, or a strip of columns row by row.
template <class T> void few_rows(const Tile<T>& tile) {
  const auto& [a, b, rows, columns, depth, alpha, bias, to, leading] = tile;
  const auto finish = [&tile](T sum, index_t r, index_t j) {
    tile.to[r * tile.leading + j] = (tile.bias ? tile.bias[j] : T(0)) + tile.alpha * sum;
  };
  if (b.across != 1) {
    for (index_t j = 0; j < columns; ++j) {
      const T* const column = b.at + j * b.across;
      for (index_t r = 0; r < rows; ++r) {
        const T* const row = a.at + r * a.across;
        finish(sum_of<T>(depth, [=](index_t k) { return row[k] * column[k]; }), r, j);
      }
    }
    return;
  }
  constexpr index_t strip = 512;
  T sums[most_few_rows * strip];
  for (index_t first = 0; first < columns; first += strip) {
    const index_t count = std::min(strip, columns - first);
    std::fill_n(sums, rows * strip, T(0));
    for (index_t k = 0; k < depth; ++k) {
      const T* __restrict line = b.at + k * b.along + first;
      for (index_t r = 0; r < rows; ++r) {
        const T factor = a.at[r * a.across + k];
        T* __restrict sum = sums + r * strip;
        for (index_t j = 0; j < count; ++j) sum[j] += factor * line[j];
      }
    }
    for (index_t r = 0; r < rows; ++r)
      for (index_t j = 0; j < count; ++j) finish(sums[r * strip + j], r, first + j);
  }
}

// The bias is written first, and the product added to it while the tile is in cache.
template <class T> void multiply_by_blas(const Tile<T>& tile) {
  const auto& [a, b, rows, columns, depth, alpha, bias, to, leading] = tile;
  for (index_t i = 0; bias && i < rows; ++i) std::copy_n(bias, columns, to + i * leading);
  const blas::Factor<T> left{a.at, a.along == 1 ? a.across : a.along, a.along != 1},
      right{b.at, b.across == 1 ? b.along : b.across, b.across != 1};
  blas::multiply<T>(rows, columns, depth, alpha, left, right, bias ? T(1) : T(0), to, leading);
}

// Returns the offsets of every matrix of the batch in a and in b.
std::vector<std::array<index_t, 2>> batch_offsets(const Tensor& a, const Tensor& b) {
  const StridedLoop<2> walk(a.shape().leading(-2), {a.strides().leading(-2), b.strides().leading(-2)});
  std::vector<std::array<index_t, 2>> offsets;
  offsets.reserve(static_cast<std::size_t>(walk.count()));
  walk.run(0, walk.count(), [&](const std::array<index_t, 2>& at, index_t count) {
    for (index_t i = 0; i < count; ++i)
      offsets.push_back({at[0] + i * walk.inner_stride(0), at[1] + i * walk.inner_stride(1)});
  });
  return offsets;
}

enum class By { plain_loops, few_rows, tiles, blas };

// A product, cut into tiles of work.
template <class T> struct Job {
  Matrix a, b;
  const T *pa, *pb, *bias;
  T* pc;
  T alpha;
  std::vector<std::array<index_t, 2>> offsets;  // of the matrices of the batch
  Tiling tile;
  By by;

  index_t matrices() const { return static_cast<index_t>(offsets.size()); }
  index_t down() const { return (a.rows + tile.rows - 1) / tile.rows; }
  index_t across() const { return (b.columns + tile.columns - 1) / tile.columns; }
  index_t slabs() const { return (a.columns + tile.depth - 1) / tile.depth; }
};

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

// Computes tile number `task` of job.slabs() x job.matrices() x job.down() x job.across().
template <class T> void run_tile(const Job<T>& job, index_t task) {
  const index_t m = job.a.rows, n = job.b.columns, k = job.a.columns;
  const index_t column = task % job.across() * job.tile.columns, row = task / job.across() % job.down() * job.tile.rows;
  const index_t place = task / job.across() / job.down(), matrix = place % job.matrices(),
                first = place / job.matrices() * job.tile.depth;
  const auto& at = job.offsets[static_cast<std::size_t>(matrix)];
  const Tile<T> tile{
      {job.pa + at[0] + row * job.a.row_stride + first * job.a.column_stride, job.a.row_stride, job.a.column_stride},
      {job.pb + at[1] + first * job.b.row_stride + column * job.b.column_stride, job.b.column_stride, job.b.row_stride},
      std::min(job.tile.rows, m - row), std::min(job.tile.columns, n - column), std::min(job.tile.depth, k - first),
      job.alpha, job.bias ? job.bias + column : nullptr, job.pc + (place * m + row) * n + column, n};
  if constexpr (products::compiled) {
    if (job.by == By::tiles)
      return products::multiply<T>(tile, product_scratch<T>(products::scratch_size<T>(tile.columns)));
  }
  if (job.by == By::few_rows) return few_rows(tile);
  if (job.by == By::blas) return multiply_by_blas(tile);
  small_product(tile);
}

// A chunk of tasks is worth at least a MFLOP, so that small products of a large batch are not distributed one by one.
template <class T> void run_job(const Job<T>& job) {
  const double work = 2.0 * static_cast<double>(job.tile.rows * job.tile.columns) * static_cast<double>(job.tile.depth);
  const index_t grain = std::max<index_t>(static_cast<index_t>(1e6 / work), 1);
  parallel_for(job.slabs() * job.matrices() * job.down() * job.across(), grain, [&](index_t begin, index_t end) {
    for (index_t task = begin; task < end; ++task) run_tile(job, task);
  });
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

// Returns the fastest algorithm. For a few columns, too, packing the other operand does not pay.
template <class T> By best_way(index_t m, index_t n, index_t k) {
  if (m * n * k < 4096) return By::plain_loops;
  if (m <= most_few_rows) return By::few_rows;
  static const bool has_avx512 = instruction_set() == InstructionSet::avx512;
  return has_avx512 && n >= 8 ? By::tiles : By::blas;
}

// The slabs of a cut inner axis are separate products into scratch, summed afterwards in the order of the slabs.
template <class T>
void run_product(const Tensor& a, const Tensor& b, const Tensor& bias, double alpha, const Tensor& out) {
  const index_t m = a.size(-2), n = b.size(-1), k = a.size(-1);
  Job<T> job{Matrix(a), Matrix(b), a.data<T>(), b.data<T>(), bias.defined() ? bias.data<T>() : nullptr, out.data<T>(),
      static_cast<T>(alpha), batch_offsets(a, b), {}, best_way<T>(m, n, k)};
  if (job.by == By::blas) blas::require_buffers(threads());
  const index_t wanted = threads() == 1 ? 1 : 4 * index_t{threads()};
  if (job.by == By::plain_loops)
    job.tile = {std::min<index_t>(m, 64), n, k};
  else if (job.by == By::few_rows)  // parts of b of some 256 KB, whole lines of the cache
    job.tile = {m, std::min(std::max<index_t>(65536 / k / 16 * 16, 16), n), k};
  else if (job.by == By::blas)
    job.tile = choose_tiles(job.matrices(), m, n, k, 512, 8, true);
  else
    job.tile = choose_tiles(job.matrices(), m, n, k, 1024, wanted, job.a.column_stride != 1);
  if (job.slabs() == 1) return run_job(job);
  const Tensor slabs = Tensor::like(out, {job.slabs(), out.numel()});
  const T* added = std::exchange(job.bias, nullptr);
  T* to = std::exchange(job.pc, slabs.data<T>());
  run_job(job);
  join_slabs(slabs.data<T>(), job.slabs(), out.numel(), added, n, to);
}

// True if one of the last two strides is 1 and the other long enough.
bool blas_can_read(const Tensor& x) { return Matrix(x).is_plain() || Matrix(x).is_transposed(); }

}  // namespace

void CpuKernels::matmul(const Tensor& a, const Tensor& b, const Tensor* bias, double alpha, const Tensor& out) {
  if (out.numel() == 0) return;
  if (a.size(-1) == 0)  // an empty sum
    return bias ? copy(raw::expand(*bias, out.shape()), out) : fill(out, 0);
  if (out.dtype() == DType::f16 || out.dtype() == DType::bf16) {
    const Tensor wide = Tensor::empty(out.shape(), DType::f32),
                 wide_bias = bias ? raw::cast(*bias, DType::f32) : Tensor();
    matmul(raw::cast(a, DType::f32), raw::cast(b, DType::f32), bias ? &wide_bias : nullptr, alpha, wide);
    return copy(wide, out);
  }
  const Tensor flat_bias = bias ? raw::contiguous(*bias) : Tensor();
  const bool few = a.size(-2) <= most_few_rows && a.size(-1) > 1 && a.strides()[-1] != 1;  // are read along the rows
  const Tensor left = few || !blas_can_read(a) ? raw::copy(a) : a, right = blas_can_read(b) ? b : raw::copy(b);
  visit_real("matmul", out.dtype(), [&]<class T>(Type<T>) {
    if constexpr (sizeof(T) >= 4) run_product<T>(left, right, flat_bias, alpha, out);
  });
}

}  // namespace whence
