#include "tensor/raw.h"

#include <algorithm>

#include "tensor/shape.h"

namespace whence::raw {
namespace {

// Returns the axes before the last two, broadcast.
Shape common_batch(const Tensor& a, const Tensor& b) {
  const int rank = std::max(a.rank(), b.rank());
  Shape batch = Shape::filled(rank - 2, 1);
  for (int axis = 0; axis < rank - 2; ++axis) {
    const int in_a = axis - (rank - a.rank()), in_b = axis - (rank - b.rank());
    const index_t of_a = in_a < 0 ? 1 : a.shape()[in_a], of_b = in_b < 0 ? 1 : b.shape()[in_b];
    if (of_a != of_b && of_a != 1 && of_b != 1) {
      fail("matmul", "a is ", a.shape(), ", b is ", b.shape(), "; batch extents ", of_a, " and ", of_b,
          " differ and neither is 1; reshape or expand one of them");
    }
    batch[axis] = of_a == 1 ? of_b : of_a;
  }
  return batch;
}

// Returns x with its batch expanded: the kernel sees equal batches, and stride 0 where one matrix serves several.
Tensor with_batch(const Tensor& x, Shape batch) {
  batch.push_back(x.size(-2));
  batch.push_back(x.size(-1));
  return expand(x, batch);
}

void require_matrix(const char* argument, const Tensor& x) {
  require_floating("matmul", argument, x);
  if (x.rank() < 2) fail("matmul", argument, " is ", x.shape(), "; two axes or more are required; use unsqueeze");
}

}  // namespace

void require_floating(const char* op, const char* argument, const Tensor& x) {
  if (!is_floating(x.dtype()))
    fail(op, argument, " is ", x.dtype(), "; a floating dtype is required; convert with cast");
}

void require_same_dtype(const char* op, const char* name_a, const Tensor& a, const char* name_b, const Tensor& b) {
  if (a.dtype() != b.dtype())
    fail(op, name_a, " is ", a.dtype(), ", ", name_b, " is ", b.dtype(), "; equal dtypes required; convert with cast");
}

void require_same_device(const char* op, const char* name_a, const Tensor& a, const char* name_b, const Tensor& b) {
  if (!(a.device() == b.device())) {
    fail(op, name_a, " is on ", to_string(a.device()), ", ", name_b, " is on ", to_string(b.device()),
        "; one device required; move with to_device");
  }
}

void require_alike(const char* op, const char* name_a, const Tensor& a, const char* name_b, const Tensor& b) {
  require_same_dtype(op, name_a, a, name_b, b);
  require_same_device(op, name_a, a, name_b, b);
}

void require_mask(const char* op, const Tensor& x, const Tensor& mask) {
  if (mask.dtype() != DType::boolean) fail(op, "mask is ", mask.dtype(), "; bool required; convert with cast");
  require_same_device(op, "x", x, "mask", mask);
}

void require_shape(const char* op, const char* argument, const Tensor& x, const Shape& shape) {
  if (!(x.shape() == shape)) fail(op, argument, " is ", x.shape(), "; ", shape, " required");
}

Tensor unary(Unary f, const Tensor& x, UnaryAttributes p) {
  require_floating("unary", "x", x);
  const Tensor y = Tensor::like(x);
  kernels(x).unary(f, p, x, y);
  return y;
}

// Broadcasting expands both sides: strides of 0 tell the kernel what to repeat.
Tensor binary(const char* op, Binary f, const Tensor& a, const Tensor& b) {
  require_floating(op, "a", a);
  require_alike(op, "a", a, "b", b);
  const Shape shape = broadcast_shapes(op, a.shape(), b.shape());
  const Tensor y = Tensor::like(a, shape);
  kernels(a).binary(f, expand(a, shape), expand(b, shape), y);
  return y;
}

Tensor add(const Tensor& a, const Tensor& b) { return binary("add", functions::Add{}, a, b); }

void add_into(const Tensor& x, const Tensor& total) {
  require_floating("add_into", "x", x);
  require_alike("add_into", "x", x, "total", total);
  require_shape("add_into", "x", x, total.shape());
  const Tensor term = source_beside("add_into", x, total);
  // The kernel may run in place, element by element; a view with gaps goes through a new sum.
  if (total.is_contiguous())
    kernels(x).binary(functions::Add{}, total, term, total);
  else
    kernels(x.device()).copy(add(total, x), total);
  total.storage().written(CallSite::here());
}

// The kernel keeps reduced axes with extent 1; they are dropped afterwards, by a view.
Tensor reduce(Reduction f, const Tensor& x, const std::vector<int>& axes, bool keep_axes) {
  const char* op = f == Reduction::sum ? "sum" : "maximum";
  require_floating(op, "x", x);
  Shape with_axes = x.shape();
  bool reduced[max_rank] = {};
  for (int axis = 0; axis < x.rank(); ++axis) reduced[axis] = axes.empty();
  for (const int given : axes) {
    const int axis = normal_axis(op, given, x.rank());
    if (reduced[axis])
      fail(op, "x is ", x.shape(), ", axis ", axis, " given twice; each axis at most once is required");
    reduced[axis] = true;
  }
  Shape without_axes;
  for (int axis = 0; axis < x.rank(); ++axis)
    if (reduced[axis])
      with_axes[axis] = 1;
    else
      without_axes.push_back(x.shape()[axis]);
  if (f == Reduction::maximum && x.numel() == 0 && numel(with_axes) > 0)
    fail(op, "x is ", x.shape(), "; at least one element along each reduced axis is required; nothing has no maximum");
  const Tensor out = Tensor::like(x, with_axes);
  kernels(x).reduce(f, x, out);
  return keep_axes ? out : out.view(without_axes, contiguous_strides(without_axes));
}

// The search is along the last axis: the result has the axes before it.
Tensor argmax(const Tensor& x) {
  require_floating("argmax", "x", x);
  if (x.rank() == 0) fail("argmax", "x is []; one axis or more is required; use unsqueeze");
  const Shape shape = x.shape().leading(-1);
  if (x.size(-1) == 0 && numel(shape) > 0)
    fail("argmax", "x is ", x.shape(), "; a last axis that is not empty is required");
  const Tensor out = Tensor::empty(shape, DType::i64, x.device());
  kernels(x).argmax(contiguous(x), out);
  return out;
}

// Neither operand is copied: the kernel handles transposed and broadcast matrices. If all matrices of a batch share b
// and the rows of a are evenly spaced, the batch becomes one tall matrix here.
Tensor matmul(const Tensor& a, const Tensor& b, double alpha, const Tensor* bias) {
  require_matrix("a", a);
  require_matrix("b", b);
  require_alike("matmul", "a", a, "b", b);
  if (a.size(-1) != b.size(-2)) {
    const bool fits_transposed = a.size(-1) == b.size(-1);
    fail("matmul", "a is ", a.shape(), ", b is ", b.shape(), "; inner extents ", a.size(-1), " and ", b.size(-2),
        " differ; equal ones are required; ", fits_transposed ? "transpose b" : "transpose or reshape one of them");
  }
  if (bias) {
    require_shape("matmul", "bias", *bias, {b.size(-1)});
    require_alike("matmul", "a", a, "bias", *bias);
  }
  const Shape batch = common_batch(a, b);
  Shape shape = batch;
  shape.push_back(a.size(-2));
  shape.push_back(b.size(-1));
  const Tensor out = Tensor::like(a, shape), left = with_batch(a, batch), right = with_batch(b, batch);
  const Shape rows = shape.leading(-1);
  const std::optional<index_t> one_b = even_step(batch, right.strides().leading(-2)),
                               step = even_step(rows, left.strides().leading(-1));
  if (batch.rank() == 0 || one_b != 0 || !step) {
    kernels(a).matmul(left, right, bias, alpha, out);
  } else {
    const index_t m = numel(rows), k = b.size(-2), n = b.size(-1);
    kernels(a).matmul(left.view({m, k}, {*step, left.strides()[-1]}),
        right.view({k, n}, {right.strides()[-2], right.strides()[-1]}), bias, alpha, out.view({m, n}, {n, 1}));
  }
  return out;
}

}  // namespace whence::raw
