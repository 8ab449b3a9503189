// Sums, means and maxima along axes. Backward gives one number to all elements that were summed: an expanded view, no
// copy.
#include "autograd/linear_map.h"
#include "autograd/ops.h"
#include "tensor/raw.h"

namespace whence {
namespace {

using AxisList = std::vector<int>;

// Returns `from` with extent 1 on the reduced axes; without axes, on all of them.
Shape kept_shape(const char* op, const Shape& from, const std::vector<int>& axes) {
  if (axes.empty()) return Shape::filled(from.rank(), 1);
  Shape kept = from;
  for (const int axis : axes) kept[normal_axis(op, axis, from.rank())] = 1;
  return kept;
}

}  // namespace

// y = sum_{axes} x    dx = dy at every summed position
Tensor sum(const Tensor& x, const std::vector<int>& axes, bool keep_axes, Site site) {
  const auto total = [](const Tensor& from, const AxisList& over, bool keep) {
    raw::require_floating("sum", "x", from);
    return raw::reduce(Reduction::sum, from, over, keep);
  };
  const auto spread = [](const Tensor& dy, const Shape& from, const AxisList& over, bool) {
    return expand(reshape(dy, kept_shape("sum", from, over)), from);
  };
  return linear_map("sum", site, x, total, spread, axes, keep_axes);
}

// y = (1/n) sum_{axes} x. A sum of 16-bit numbers may overflow although the mean does not, so both are f32.
Tensor mean(const Tensor& x, const std::vector<int>& axes, bool keep_axes, Site site) {
  const CallSite place(site);
  raw::require_floating("mean", "x", x);
  const index_t means = numel(kept_shape("mean", x.shape(), axes));
  if (x.numel() == 0 && means > 0) fail("mean", "x is ", x.shape(), "; at least one element for each mean required");
  const Tensor total = sum(cast(x, compute_dtype(x.dtype()), site), axes, keep_axes, site);
  return cast(affine(total, static_cast<double>(means) / static_cast<double>(x.numel()), 0, site), x.dtype(), site);
}

// y = x summed over the axes that broadcasting from `shape` would stretch    dx = dy expanded
Tensor sum_to(const Tensor& x, const Shape& shape, Site site) {
  const auto total = [](const Tensor& from, const Shape& to) {
    // Axes that broadcasting added are summed away; axes that it stretched are summed to extent 1.
    const int added = from.rank() - to.rank();
    bool fits = added >= 0;
    AxisList axes;
    for (int axis = 0; fits && axis < from.rank(); ++axis) {
      const index_t extent = axis < added ? 1 : to[axis - added];
      fits = extent == from.size(axis) || extent == 1;
      if (axis < added || extent != from.size(axis)) axes.push_back(axis);
    }
    if (!fits) fail("sum_to", "x is ", from.shape(), ", shape ", to, " given; a shape that expands to x's is required");
    return raw::reshape(raw::reduce(Reduction::sum, from, axes, true), to);
  };
  const auto spread = [](const Tensor& dy, const Shape& from, const Shape&) { return expand(dy, from); };
  return x.shape() == shape ? x : linear_map("sum_to", site, x, total, spread, shape);
}

// y = max_j x_j = x_{argmax}: gather sends the gradient to the first of equal maxima.
Tensor maximum_along(const Tensor& x, int axis, Site site) {
  const CallSite place(site);
  raw::require_floating("maximum_along", "x", x);
  const int normal = normal_axis("maximum_along", axis, x.rank());
  if (x.size(normal) == 0)
    fail("maximum_along", "x is ", x.shape(), "; at least one element along axis ", normal, " required");
  const Tensor index = raw::argmax(raw::contiguous(raw::transpose(x, normal, -1)));
  return select(gather(x, normal, raw::transpose(raw::unsqueeze(index, -1), normal, -1), site), normal, 0, site);
}

}  // namespace whence
