// Views: the same numbers under another shape. Forward copies nothing; backward undoes the change of shape.
#include "autograd/linear_map.h"
#include "autograd/ops.h"
#include "tensor/raw.h"

namespace whence {

// y = x in another shape    dx = dy in x's shape
Tensor reshape(const Tensor& x, const Shape& shape, Site site) {
  const auto back = [](const Tensor& dy, const Shape& from, const Shape&) { return reshape(dy, from); };
  return linear_map("reshape", site, x, raw::reshape, back, shape);
}

// y[i_axes[0], i_axes[1], ...] = x[i_0, i_1, ...]    dx = dy under the inverse permutation
Tensor permute(const Tensor& x, const std::vector<int>& axes, Site site) {
  const auto back = [](const Tensor& dy, const Shape& from, const std::vector<int>& permutation) {
    std::vector<int> inverse(permutation.size());
    for (std::size_t k = 0; k < inverse.size(); ++k)
      inverse[static_cast<std::size_t>(normal_axis("permute", permutation[k], from.rank()))] = static_cast<int>(k);
    return permute(dy, inverse);
  };
  return linear_map("permute", site, x, raw::permute, back, axes);
}

// Swaps two axes; backward swaps those of dy.
Tensor transpose(const Tensor& x, int axis_a, int axis_b, Site site) {
  const auto back = [](const Tensor& dy, const Shape&, int a, int b) { return transpose(dy, a, b); };
  return linear_map("transpose", site, x, raw::transpose, back, axis_a, axis_b);
}

// The adjoint of slice: zeros with x in the slice.    y[begin + step k] = x[k], else 0    dx = the slice of dy
static Tensor unslice(const Tensor& x, const Shape& to, int axis, index_t begin, index_t end, index_t step, Site site) {
  const auto fill = [](const Tensor& from, const Shape& shape, int along, index_t first, index_t last, index_t by) {
    const Tensor y = Tensor::like(from, shape);
    const auto clear = [&](index_t start, index_t until) {
      if (start < until) kernels(from.device()).fill(raw::slice(y, along, start, until), 0);
    };
    // With a step of 1 only the elements that `from` does not cover.
    clear(0, by == 1 ? first : y.size(along));
    if (by == 1) clear(last, y.size(along));
    raw::copy_into(from, raw::slice(y, along, first, last, by));
    return y;
  };
  const auto back = [](const Tensor& dy, const Shape&, const Shape&, int along, index_t first, index_t last,
                        index_t by) { return slice(dy, along, first, last, by); };
  return linear_map("unslice", site, x, fill, back, to, axis, begin, end, step);
}

// y[k] = x[begin + step k] along one axis    dx = zeros with dy in the slice
Tensor slice(const Tensor& x, int axis, index_t begin, index_t end, index_t step, Site site) {
  const auto back = [](const Tensor& dy, const Shape& from, int along, index_t first, index_t last, index_t by) {
    return unslice(dy, from, along, first, last, by, Site::current());
  };
  return linear_map("slice", site, x, raw::slice, back, axis, begin, end, step);
}

// y = x at one index of an axis, which is removed    dx = zeros with dy there
Tensor select(const Tensor& x, int axis, index_t index, Site site) {
  const auto back = [](const Tensor& dy, const Shape& from, int along, index_t place) {
    const int normal = normal_axis("select", along, from.rank());
    return unslice(unsqueeze(dy, normal), from, normal, place, place + 1, 1, Site::current());
  };
  return linear_map("select", site, x, raw::select, back, axis, index);
}

// Adds an axis of extent 1; backward removes it from dy.
Tensor unsqueeze(const Tensor& x, int axis, Site site) {
  const auto back = [](const Tensor& dy, const Shape& from, int) { return reshape(dy, from); };
  return linear_map("unsqueeze", site, x, raw::unsqueeze, back, axis);
}

// y = x repeated along axes of extent 1 and new leading ones    dx = the sum of dy over them
Tensor expand(const Tensor& x, const Shape& shape, Site site) {
  const auto back = [](const Tensor& dy, const Shape& from, const Shape&) { return sum_to(dy, from); };
  return linear_map("expand", site, x, raw::expand, back, shape);
}

// y = x in row-major order    dx = dy
static Tensor in_order(const Tensor& x, Site site) {
  return linear_map("contiguous", site, x, raw::contiguous, [](const Tensor& dy, const Shape&) { return dy; });
}
Tensor contiguous(const Tensor& x, Site site) { return x.is_contiguous() ? x : in_order(x, site); }

}  // namespace whence
