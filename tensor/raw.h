// Functions from values to values that several ops need. They check arguments (Error that names the op), make the
// output and run a kernel. They have no gradients: models use the functions of the same name in autograd/ops.h. Outputs
// are new and contiguous, except of functions listed as views. Functions that only move numbers take any dtype;
// arithmetic needs floating tensors of one dtype and device. Negative axes count from the end.
#pragma once

#include <vector>

#include "tensor/kernels.h"
#include "tensor/tensor.h"

namespace whence::raw {

// Views: no numbers are copied.
// Axis k of the result is axis axes[k] of x.
[[nodiscard]] Tensor permute(const Tensor& x, const std::vector<int>& axes);
[[nodiscard]] Tensor transpose(const Tensor& x, int axis_a = -2, int axis_b = -1);
// Returns elements begin, begin + step, ... below end. Throws Error unless 0 <= begin <= end <= extent and step >= 1.
[[nodiscard]] Tensor slice(const Tensor& x, int axis, index_t begin, index_t end, index_t step = 1);
[[nodiscard]] Tensor select(const Tensor& x, int axis, index_t index);  // without the axis; index >= 0
[[nodiscard]] Tensor unsqueeze(const Tensor& x, int axis);         // a new axis of extent 1; axis in [-rank-1, rank]
[[nodiscard]] Tensor expand(const Tensor& x, const Shape& shape);  // stretches extents of 1, adds leading axes
// A view if the strides allow, else a copy. One extent may be -1: it is computed.
[[nodiscard]] Tensor reshape(const Tensor& x, const Shape& shape);
// Fills in the -1. Throws Error if the numbers of elements differ.
Shape resolve_reshape(const Shape& from, const Shape& to);

// rows_of returns x [... c] as [rows, c]: contiguous, or as Kernels::product_rows() made them. like_rows returns a
// new matrix with the strides of `rows`.
[[nodiscard]] Tensor rows_of(const Tensor& x);
[[nodiscard]] Tensor like_rows(const Tensor& rows);
// True for a view of the wider rows that Kernels::product_rows() may make.
[[nodiscard]] bool has_zeros_between_rows(const Tensor& rows);

[[nodiscard]] Tensor contiguous(const Tensor& x);  // x itself when it already is
[[nodiscard]] Tensor copy(const Tensor& x);        // always new
[[nodiscard]] Tensor cast(const Tensor& x, DType dtype);
[[nodiscard]] Tensor to_device(const Tensor& x, Device device);  // x itself if it is there
// Writes `from` into `to`, of equal shape and device, and bumps to's version. The two may overlap. Error if several
// elements of `to` are one number, as along an expanded axis.
void copy_into(const Tensor& from, const Tensor& to);
// Returns `from`, or a copy of it if writing `to` could change it. Throws Error, named `op`, as copy_into does.
[[nodiscard]] Tensor source_beside(const char* op, const Tensor& from, const Tensor& to);

[[nodiscard]] Tensor unary(Unary f, const Tensor& x, UnaryAttributes p = {});
[[nodiscard]] Tensor binary(const char* op, Binary f, const Tensor& a, const Tensor& b);  // broadcasts
[[nodiscard]] Tensor add(const Tensor& a, const Tensor& b);
void add_into(const Tensor& x, const Tensor& total);  // total += x in place, same shape; as copy_into

// No axes given: all axes. keep_axes: reduced axes stay with extent 1. Throws Error for the maximum of an empty axis.
[[nodiscard]] Tensor reduce(Reduction f, const Tensor& x, const std::vector<int>& axes, bool keep_axes);
[[nodiscard]] Tensor argmax(const Tensor& x);  // [... n] -> i64 [...], first of equals
// alpha a b (+ bias), [... m k] [... k n] -> [... m n]; batches broadcast.
[[nodiscard]] Tensor matmul(const Tensor& a, const Tensor& b, double alpha = 1, const Tensor* bias = nullptr);

// Checks that throw Error before anything happens. Arguments have the names of the public declaration.
void require_floating(const char* op, const char* argument, const Tensor& x);
void require_same_dtype(const char* op, const char* name_a, const Tensor& a, const char* name_b, const Tensor& b);
void require_same_device(const char* op, const char* name_a, const Tensor& a, const char* name_b, const Tensor& b);
void require_alike(const char* op, const char* name_a, const Tensor& a, const char* name_b, const Tensor& b);  // both
void require_mask(const char* op, const Tensor& x, const Tensor& mask);  // bool, on x's device
void require_shape(const char* op, const char* argument, const Tensor& x, const Shape& shape);

}  // namespace whence::raw
