// Views, which are new shapes and strides over the same numbers; and copies between layouts, dtypes and devices.
#include <algorithm>

#include "tensor/backend.h"
#include "tensor/raw.h"
#include "tensor/shape.h"

namespace whence::raw {
namespace {

// Sets the strides that read x's storage as `shape` (same number of elements); returns false if there are none. Each
// axis of x, once merged, must be a whole group of new axes.
bool view_strides(const Tensor& x, const Shape& shape, Strides& strides) {
  const MergedAxes<1> from = merged<1>(x.shape(), {x.strides()});
  int axis = from.shape.rank() - 1;
  index_t left = from.shape[axis], step = from.strides[0][axis];  // elements left of that axis, `step` apart
  for (int to = shape.rank() - 1; to >= 0; --to) {
    if (left == 1 && axis > 0) --axis, left = from.shape[axis], step = from.strides[0][axis];
    strides[to] = step;
    if (left % shape[to] != 0) return false;
    left /= shape[to];
    step *= shape[to];
  }
  return true;
}

}  // namespace

Tensor permute(const Tensor& x, const std::vector<int>& axes) {
  Shape shape;
  Strides strides;
  bool seen[max_rank] = {};
  if (static_cast<int>(axes.size()) != x.rank()) {
    fail("permute", "x is ", x.shape(), ", ", axes.size(), " axes given; each of its ", x.rank(),
        " axes is required once");
  }
  for (const int given : axes) {
    const int axis = normal_axis("permute", given, x.rank());
    if (seen[axis]) fail("permute", "x is ", x.shape(), ", axis ", axis, " given twice; each axis is required once");
    seen[axis] = true;
    shape.push_back(x.shape()[axis]);
    strides.push_back(x.strides()[axis]);
  }
  return x.view(shape, strides);
}

Tensor transpose(const Tensor& x, int axis_a, int axis_b) {
  const int a = normal_axis("transpose", axis_a, x.rank()), b = normal_axis("transpose", axis_b, x.rank());
  Shape shape = x.shape();
  Strides strides = x.strides();
  std::swap(shape[a], shape[b]);
  std::swap(strides[a], strides[b]);
  return x.view(shape, strides);
}

// Element i of the result is element begin + i step.
Tensor slice(const Tensor& x, int axis, index_t begin, index_t end, index_t step) {
  const int at = normal_axis("slice", axis, x.rank());
  const index_t extent = x.shape()[at];
  if (begin < 0 || begin > end || end > extent || step < 1) {
    fail("slice", "x is ", x.shape(), ", axis ", axis, " from ", begin, " to ", end, " step ", step,
        " given; 0 <= begin <= end <= ", extent, " and step >= 1 are required");
  }
  Shape shape = x.shape();
  step = std::min(step, std::max<index_t>(end - begin, 1));  // a longer step reads the same elements
  shape[at] = (end - begin + step - 1) / step;
  Strides strides = x.strides();
  strides[at] *= step;
  return x.view(shape, strides, shape[at] > 0 ? begin * x.strides()[at] : 0);
}

Tensor select(const Tensor& x, int axis, index_t index) {
  const int at = normal_axis("select", axis, x.rank());
  if (index < 0 || index >= x.shape()[at]) {
    fail("select", "x is ", x.shape(), ", index ", index, " of axis ", axis, " given; an index in [0, ", x.shape()[at],
        ") is required");
  }
  return x.view(x.shape().without(at), x.strides().without(at), index * x.strides()[at]);
}

// The new axis gets the stride that keeps a contiguous tensor contiguous, although no index along it exceeds 0.
Tensor unsqueeze(const Tensor& x, int axis) {
  const int at = normal_axis("unsqueeze", axis, x.rank() + 1);
  Shape shape;
  Strides strides;
  for (int i = 0; i <= x.rank(); ++i) {
    if (i == at) shape.push_back(1), strides.push_back(i < x.rank() ? x.shape()[i] * x.strides()[i] : 1);
    if (i < x.rank()) shape.push_back(x.shape()[i]), strides.push_back(x.strides()[i]);
  }
  return x.view(shape, strides);
}

// A stretched axis has stride 0: every index along it reads the same numbers.
Tensor expand(const Tensor& x, const Shape& shape) {
  if (shape == x.shape()) return x.view(x.shape(), x.strides());
  const int added = shape.rank() - x.rank();
  bool fits = added >= 0 && countable(shape) >= 0;
  Strides strides = Strides::filled(shape.rank(), 0);
  for (int axis = 0; fits && axis < x.rank(); ++axis) {
    const index_t from = x.shape()[axis], to = shape[axis + added];
    fits = from == to || from == 1;
    strides[axis + added] = from == to ? x.strides()[axis] : 0;
  }
  if (!fits) {
    fail("expand", "x is ", x.shape(), ", shape ", shape,
        " given; extents that are equal, or 1 in x, are required, aligned at the "
        "last axis");
  }
  return x.view(shape, strides);
}

// -1 cannot be computed if another extent is 0: any number would do.
Shape resolve_reshape(const Shape& from, const Shape& to) {
  Shape result = to;
  const auto open = static_cast<int>(std::ranges::find(to, -1) - to.begin());
  if (open < to.rank()) result[open] = 1;
  const index_t count = numel(from), known = countable(result);
  if (open < to.rank()) result[open] = known > 0 ? count / known : -1;
  if (known < 0 || countable(result) != count) {
    fail("reshape", "x is ", from, ", shape ", to, " given; a shape of ", count,
        " elements is required, at most one extent -1");
  }
  return result;
}

Tensor reshape(const Tensor& x, const Shape& shape) {
  const Shape resolved = resolve_reshape(x.shape(), shape);
  Strides strides = contiguous_strides(resolved);
  if (x.is_contiguous() || view_strides(x, resolved, strides)) return x.view(resolved, strides);
  return copy(x).view(resolved, contiguous_strides(resolved));
}

Tensor rows_of(const Tensor& x) {
  const Tensor rows = reshape(x, as_rows(x.shape()));
  return has_zeros_between_rows(rows) ? rows : contiguous(rows);
}

Tensor like_rows(const Tensor& rows) {
  return has_zeros_between_rows(rows) ? kernels(rows.device()).product_rows(rows, rows.size(0), rows.size(1))
                                      : Tensor::like(rows);
}

bool has_zeros_between_rows(const Tensor& rows) {
  return rows.rank() == 2 && rows.storage().row_width() == rows.size(1) && rows.strides()[1] == 1;
}

Tensor contiguous(const Tensor& x) { return x.is_contiguous() ? x : copy(x); }

Tensor copy(const Tensor& x) { return cast(x, x.dtype()); }

Tensor cast(const Tensor& x, DType dtype) {
  const Tensor result = Tensor::empty(x.shape(), dtype, x.device());
  kernels(x.device()).copy(x, result);
  return result;
}

// A copy between two GPUs goes through the CPU: it is rare, and this works for every pair of devices.
Tensor to_device(const Tensor& x, Device device) {
  if (x.device() == device) return x;
  const Tensor from = contiguous(x);
  if (!x.device().is_cpu() && !device.is_cpu()) return to_device(to_device(from, Device::cpu()), device);
  const Tensor result = Tensor::empty(x.shape(), x.dtype(), device);
  const std::size_t bytes = static_cast<std::size_t>(x.numel()) * size_of(x.dtype());
  if (bytes > 0 && device.is_cpu()) {
    backend_of(x.device()).memory->copy_to_cpu(from.bytes(), result.bytes(), bytes);
    kernels(x.device()).report_faults();
  }
  if (bytes > 0 && !device.is_cpu()) backend_of(device).memory->copy_from_cpu(from.bytes(), result.bytes(), bytes);
  return result;
}

Tensor source_beside(const char* op, const Tensor& from, const Tensor& to) {
  if (to.numel() == 0) return from;
  std::vector<std::pair<index_t, index_t>> axes;  // stride and last index
  for (int axis = 0; axis < to.rank(); ++axis) axes.emplace_back(to.strides()[axis], to.size(axis) - 1);
  std::ranges::sort(axes);
  index_t reached = 0;  // by the axes of smaller strides
  for (const auto& [stride, last] : axes) {
    if (last > 0 && stride <= reached)
      fail(op, "a ", to.shape(), " to write is given, and several of its elements are one number; copy it first");
    reached += last * stride;
  }
  const Storage &a = from.storage(), &b = to.storage();
  const bool apart = a.bytes() >= b.bytes() + b.size() || b.bytes() >= a.bytes() + a.size();
  return apart || (from.bytes() == to.bytes() && from.strides() == to.strides()) ? from : copy(from);
}

// The kernel converts between dtypes, so `from` may have another one.
void copy_into(const Tensor& from, const Tensor& to) {
  require_shape("copy_into", "from", from, to.shape());
  require_same_device("copy_into", "from", from, "to", to);
  kernels(to.device()).copy(source_beside("copy_into", from, to), to);
  to.storage().written(CallSite::here());
}

}  // namespace whence::raw
