// Matrix products. One tile is multiplied on one thread, by product.cpp where the processor has AVX-512, else by
// OpenBLAS; the shapes alone decide the bits. There are as many tiles as the threads need, because the sides of a tile
// change no bits in product.cpp; in BLAS they may, and the shapes alone decide them too. A few rows, as in decoding, are
// not worth packing the other operand for: few_rows() reads it once, at the speed of memory.
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "tensor/cpu/blas_buffers.h"
#include "tensor/cpu/block.h"
#include "tensor/cpu/instruction_set.h"
#include "tensor/cpu/kernels.h"
#include "tensor/cpu/product.h"
#include "tensor/cpu/rows.h"
#include "tensor/error.h"
#include "tensor/parallel.h"
#include "tensor/products.h"
#include "tensor/strided_loop.h"

extern "C" {
// From OpenBLAS's cblas.h, declared here because its place and the width of its int differ between distributions.
void cblas_sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float* a, int lda,
    const float* b, int ldb, float beta, float* c, int ldc);
void cblas_dgemm(int order, int trans_a, int trans_b, int m, int n, int k, double alpha, const double* a, int lda,
    const double* b, int ldb, double beta, double* c, int ldc);
void openblas_set_num_threads(int count);
}

namespace whence {
namespace {

constexpr int row_major = 101, as_is = 111, transposed = 112;
constexpr index_t most_few_rows = 7;

// While alive, OpenBLAS runs on this thread alone. What is built with OpenMP asks that for the count, on each thread
// anew; what has threads of its own is told once. OpenMP is looked up, because only the former brings it.
class SingleThreadedBlas {
 public:
  SingleThreadedBlas() {
    static const bool told = (openblas_set_num_threads(1), true);
    static_cast<void>(told);
    if (!omp_set()) return;
    previous_ = omp_get()();
    omp_set()(1);
  }
  ~SingleThreadedBlas() {
    if (omp_set()) omp_set()(previous_);
  }
  SingleThreadedBlas(const SingleThreadedBlas&) = delete;
  SingleThreadedBlas& operator=(const SingleThreadedBlas&) = delete;

 private:
  using Set = void (*)(int);
  using Get = int (*)();
  static Set omp_set() {
    static const Set set = reinterpret_cast<Set>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
    return set;
  }
  static Get omp_get() {
    static const Get get = reinterpret_cast<Get>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
    return get;
  }

  int previous_ = 1;
};

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
  // Where an extent is 1 its stride says nothing, and the constructor has put in one that BLAS accepts.
  bool is_plain() const { return column_stride == 1 && row_stride >= std::max<index_t>(columns, 1); }
  bool is_transposed() const { return row_stride == 1 && column_stride >= std::max<index_t>(rows, 1); }
  index_t leading() const { return is_plain() ? row_stride : column_stride; }
};

// One call: alpha a b (+ bias) for all matrices of a batch.
struct Product {
  Tensor a, b, out;
  const Tensor* bias;
  double alpha;
};

struct Tiling {
  index_t rows, columns, depth;  // of one tile of work: rows x columns of the result, depth of the inner axis
};

// The length of equal parts of at most `longest`, a multiple of `unit` where there are several.
index_t even_part(index_t extent, index_t longest, index_t unit) {
  const index_t parts = (extent + longest - 1) / longest;
  return parts <= 1 ? extent : ((extent + parts - 1) / parts + unit - 1) / unit * unit;
}

// A long inner axis is cut where few tiles have room beside each other, by the shapes alone: that decides the bits.
index_t slab_depth(index_t batch, index_t m, index_t n, index_t k) {
  const index_t room = batch * ((m + 127) / 128) * ((n + 191) / 192);
  return room < 32 && k >= 2048 ? even_part(k, std::max<index_t>(k * room / 32, 1024), 16) : k;
}

// Tiles of at most `tallest` x 1008, which are multiplied at full speed. Where they are fewer than `wanted`, sides are
// halved, but no tile gets below 64 x 48 or 2 MFLOP. What is packed is packed for each tile: columns of b, and, where
// `packs_a`, rows of a.
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

// One name for both precisions. A transposed operand is read as it lies: BLAS is told, nothing is copied.
void gemm(const Matrix& a, const Matrix& b, index_t m, index_t n, index_t k, float alpha, const float* pa,
    const float* pb, float beta, float* pc, index_t ldc) {
  cblas_sgemm(row_major, a.is_plain() ? as_is : transposed, b.is_plain() ? as_is : transposed, static_cast<int>(m),
      static_cast<int>(n), static_cast<int>(k), alpha, pa, static_cast<int>(a.leading()), pb,
      static_cast<int>(b.leading()), beta, pc, static_cast<int>(ldc));
}
void gemm(const Matrix& a, const Matrix& b, index_t m, index_t n, index_t k, double alpha, const double* pa,
    const double* pb, double beta, double* pc, index_t ldc) {
  cblas_dgemm(row_major, a.is_plain() ? as_is : transposed, b.is_plain() ? as_is : transposed, static_cast<int>(m),
      static_cast<int>(n), static_cast<int>(k), alpha, pa, static_cast<int>(a.leading()), pb,
      static_cast<int>(b.leading()), beta, pc, static_cast<int>(ldc));
}

// c[m, n] = start (bias or 0) + alpha a b by plain loops: for duals, and where a call of BLAS costs more.
template <class T>
void small_product(const Matrix& a, const Matrix& b, T alpha, const T* pa, const T* pb, const T* bias, index_t m,
    index_t n, index_t k, T* __restrict c, index_t ldc) {
  for (index_t i = 0; i < m; ++i) {
    T* __restrict row = c + i * ldc;
    for (index_t j = 0; j < n; ++j) row[j] = bias ? bias[j] : T(0);
    for (index_t l = 0; l < k; ++l) {
      const T factor = alpha * pa[i * a.row_stride + l * a.column_stride];
      const T* __restrict other = pb + l * b.row_stride;
      if (b.column_stride == 1)
        for (index_t j = 0; j < n; ++j) row[j] += factor * other[j];
      else
        for (index_t j = 0; j < n; ++j) row[j] += factor * other[j * b.column_stride];
    }
  }
}

// to[r, j] = bias[j] + alpha sum_k a[r, k] b[k, j] for a few rows of a, each contiguous. b is read once from memory, as it
// lies: column by column, or a strip of columns row by row.
template <class T>
void few_rows(const Matrix& a, const Matrix& b, T alpha, const T* pa, const T* pb, const T* bias, index_t columns,
    T* to, index_t leading) {
  const index_t rows = a.rows, depth = b.rows;
  const auto finished = [&](T sum, index_t j) { return (bias ? bias[j] : T(0)) + alpha * sum; };
  if (!b.is_plain()) {
    for (index_t j = 0; j < columns; ++j) {
      const T* const column = pb + j * b.column_stride;
      for (index_t r = 0; r < rows; ++r) {
        const T* const row = pa + r * a.row_stride;
        to[r * leading + j] = finished(sum_of<T>(depth, [=](index_t k) { return row[k] * column[k]; }), j);
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
      const T* __restrict line = pb + k * b.row_stride + first;
      for (index_t r = 0; r < rows; ++r) {
        const T factor = pa[r * a.row_stride + k];
        T* __restrict sum = sums + r * strip;
        for (index_t j = 0; j < count; ++j) sum[j] += factor * line[j];
      }
    }
    for (index_t r = 0; r < rows; ++r)
      for (index_t j = 0; j < count; ++j) to[r * leading + first + j] = finished(sums[r * strip + j], first + j);
  }
}

// Offsets of every matrix of the batch in a and in b.
std::vector<std::array<index_t, 2>> batch_offsets(const Product& p) {
  Shape batch;
  Strides a_strides, b_strides;
  for (int axis = 0; axis + 2 < p.out.rank(); ++axis) {
    batch.push_back(p.out.shape()[axis]);
    a_strides.push_back(p.a.strides()[axis]);
    b_strides.push_back(p.b.strides()[axis]);
  }
  const StridedLoop<2> walk(batch, {a_strides, b_strides});
  std::vector<std::array<index_t, 2>> offsets;
  offsets.reserve(static_cast<std::size_t>(walk.count()));
  walk.run(0, walk.count(), [&](const std::array<index_t, 2>& at, index_t count) {
    for (index_t i = 0; i < count; ++i)
      offsets.push_back({at[0] + i * walk.inner_stride(0), at[1] + i * walk.inner_stride(1)});
  });
  return offsets;
}

enum class By { plain_loops, few_rows, tiles, bf16_tiles, blas };

// Everything that one tile of work needs to know.
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

// Memory of this thread for packed operands. std::bad_alloc where there is none: another way would have other bits.
template <class T> T* product_scratch(index_t count) {
  struct Free {
    void operator()(T* memory) const { std::free(memory); }
  };
  static thread_local std::unique_ptr<T, Free> memory;
  static thread_local index_t held = 0;
  if (held < count) {
    memory.reset();
    held = 0;
    const std::size_t bytes = (static_cast<std::size_t>(count) * sizeof(T) + 63) / 64 * 64;
    memory.reset(static_cast<T*>(std::aligned_alloc(64, bytes)));
    if (!memory) throw std::bad_alloc();
    held = count;
  }
  return memory.get();
}

// to = bias + alpha a b. The bias is laid down first and the product added to it while the tile is in cache.
template <class T>
void multiply_by_blas(const Job<T>& job, const T* a, const T* b, const T* bias, index_t rows, index_t columns,
    index_t depth, T* to, index_t leading) {
  const blas::Buffer buffer;
  const SingleThreadedBlas single_threaded;
  for (index_t i = 0; bias && i < rows; ++i) std::copy_n(bias, columns, to + i * leading);
  gemm(job.a, job.b, rows, columns, depth, job.alpha, a, b, bias ? T(1) : T(0), to, leading);
}

// Tile number `task` of job.slabs() x job.matrices() x job.down() x job.across().
template <class T> void run_tile(const Job<T>& job, index_t task) {
  const index_t m = job.a.rows, n = job.b.columns, k = job.a.columns;
  const index_t column = task % job.across() * job.tile.columns, row = task / job.across() % job.down() * job.tile.rows;
  const index_t place = task / job.across() / job.down(), matrix = place % job.matrices(),
                first = place / job.matrices() * job.tile.depth;
  const auto& at = job.offsets[static_cast<std::size_t>(matrix)];
  const T* left = job.pa + at[0] + row * job.a.row_stride + first * job.a.column_stride;
  const T* right = job.pb + at[1] + first * job.b.row_stride + column * job.b.column_stride;
  T* to = job.pc + (place * m + row) * n + column;
  const index_t rows = std::min(job.tile.rows, m - row), columns = std::min(job.tile.columns, n - column);
  const index_t depth = std::min(job.tile.depth, k - first);
  const T* bias = job.bias ? job.bias + column : nullptr;
  if constexpr (!std::is_same_v<T, Dual>) {
    if constexpr (products::compiled) {
      if (job.by == By::tiles || job.by == By::bf16_tiles) {
        T* const scratch = product_scratch<T>(products::scratch_size<T>(columns));
        const products::Tile<T> tile{{left, job.a.row_stride, job.a.column_stride},
            {right, job.b.column_stride, job.b.row_stride}, rows, columns, depth, job.alpha, bias, to, n};
        if constexpr (std::is_same_v<T, float>)
          if (job.by == By::bf16_tiles) return products::multiply_bf16(tile, scratch);
        return products::multiply<T>(tile, scratch);
      }
    }
    if (job.by == By::few_rows) return few_rows<T>(job.a, job.b, job.alpha, left, right, bias, columns, to, n);
    if (job.by == By::blas) return multiply_by_blas(job, left, right, bias, rows, columns, depth, to, n);
  }
  small_product(job.a, job.b, job.alpha, left, right, bias, rows, columns, depth, to, n);
}

// A chunk of tasks is worth at least a MFLOP, so that small products of a large batch are not shared out one by one.
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

// What multiplies best. A few columns are not worth packing the other operand for, either.
template <class T> By best_way(index_t m, index_t n, index_t k) {
  if (std::is_same_v<T, Dual> || m * n * k < 4096) return By::plain_loops;
  if (m <= most_few_rows) return By::few_rows;
  static const bool has_avx512 = instruction_set() == InstructionSet::avx512;
  if (!has_avx512 || n < 8) return By::blas;
  return std::is_same_v<T, float> && product_numbers() == DType::bf16 ? By::bf16_tiles : By::tiles;
}

// The slabs of a cut inner axis are products of their own into scratch, summed afterwards in the order of the slabs.
template <class T> void run_product(const Product& p) {
  const Matrix a(p.a), b(p.b);
  const index_t m = a.rows, n = b.columns, k = a.columns;
  Job<T> job{a, b, p.a.data<T>(), p.b.data<T>(), p.bias ? p.bias->data<T>() : nullptr, p.out.data<T>(),
      T(static_cast<T>(p.alpha)), batch_offsets(p), {}, best_way<T>(m, n, k)};
  const bool in_tiles = job.by == By::tiles || job.by == By::bf16_tiles;
  if (job.by == By::blas || (in_tiles && !products::compiled)) blas::require_buffers(threads());
  const index_t wanted = threads() == 1 ? 1 : 4 * index_t{threads()};
  if (job.by == By::plain_loops)
    job.tile = {std::min<index_t>(m, 64), n, k};
  else if (job.by == By::few_rows)  // parts of b of some 256 KB, whole lines of the cache
    job.tile = {m, std::clamp<index_t>(65536 / k / 16 * 16, 16, n), k};
  else if (job.by == By::blas)
    job.tile = choose_tiles(job.matrices(), m, n, k, 512, 8, true);
  else
    job.tile = choose_tiles(job.matrices(), m, n, k, 1024, wanted, job.by == By::bf16_tiles || a.column_stride != 1);
  if (job.slabs() == 1) return run_job(job);
  const T* bias = std::exchange(job.bias, nullptr);
  const Tensor slabs = Tensor::empty({job.slabs(), p.out.numel()}, p.out.dtype());
  T* out = std::exchange(job.pc, slabs.data<T>());
  run_job(job);
  join_slabs(slabs.data<T>(), job.slabs(), p.out.numel(), bias, n, out);
}

Tensor converted(const Tensor& x, DType dtype) {
  Tensor result = Tensor::empty(x.shape(), dtype);
  kernels({}).copy(x, result);
  return result;
}

// One of the last two strides is 1 and the other long enough.
bool blas_can_read(const Tensor& x) {
  const Matrix matrix(x);
  return matrix.is_plain() || matrix.is_transposed();
}

// Where all matrices of a batch share b and the rows of a follow each other evenly, the batch is one tall matrix.
Product collapse_batch(const Product& p) {
  const int rank = p.out.rank();
  index_t rows = p.a.size(-2), stride = p.a.strides()[-2];
  for (int axis = rank - 3; axis >= 0; --axis) {
    const index_t extent = p.out.shape()[axis];
    if (extent == 1) continue;
    if (p.b.strides()[axis] != 0 || (rows != 1 && p.a.strides()[axis] != stride * rows)) return p;
    if (rows == 1) stride = p.a.strides()[axis];
    rows *= extent;
  }
  const index_t k = p.a.size(-1), n = p.b.size(-1);
  const Tensor tall = p.a.view({rows, k}, {stride, p.a.strides()[-1]});
  if (!blas_can_read(tall)) return p;  // rows one by one lie in ways that a matrix of them cannot
  return {
      tall, p.b.view({k, n}, {p.b.strides()[-2], p.b.strides()[-1]}), p.out.view({rows, n}, {n, 1}), p.bias, p.alpha};
}

}  // namespace

void CpuKernels::matmul(const Tensor& a, const Tensor& b, const Tensor* bias, double alpha, const Tensor& out) {
  if (out.numel() == 0) return;
  if (a.size(-1) == 0) {  // an empty sum
    if (!bias) return fill(out, 0);
    return copy(bias->view(out.shape(),
                    [&] {
                      Strides strides = Strides::filled(out.rank(), 0);
                      strides[-1] = bias->strides()[0];
                      return strides;
                    }()),
        out);
  }
  if (out.dtype() == DType::f16 || out.dtype() == DType::bf16) {
    const Tensor wide = Tensor::empty(out.shape(), DType::f32),
                 wide_bias = bias ? converted(*bias, DType::f32) : Tensor();
    matmul(converted(a, DType::f32), converted(b, DType::f32), bias ? &wide_bias : nullptr, alpha, wide);
    return copy(wide, out);
  }
  const Tensor flat_bias = bias && bias->strides()[0] != 1 ? converted(*bias, bias->dtype()) : Tensor();
  Product product{a, b, out, flat_bias.defined() ? &flat_bias : bias, alpha};
  const bool few = a.size(-2) <= most_few_rows && a.size(-1) > 1 && a.strides()[-1] != 1;  // are read along the rows
  if (!blas_can_read(a) || few) product.a = converted(a, a.dtype());
  if (!blas_can_read(b)) product.b = converted(b, b.dtype());
  product = collapse_batch(product);
  visit_floating("matmul", out.dtype(), [&]<class T>(Type<T>) {
    if constexpr (sizeof(T) >= 4) run_product<T>(product);
  });
}

}  // namespace whence
