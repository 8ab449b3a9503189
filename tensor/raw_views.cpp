// Views: new shapes and strides over the same numbers; and copies between layouts, dtypes and devices.
#include "tensor/device/allocator.h"
#include "tensor/device/backend.h"
#include "tensor/raw.h"

namespace whence::raw {
namespace {

// Shapes with one axis changed or gone.
Shape with_extent(Shape shape, int axis, index_t extent) {
  shape[axis] = extent;
  return shape;
}

template <class Axes> Axes without_axis(const Axes& axes, int axis) {
  Axes result;
  for (int i = 0; i < axes.rank(); ++i)
    if (i != axis) result.push_back(axes[i]);
  return result;
}

// The strides with which `shape` (same number of elements) can be read from x's storage; false when it cannot. Axes of
// x are taken in groups that hold as many elements as a group of new axes; inside a group x must step evenly.
bool view_strides(const Tensor& x, const Shape& shape, Strides& strides) {
  Shape from;
  Strides from_strides;
  for (int axis = 0; axis < x.rank(); ++axis)
    if (x.shape()[axis] != 1) from.push_back(x.shape()[axis]), from_strides.push_back(x.strides()[axis]);
  strides = Strides::filled(shape.rank(), 1);
  int begin = 0, to_begin = 0;
  while (begin < from.rank() && to_begin < shape.rank()) {
    int end = begin + 1, to_end = to_begin + 1;
    index_t count = from[begin], to_count = shape[to_begin];
    // Grow whichever side holds fewer elements until the group on both sides is the same run of elements.
    while (count != to_count) {
      if (count < to_count) {
        if (from_strides[end - 1] != from_strides[end] * from[end]) return false;
        count *= from[end++];
      } else {
        to_count *= shape[to_end++];
      }
    }
    // Inside a group the new axes step through that run, the last by its smallest stride.
    index_t step = from_strides[end - 1];
    for (int axis = to_end - 1; axis >= to_begin; --axis) {
      strides[axis] = step;
      step *= shape[axis];
    }
    begin = end;
    to_begin = to_end;
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
  const index_t count = (end - begin + step - 1) / step;
  Strides strides = x.strides();
  strides[at] *= step;
  return x.view(with_extent(x.shape(), at, count), strides, count > 0 ? begin * x.strides()[at] : 0);
}

Tensor select(const Tensor& x, int axis, index_t index) {
  const int at = normal_axis("select", axis, x.rank());
  if (index < 0 || index >= x.shape()[at]) {
    fail("select", "x is ", x.shape(), ", index ", index, " of axis ", axis, " given; an index in [0, ", x.shape()[at],
        ") is required");
  }
  return x.view(without_axis(x.shape(), at), without_axis(x.strides(), at), index * x.strides()[at]);
}

// The new axis gets the stride that keeps a contiguous tensor contiguous, although nothing ever steps along it.
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

// A stretched axis has stride 0: every index along it finds the same numbers.
Tensor expand(const Tensor& x, const Shape& shape) {
  if (shape == x.shape()) return x.view(x.shape(), x.strides());
  const int added = shape.rank() - x.rank();
  bool fits = added >= 0;
  Strides strides = Strides::filled(shape.rank(), 0);
  for (int axis = 0; fits && axis < x.rank(); ++axis) {
    const index_t from = x.shape()[axis], to = shape[axis + added];
    fits = to >= 0 && (from == to || from == 1);
    strides[axis + added] = from == to ? x.strides()[axis] : 0;
  }
  if (!fits) {
    fail("expand", "x is ", x.shape(), ", shape ", shape,
        " given; extents that are equal, or 1 in x, are required, aligned at the "
        "last axis");
  }
  return x.view(shape, strides);
}

// -1 cannot be worked out where another extent is 0: any number would do.
Shape resolve_reshape(const Shape& from, const Shape& to) {
  index_t known = 1;
  int open = -1, count_open = 0;
  bool legal = true;
  for (int axis = 0; axis < to.rank(); ++axis) {
    if (to[axis] == -1) {
      open = axis, ++count_open;
    } else {
      legal = legal && to[axis] >= 0;
      known *= to[axis];
    }
  }
  Shape result = to;
  const index_t count = numel(from);
  if (count_open == 1 && known > 0 && count % known == 0) result[open] = count / known;
  if (!legal || count_open > 1 || (count_open == 1 && result[open] < 0) || numel(result) != count) {
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

Tensor contiguous(const Tensor& x) { return x.is_contiguous() ? x : copy(x); }

Tensor copy(const Tensor& x) {
  const Tensor result = Tensor::empty(x.shape(), x.dtype(), x.device());
  kernels(x.device()).copy(x, result);
  return result;
}

Tensor cast(const Tensor& x, DType dtype) {
  const Tensor result = Tensor::empty(x.shape(), dtype, x.device());
  kernels(x.device()).copy(x, result);
  return result;
}

// Between two GPUs by way of the CPU: rare, and every pair of devices can do it.
Tensor to_device(const Tensor& x, Device device) {
  if (x.device() == device) return x;
  const Tensor from = contiguous(x);
  if (!x.device().is_cpu() && !device.is_cpu()) return to_device(to_device(from, Device::cpu()), device);
  const Tensor result = Tensor::empty(x.shape(), x.dtype(), device);
  const std::size_t bytes = static_cast<std::size_t>(x.numel()) * size_of(x.dtype());
  if (bytes > 0 && device.is_cpu()) {
    memory_of(x.device()).source().copy_to_cpu(from.bytes(), result.bytes(), bytes);
    kernels(x.device()).report_faults();
  }
  if (bytes > 0 && !device.is_cpu()) memory_of(device).source().copy_from_cpu(from.bytes(), result.bytes(), bytes);
  return result;
}

// The kernel converts between dtypes, so `from` may have another one.
void copy_into(const Tensor& from, const Tensor& to) {
  require_shape("copy_into", "from", from, to.shape());
  require_same_device("copy_into", "from", from, "to", to);
  kernels(to.device()).copy(from, to);
  to.storage().written(CallSite::current() ? *CallSite::current() : Site::current());
}

}  // namespace whence::raw
