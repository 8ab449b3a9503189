// Matrix products. OpenBLAS multiplies one tile on one thread; the tiles are shared out here, cut by the shapes alone, so that the bits
// do not depend on the number of threads.
#include <algorithm>
#include <vector>

#include "tensor/cpu_block.h"
#include "tensor/cpu_kernels.h"
#include "tensor/parallel.h"
#include "tensor/strided_loop.h"

extern "C" {
// From OpenBLAS's cblas.h, declared here because its place and the width of its int differ between distributions.
void cblas_sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float* a, int lda, const float* b, int ldb,
                 float beta, float* c, int ldc);
void cblas_dgemm(int order, int trans_a, int trans_b, int m, int n, int k, double alpha, const double* a, int lda, const double* b,
                 int ldb, double beta, double* c, int ldc);
void openblas_set_num_threads(int count);
}

namespace whence {
namespace {

constexpr int row_major = 101, as_is = 111, transposed = 112;

// While alive, OpenBLAS runs on this thread alone: an OpenMP build asks OpenMP how many threads there are, a pthread build was told once.
class SingleThreadedBlas {
 public:
  SingleThreadedBlas() : previous_(omp_get_max_threads()) {
    static const bool told = (openblas_set_num_threads(1), true);
    static_cast<void>(told);
    omp_set_num_threads(1);
  }
  ~SingleThreadedBlas() { omp_set_num_threads(previous_); }
  SingleThreadedBlas(const SingleThreadedBlas&) = delete;
  SingleThreadedBlas& operator=(const SingleThreadedBlas&) = delete;

 private:
  int previous_;
};

// The last two axes of a tensor.
struct Matrix {
  index_t rows, columns, row_stride, column_stride;

  explicit Matrix(const Tensor& x) : rows(x.size(-2)), columns(x.size(-1)), row_stride(x.strides()[-2]), column_stride(x.strides()[-1]) {
    if (rows == 1 && column_stride == 1) row_stride = std::max<index_t>(columns, 1);
    if (columns == 1 && row_stride == 1) column_stride = std::max<index_t>(rows, 1);
    if (columns == 1 && row_stride > 1) column_stride = 1;
    if (rows == 1 && column_stride > 1) row_stride = 1;
  }
  bool is_plain() const { return column_stride == 1 && row_stride >= std::max<index_t>(columns, 1); }
  bool is_transposed() const { return row_stride == 1 && column_stride >= std::max<index_t>(rows, 1); }
  index_t leading() const { return is_plain() ? row_stride : column_stride; }
};

// alpha a b (+ bias) for all matrices of a batch. Batch offsets are looked up by a strided walk.
struct Product {
  Tensor a, b, out;
  const Tensor* bias;
  double alpha;
};

struct Tiling {
  index_t rows, columns;  // of one tile
};

// Tiles of at most 256 x 512, halved until there are enough of them to share, but not below 64 x 64 nor below 2 MFLOP each.
Tiling choose_tiles(index_t batch, index_t m, index_t n, index_t k) {
  Tiling tile{std::min<index_t>(m, 256), std::min<index_t>(n, 512)};
  const auto tiles = [&] { return batch * ((m + tile.rows - 1) / tile.rows) * ((n + tile.columns - 1) / tile.columns); };
  const auto heavy = [&] { return 2.0 * static_cast<double>(tile.rows * tile.columns) * static_cast<double>(k) >= 4e6; };
  while (tiles() < 8 && heavy() && (tile.rows > 64 || tile.columns > 64)) {
    index_t& side = tile.columns >= tile.rows && tile.columns > 64 ? tile.columns : tile.rows;
    side = std::max<index_t>((side + 1) / 2, 64);
  }
  return tile;
}

void gemm(const Matrix& a, const Matrix& b, index_t m, index_t n, index_t k, float alpha, const float* pa, const float* pb, float beta,
          float* pc, index_t ldc) {
  cblas_sgemm(row_major, a.is_plain() ? as_is : transposed, b.is_plain() ? as_is : transposed, static_cast<int>(m), static_cast<int>(n),
              static_cast<int>(k), alpha, pa, static_cast<int>(a.leading()), pb, static_cast<int>(b.leading()), beta, pc,
              static_cast<int>(ldc));
}
void gemm(const Matrix& a, const Matrix& b, index_t m, index_t n, index_t k, double alpha, const double* pa, const double* pb,
          double beta, double* pc, index_t ldc) {
  cblas_dgemm(row_major, a.is_plain() ? as_is : transposed, b.is_plain() ? as_is : transposed, static_cast<int>(m), static_cast<int>(n),
              static_cast<int>(k), alpha, pa, static_cast<int>(a.leading()), pb, static_cast<int>(b.leading()), beta, pc,
              static_cast<int>(ldc));
}

// c[m, n] = start (bias or 0) + alpha a b by plain loops: for dual numbers, and where a call of BLAS costs more than the product.
template <class T>
void small_product(const Matrix& a, const Matrix& b, T alpha, const T* pa, const T* pb, const T* bias, index_t m, index_t n, index_t k,
                   T* __restrict c, index_t ldc) {
  for (index_t i = 0; i < m; ++i) {
    T* __restrict row = c + i * ldc;
    for (index_t j = 0; j < n; ++j) row[j] = bias ? bias[j] : T(0);
    for (index_t l = 0; l < k; ++l) {
      const T factor = alpha * pa[i * a.row_stride + l * a.column_stride];
      const T* __restrict other = pb + l * b.row_stride;
      if (b.column_stride == 1) {
        for (index_t j = 0; j < n; ++j) row[j] += factor * other[j];
      } else {
        for (index_t j = 0; j < n; ++j) row[j] += factor * other[j * b.column_stride];
      }
    }
  }
}

// One tile of one matrix: bias first, then the product on top of it while the tile is in cache.
template <class T>
void tile_product(const Matrix& a, const Matrix& b, T alpha, const T* pa, const T* pb, const T* bias, index_t m, index_t n, T* pc,
                  index_t ldc) {
  const index_t k = a.columns;
  if (bias) {
    for (index_t i = 0; i < m; ++i) std::copy_n(bias, n, pc + i * ldc);
  }
  gemm(a, b, m, n, k, alpha, pa, pb, bias ? T(1) : T(0), pc, ldc);
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
    for (index_t i = 0; i < count; ++i) offsets.push_back({at[0] + i * walk.inner_stride(0), at[1] + i * walk.inner_stride(1)});
  });
  return offsets;
}

template <class T>
void run_product(const Product& p) {
  const Matrix a(p.a), b(p.b);
  const index_t m = a.rows, n = b.columns, k = a.columns;
  const auto offsets = batch_offsets(p);
  const index_t batch = static_cast<index_t>(offsets.size());
  const bool plain_loops = std::is_same_v<T, Dual> || m * n * k < 4096;
  const Tiling tile = plain_loops ? Tiling{std::min<index_t>(m, 64), n} : choose_tiles(batch, m, n, k);
  const index_t down = (m + tile.rows - 1) / tile.rows, across = (n + tile.columns - 1) / tile.columns;
  const T *pa = p.a.data<T>(), *pb = p.b.data<T>(), *bias = p.bias ? p.bias->data<T>() : nullptr;
  T* pc = p.out.data<T>();
  const double tile_work = 2.0 * static_cast<double>(tile.rows * tile.columns) * static_cast<double>(k);
  const index_t grain = std::max<index_t>(static_cast<index_t>(1e6 / tile_work), 1);
  parallel_for(batch * down * across, grain, [&](index_t begin, index_t end) {
    const SingleThreadedBlas single_threaded;
    for (index_t task = begin; task < end; ++task) {
      const index_t column = task % across * tile.columns, row = task / across % down * tile.rows, matrix = task / across / down;
      const auto& at = offsets[static_cast<std::size_t>(matrix)];
      const T* left = pa + at[0] + row * a.row_stride;
      const T* right = pb + at[1] + column * b.column_stride;
      T* to = pc + (matrix * m + row) * n + column;
      const index_t rows = std::min(tile.rows, m - row), columns = std::min(tile.columns, n - column);
      const T* shift = bias ? bias + column : nullptr;
      if constexpr (!std::is_same_v<T, Dual>) {
        if (!plain_loops) {
          tile_product(a, b, static_cast<T>(p.alpha), left, right, shift, rows, columns, to, n);
          continue;
        }
      }
      small_product(a, b, T(p.alpha), left, right, shift, rows, columns, k, to, n);
    }
  });
}

Tensor converted(const Tensor& x, DType dtype) {
  Tensor result = Tensor::empty(x.shape(), dtype);
  cpu_kernels().copy(x, result);
  return result;
}

bool blas_can_read(const Tensor& x) {
  const Matrix matrix(x);
  return matrix.is_plain() || matrix.is_transposed();
}

// Where all matrices of a batch meet the same b and the rows of a follow each other evenly, the batch is one tall matrix.
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
  return {p.a.view({rows, k}, {stride, p.a.strides()[-1]}), p.b.view({k, n}, {p.b.strides()[-2], p.b.strides()[-1]}),
          p.out.view({rows, n}, {n, 1}), p.bias, p.alpha};
}

}  // namespace

void CpuKernels::matmul(const Tensor& a, const Tensor& b, const Tensor* bias, double alpha, const Tensor& out) {
  if (out.numel() == 0) return;
  if (a.size(-1) == 0) {  // an empty sum
    if (!bias) return fill(out, 0);
    return copy(bias->view(out.shape(), [&] {
      Strides strides = Strides::filled(out.rank(), 0);
      strides[-1] = bias->strides()[0];
      return strides;
    }()), out);
  }
  if (out.dtype() == DType::f16 || out.dtype() == DType::bf16) {
    const Tensor wide = Tensor::empty(out.shape(), DType::f32), wide_bias = bias ? converted(*bias, DType::f32) : Tensor();
    matmul(converted(a, DType::f32), converted(b, DType::f32), bias ? &wide_bias : nullptr, alpha, wide);
    return copy(wide, out);
  }
  const Tensor flat_bias = bias && bias->strides()[0] != 1 ? converted(*bias, bias->dtype()) : Tensor();
  Product product{a, b, out, flat_bias.defined() ? &flat_bias : bias, alpha};
  if (!blas_can_read(a)) product.a = converted(a, a.dtype());
  if (!blas_can_read(b)) product.b = converted(b, b.dtype());
  product = collapse_batch(product);
  visit_floating("matmul", out.dtype(), [&]<class T>(Type<T>) {
    if constexpr (sizeof(T) >= 4) run_product<T>(product);
  });
}

}  // namespace whence
