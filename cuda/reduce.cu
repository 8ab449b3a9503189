// Sums and maxima over any axes, and argmax. One thread reduces a chunk of fixed length in order; the chunks' results are reduced in turn.
#include <limits>

#include "cuda/kernels.h"
#include "cuda/strided_index.h"
#include "cuda/sums.h"
#include "tensor/convert.h"
#include "tensor/launch.h"

namespace whence {
namespace {

constexpr index_t chunk_length = 1024;

// x's axes by kind: where the numbers of one output begin, and where they lie from there.
struct Axes {
  StridedIndex<1> kept, reduced;
  index_t chunks() const { return (reduced.count() + chunk_length - 1) / chunk_length; }
};

template <class T, class Out>
struct ReduceChunk {
  Axes axes;
  Reduction function;
  const T* x;
  Out* out;
  index_t chunks, count;
  WHENCE_HD void operator()(index_t i) const {
    using W = sum_t<T>;
    const bool is_sum = function == Reduction::sum;
    const T* from = x + axes.kept(i / chunks)[0];
    const index_t begin = i % chunks * chunk_length, end = begin + chunk_length < count ? begin + chunk_length : count;
    W total = is_sum ? W(0) : W(-std::numeric_limits<double>::infinity());
    for (index_t j = begin; j < end; ++j) {
      const W value = convert<W>(static_cast<compute_t<T>>(from[axes.reduced(j)[0]]));
      total = is_sum ? total + value : larger_of(total, value);
    }
    out[i] = convert<Out>(total);
  }
};

template <class T, class Out>
void reduce_axes(Reduction f, const Axes& axes, const T* x, Out* out, Device device) {
  using W = sum_t<T>;
  const index_t outputs = axes.kept.count(), chunks = axes.chunks(), count = axes.reduced.count();
  if (chunks == 1) return launch("reduce", device, outputs, ReduceChunk<T, Out>{axes, f, x, out, chunks, count}, count);
  const Tensor partial = Tensor::empty({outputs, chunks}, dtype_of<W>, device);
  launch("reduce", device, outputs * chunks, ReduceChunk<T, W>{axes, f, x, partial.data<W>(), chunks, count}, chunk_length);
  reduce_axes<W, Out>(f, {{{outputs}, {Strides{chunks}}}, {{chunks}, {Strides{1}}}}, partial.data<W>(), out, device);
}

template <class T>
struct ArgmaxRow {
  const T* x;
  index_t* out;
  index_t width;
  WHENCE_HD void operator()(index_t row) const {
    using C = compute_t<T>;
    const T* from = x + row * width;
    index_t first = 0;
    C best = from[0];
    for (index_t j = 1; j < width && best == best; ++j) {  // NaN counts as the largest
      const C value = from[j];
      if (value > best || !(value == value)) best = value, first = j;
    }
    out[row] = first;
  }
};

}  // namespace

void CudaKernels::reduce(Reduction f, const Tensor& x, const Tensor& out) {
  if (x.numel() == 0) return fill(out, 0);
  Shape kept, reduced;
  Strides kept_strides, reduced_strides;
  for (int axis = 0; axis < x.rank(); ++axis) {
    const bool keeps = out.shape()[axis] == x.shape()[axis];
    (keeps ? kept : reduced).push_back(x.shape()[axis]);
    (keeps ? kept_strides : reduced_strides).push_back(x.strides()[axis]);
  }
  const Axes axes{{kept, {kept_strides}}, {reduced, {reduced_strides}}};
  visit_floating("reduce", x.dtype(), [&]<class T>(Type<T>) { reduce_axes<T, T>(f, axes, x.data<T>(), out.data<T>(), x.device()); });
}

void CudaKernels::argmax(const Tensor& x, const Tensor& out) {
  if (x.numel() == 0) return;
  const index_t width = x.size(-1);
  visit_floating("argmax", x.dtype(), [&]<class T>(Type<T>) {
    launch("argmax", x.device(), x.numel() / width, ArgmaxRow<T>{x.data<T>(), out.data<index_t>(), width}, width);
  });
}

}  // namespace whence
