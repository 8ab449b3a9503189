// Convolution of rows along their keys, as products over pairs by the library:
//   y[b] [o, i j'] = W [o, c t] x'[b] [c t, i j']        dW [o, c t] = sum_b dy[b] [o, i j'] x'[b]' [i j', c t]
// x' holds the keys that each tap reads, tap by tap; for one tap it is x itself.
#include "tensor/convolution.h"

#include <algorithm>

#include "cuda/kernels/kernels.h"
#include "cuda/library/blas.h"
#include "cuda/vocabulary/launch_kernel.h"
#include "cuda/vocabulary/packs.h"
#include "tensor/device/product_layout.h"
#include "tensor/divisor.h"
#include "tensor/launch.h"
#include "tensor/raw.h"

namespace whence {
namespace gpu {
namespace {

// x'[b, c taps + t, i, j] = x[b, c, i, j + t - left], 0 outside: a warp per row.
// Per element: 1 number read, from cache all but once in `taps`, 1 written: memory.
template <class T> struct SpreadTaps {
  static constexpr const char* name = "convolve_keys, spread";
  static constexpr int threads = 256, warps = threads / Thread::warp_size;
  using C = compute_t<T>;
  Convolution at;
  Global<const T> x;
  Global<T> spread;
  index_t count;       // of rows
  Divisor rows, taps;  // of a map, of the kernel

  WHENCE_HD void operator()(Thread& t) const {
    const index_t row = t.block() * warps + t.warp();
    if (row >= count) return;
    const auto [map, i] = rows(row);
    const auto [channel, tap] = taps(map);
    const index_t from = (channel * at.rows + i) * at.keys, shift = tap - at.left;
    for (index_t j = t.lane(); j < at.keys_out; j += Thread::warp_size) {
      const bool inside = j + shift >= 0 && j + shift < at.keys;
      store(spread, row * at.keys_out + j, inside ? load<C>(x, from + j + shift) : Number<C>(C(0)));
    }
  }
};

// The kernel as the matrix W, for maps in `pieces` (see pieces_of): element ((o, piece), (c t, piece)).
template <class T> struct KernelMatrix {
  Convolution at;
  const T* weight;
  T* matrix;
  index_t pieces;
  bool adjoint;
  WHENCE_HD void operator()(index_t index) const {
    const index_t width = at.terms() * pieces, row = index / width, column = index % width, term = column / pieces;
    const index_t from = at.in_kernel(row / pieces, term / at.taps, term % at.taps, adjoint);
    matrix[index] = row % pieces == column % pieces ? weight[from] : T{};
  }
};

// dW(o, c t) = the sum over pieces of the product's ((o, piece), (c t, piece)).
template <class T> struct SumPieces {
  const compute_t<T>* product;
  T* dweight;
  index_t terms, pieces;
  WHENCE_HD void operator()(index_t index) const {
    compute_t<T> sum = 0;
    for (index_t piece = 0; piece < pieces; ++piece)
      sum += product[(index / terms * pieces + piece) * terms * pieces + index % terms * pieces + piece];
    dweight[index] = convert<T>(sum);
  }
};

// A map of all pairs, cut into n pieces, is n rows of a matrix: 12 heads are 24 rows of half a map, in whole packs. W
// then has a block for each head, and the maps are not copied. `least`: enough pieces to keep the card busy.
index_t pieces_of(const Convolution& at, DType dtype, index_t least) {
  const index_t pack = product_pack(dtype), pairs = at.rows * at.keys_out;
  index_t pieces = least;
  while (at.outputs * pieces % pack != 0 || at.terms() * pieces % pack != 0) ++pieces;
  return pairs % (pieces * pack) == 0 ? pieces : 1;
}

// Calls f(first sequence, their number, their x') for all sequences, some at a time.
template <class T, class F> void each_spread(const Convolution& at, const Tensor& x, const F& f) {
  if (!at.spreads()) return f(index_t{0}, at.batch, x);
  const index_t most = at.sequences_at_once(sizeof(T));
  const Tensor all = Tensor::like(x, {most, at.terms(), at.rows, at.keys_out});
  for (index_t first = 0; first < at.batch; first += most) {
    const index_t some = std::min(most, at.batch - first);
    const Tensor from = raw::slice(x, 0, first, first + some), spread = raw::slice(all, 0, 0, some);
    const index_t rows = some * at.terms() * at.rows;
    const SpreadTaps<T> body{at, global<const T>(from), global<T>(spread), rows, {at.rows, rows}, {at.taps, rows}};
    launch_kernel(body, {blocks_for(rows, body.warps)});
    f(first, some, spread);
  }
}

}  // namespace
}  // namespace gpu

void CudaKernels::convolve_keys(
    const Convolution& at, const Tensor& x, const Tensor& weight, bool adjoint, const Tensor& bias, const Tensor& y) {
  if (y.numel() == 0) return;
  visit_real("convolve_keys", x.dtype(), [&]<class T>(Type<T>) {
    const index_t pieces = gpu::pieces_of(at, x.dtype(), 1), m = at.outputs * pieces, k = at.terms() * pieces,
                  n = at.rows * at.keys_out / pieces;
    const Tensor matrix = Tensor::like(x, {m, k});
    launch("convolve_keys", x.device(), m * k,
        gpu::KernelMatrix<T>{at, weight.data<T>(), matrix.data<T>(), pieces, adjoint});
    if (bias.defined()) copy(raw::expand(raw::reshape(bias, {at.outputs, 1, 1}), y.shape()), y);
    gpu::each_spread<T>(at, x, [&](index_t first, index_t some, const Tensor& spread) {
      multiply({x.dtype(), m, n, k, {matrix.bytes(), false, k, 0}, {spread.bytes(), false, n, k * n},
          raw::slice(y, 0, first, first + some).bytes(), 1, bias.defined() ? 1.0 : 0.0, some});
    });
  });
}

void CudaKernels::convolve_keys_weight(
    const Convolution& at, const Tensor& x, const Tensor& dy, const Tensor& dweight) {
  if (dy.numel() == 0) return fill(dweight, 0);
  visit_real("convolve_keys", x.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    constexpr DType wide = dtype_of<C>;
    const index_t pieces = gpu::pieces_of(at, x.dtype(), 8), m = at.outputs * pieces, n = at.terms() * pieces,
                  k = at.rows * at.keys_out / pieces;
    const Tensor products = Tensor::empty({at.batch, m, n}, wide, x.device()),
                 product = Tensor::empty({1, m, n}, wide, x.device());
    gpu::each_spread<T>(at, x, [&](index_t first, index_t some, const Tensor& spread) {
      multiply({x.dtype(), m, n, k, {raw::slice(dy, 0, first, first + some).bytes(), false, k, m * k},
          {spread.bytes(), true, k, n * k}, raw::slice(products, 0, first, first + some).bytes(), 1, 0, some, 0, true});
    });
    reduce(Reduction::sum, products, product);
    launch("convolve_keys", x.device(), dweight.numel(),
        gpu::SumPieces<T>{product.data<C>(), dweight.data<T>(), at.terms(), pieces}, pieces);
  });
}

}  // namespace whence
