// Pick along one axis.    x:[... n ...]  index:[... j ...]  ->  y[..., j, ...] = x[..., index[..., j, ...], ...]
//   dx[..., index[..., j, ...], ...] += dy[..., j, ...]    in order of j, so the bits are the same on every run
#include "autograd/checked.h"
#include "autograd/ops.h"
#include "autograd/ops/index.h"
#include "tensor/launch.h"

namespace whence {
namespace {

// x seen as [outer, rows, inner] and index as [outer, count, inner], with the axis in the middle.
struct Layout {
  index_t outer = 1, rows, count, inner = 1;
};
Layout layout_of(const Shape& index, int axis, index_t rows) {
  Layout at{.rows = rows, .count = index[axis]};
  for (int k = 0; k < axis; ++k) at.outer *= index[k];
  for (int k = axis + 1; k < index.rank(); ++k) at.inner *= index[k];
  return at;
}

template <class T>
struct Pick {
  const T* x;
  const index_t* index;
  T* y;
  Layout at;
  WHENCE_HD void operator()(index_t line) const {  // line: one (outer, j)
    const T* from = x + line / at.count * at.rows * at.inner;
    for (index_t k = 0; k < at.inner; ++k) y[line * at.inner + k] = from[index[line * at.inner + k] * at.inner + k];
  }
};

template <class T>
struct Scatter {
  const T* dy;
  const index_t* index;
  compute_t<T>* dx;  // zeroed
  Layout at;
  WHENCE_HD void operator()(index_t column) const {  // column: one (outer, inner); j in order
    const index_t outer = column / at.inner, k = column % at.inner;
    compute_t<T>* into = dx + outer * at.rows * at.inner + k;
    for (index_t j = 0; j < at.count; ++j) {
      const index_t i = (outer * at.count + j) * at.inner + k;
      into[index[i] * at.inner] += compute_t<T>(dy[i]);
    }
  }
};

Tensor scatter_add(const Tensor& dy, const Tensor& index, int axis, index_t rows);

struct Gather {
  static constexpr const char* name = "gather";
  int axis;
  struct Saved {
    SavedTensor index;
    index_t rows = 0;
  };

  Tensor forward(Saved& saved, const Tensor& x, const Tensor& index) const {
    check(x, index, axis);
    // The index is looked at before anything runs: an error here leaves nothing half-done.
    const Tensor places = detail::checked_index(name, "index", index, x.size(axis)), from = raw::contiguous(x);
    saved.index = places;
    saved.rows = x.size(axis);
    const Tensor y = Tensor::empty(index.shape(), x.dtype(), x.device());
    const Layout at = layout_of(index.shape(), axis, x.size(axis));
    visit_floating(name, x.dtype(), [&]<class T>(Type<T>) {
      launch(name, x.device(), at.outer * at.count, Pick<T>{from.data<T>(), places.data<index_t>(), y.data<T>(), at}, at.inner);
    });
    return y;
  }
  Grads<2> backward(const Saved& saved, const Tensor& dy, Needs<2>) const {
    return {scatter_add(dy, saved.index.get(), axis, saved.rows), Tensor()};
  }

  static void check(const Tensor& x, const Tensor& index, int axis) {
    raw::require_floating(name, "x", x);
    raw::require_same_device(name, x, index);
    bool agree = x.rank() == index.rank();
    for (int k = 0; agree && k < x.rank(); ++k) agree = k == axis || x.size(k) == index.size(k);
    if (!agree) fail(name, concat("x is ", x.shape(), ", index is ", index.shape(), "; equal extents outside axis ", axis, " required"));
  }
  static Samples<Gather> samples() {
    return {{"last axis", {1}, {draw::normal({3, 5}), draw::index({3, 7}, 5)}},
            {"first axis", {0}, {draw::normal({4, 2, 3}), draw::index({6, 2, 3}, 4)}},
            {"middle axis", {1}, {draw::normal({2, 3, 4}), draw::index({2, 2, 4}, 3)}},
            {"no index", {1}, {draw::normal({2, 3}), draw::index({2, 0}, 3)}}};
  }
  static std::vector<BadInput> bad_inputs() {
    return {{"gather: index at [1,0] is 3; a value in [0, 3) required",
             [] {
               (void)gather(Tensor::zeros({2, 3}), 1, Tensor::of({0, 3}, {2, 1}, DType::i64));
             }},
            {"gather: x is [2,3], index is [3,1]; equal extents outside axis 1 required",
             [] {
               (void)gather(Tensor::zeros({2, 3}), 1, Tensor::zeros({3, 1}, DType::i64));
             }},
            {"gather: index is f32; i64 or i32 required; convert with cast", [] {
               (void)gather(Tensor::zeros({2, 3}), 1, Tensor::zeros({2, 1}));
             }}};
  }
  static Tensor reference(const std::vector<Tensor>& in) {
    std::vector<double> y;
    for (index_t i = 0; i < in[1].size(0); ++i) {
      for (index_t j = 0; j < in[1].size(1); ++j) y.push_back(in[0].at({i, static_cast<index_t>(in[1].at({i, j}))}));
    }
    return Tensor::of(y, in[1].shape(), DType::f64);
  }
};

// Columns are independent and each is walked in order, so no two threads meet and no order of additions depends on them.
// The adjoint of gather, an op so that it has a gradient too: ddy = ddx gathered at index.
struct ScatterAdd {
  static constexpr const char* name = "scatter_add";
  int axis;
  index_t rows;
  struct Saved {
    SavedTensor index;
  };
  Tensor forward(Saved& saved, const Tensor& dy, const Tensor& index) const {
    saved.index = index;
    const Tensor from = raw::contiguous(dy), places = raw::contiguous(index);
    Shape shape = dy.shape();
    shape[axis] = rows;
    // 16-bit sums are made in f32 and rounded once at the end.
    const Tensor sums = Tensor::zeros(shape, detail::sum_dtype(dy.dtype()), dy.device());
    const Layout at = layout_of(dy.shape(), axis, rows);
    visit_floating(name, dy.dtype(), [&]<class T>(Type<T>) {
      launch(name, dy.device(), at.outer * at.inner, Scatter<T>{from.data<T>(), places.data<index_t>(), sums.data<compute_t<T>>(), at},
             at.count);
    });
    return sums.dtype() == dy.dtype() ? sums : raw::cast(sums, dy.dtype());
  }
  Grads<2> backward(const Saved& saved, const Tensor& dz, Needs<2>) const { return {gather(dz, axis, saved.index.get()), Tensor()}; }
  static Samples<ScatterAdd> samples() {
    return {{"last axis", {1, 4}, {draw::normal({3, 7}), draw::index({3, 7}, 4)}},
            {"first axis, one row hit often", {0, 2}, {draw::normal({6, 2}), draw::index({6, 2}, 1)}}};
  }
};

Tensor scatter_add(const Tensor& dy, const Tensor& index, int axis, index_t rows) {
  return apply(ScatterAdd{axis, rows}, Site::current(), dy, index);
}

const Checked<Gather> checked;
const Checked<ScatterAdd> checked_adjoint;

}  // namespace

Tensor gather(const Tensor& x, int axis, const Tensor& index, Site at) {
  const CallSite place(at);
  return apply(Gather{normal_axis(Gather::name, axis, x.rank())}, at, x, index);
}

}  // namespace whence
