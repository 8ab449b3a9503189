// Running sums along an axis, from either end. The adjoint of one direction is the other.
//   y_j = sum_{l <= j} x_l    dx_l = sum_{j >= l} dy_j        x_l is in every y_j from j = l on
#include "autograd/linear_map.h"
#include "autograd/ops.h"
#include "tensor/raw.h"

namespace whence {
namespace {

// Sums from x's dtype into another. A dual stays dual, as in cast. The kernel sums along the last axis.
Tensor running_sum(const Tensor& x, int axis, bool reverse, DType dtype, const Site& site) {
  const auto sums = [](const Tensor& from, int at, bool backwards, DType to, DType) {
    const Tensor rows = raw::contiguous(raw::transpose(from, at, -1));
    const Tensor y = Tensor::empty(rows.shape(), from.dtype() == DType::dual ? DType::dual : to, from.device());
    kernels(from).cumulative_sum(rows, backwards, y);
    return raw::contiguous(raw::transpose(y, at, -1));
  };
  const auto back = [](const Tensor& dy, const Shape&, int at, bool backwards, DType, DType from) {
    return running_sum(dy, at, !backwards, from, Site::current());
  };
  const char* name = reverse ? "reverse_cumulative_sum" : "cumulative_sum";
  return linear_map(name, site, x, sums, back, axis, reverse, dtype, x.dtype());
}

Tensor along(const Tensor& x, int axis, bool reverse, bool wide, const Site& site) {
  const CallSite place(site);
  const char* name = reverse ? "reverse_cumulative_sum" : "cumulative_sum";
  raw::require_floating(name, "x", x);
  if (x.rank() == 0) fail(name, "x is []; at least one axis required");
  const DType dtype = wide ? compute_dtype(x.dtype()) : x.dtype();
  return running_sum(x, normal_axis(name, axis, x.rank()), reverse, dtype, site);
}

}  // namespace

Tensor cumulative_sum(const Tensor& x, int axis, Site site) { return along(x, axis, false, false, site); }
Tensor reverse_cumulative_sum(const Tensor& x, int axis, bool wide, Site site) {
  return along(x, axis, true, wide, site);
}

}  // namespace whence
