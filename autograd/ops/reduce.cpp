// Sums, means and maxima along axes. In backward one number goes to all that were summed: an expanded view, no copy.
#include "autograd/check/checked.h"
#include "autograd/ops.h"
#include "tensor/raw.h"

namespace whence {
namespace {

// `from` with extent 1 on the reduced axes; no axes: all of them.
Shape kept_shape(const char* op, const Shape& from, const std::vector<int>& axes) {
  if (axes.empty()) return Shape::filled(from.rank(), 1);
  Shape kept = from;
  for (const int axis : axes) kept[normal_axis(op, axis, from.rank())] = 1;
  return kept;
}

// y = sum_{axes} x    dx = dy at every place that was summed
struct Sum {
  static constexpr const char* name = "sum";
  std::vector<int> axes;
  bool keep_axes;
  Sum(const std::vector<int>& over, bool keep) : axes(over), keep_axes(keep) {}
  struct Saved {
    Shape from;
  };
  Tensor forward(Saved& saved, const Tensor& x) const {
    raw::require_floating(name, "x", x);
    saved.from = x.shape();
    return raw::reduce(Reduction::sum, x, axes, keep_axes);
  }
  Grads<1> backward(const Saved& saved, const Tensor& dy, Needs<1>) const {
    return {expand(reshape(dy, kept_shape(name, saved.from, axes)), saved.from)};
  }
  static Samples<Sum> samples() {
    Samples<Sum> all;
    all.push_back({"all", Sum({}, false), {draw::normal({2, 3, 4})}});
    all.push_back({"middle axis", Sum({1}, false), {draw::normal({2, 3, 4})}});
    all.push_back({"two axes, kept", Sum({0, -1}, true), {draw::normal({2, 3, 4})}});
    all.push_back({"0-d", Sum({}, false), {draw::normal({})}});
    all.push_back({"of nothing", Sum({1}, false), {draw::normal({3, 0})}});
    return all;
  }
  static std::vector<BadInput> bad_inputs() {
    return {
        {"sum: axis 2 given for 2 axes; an axis in [-2, 2) is required", [] { (void)sum(draw::zeros(2, 3), {2}); }}};
  }
};

// y = (1/n) sum_{axes} x    dx = dy / n at every place that was summed
struct Mean {
  static constexpr const char* name = "mean";
  std::vector<int> axes;
  bool keep_axes;
  Mean(const std::vector<int>& over, bool keep) : axes(over), keep_axes(keep) {}
  struct Saved {
    Shape from;
    double share = 1;  // 1/n
  };
  // A sum of 16-bit numbers may leave their range although the mean is inside it: both are made in f32.
  Tensor forward(Saved& saved, const Tensor& x) const {
    raw::require_floating(name, "x", x);
    saved.from = x.shape();
    const Shape kept = kept_shape(name, x.shape(), axes);
    if (x.numel() == 0 && numel(kept) > 0)
      fail(name, "x is ", x.shape(), "; at least one element for each mean required");
    saved.share = static_cast<double>(numel(kept)) / static_cast<double>(x.numel());
    const DType wide = compute_dtype(x.dtype());
    const Tensor total = raw::reduce(Reduction::sum, wide == x.dtype() ? x : raw::cast(x, wide), axes, keep_axes);
    const Tensor y = raw::unary(functions::Affine{}, total, {saved.share, 0});
    return wide == x.dtype() ? y : raw::cast(y, x.dtype());
  }
  Grads<1> backward(const Saved& saved, const Tensor& dy, Needs<1>) const {
    return {expand(reshape(affine(dy, saved.share, 0), kept_shape(name, saved.from, axes)), saved.from)};
  }
  static Samples<Mean> samples() {
    Samples<Mean> all;
    all.push_back({"all", Mean({}, false), {draw::normal({3, 5})}});
    all.push_back({"last axis, kept", Mean({-1}, true), {draw::normal({2, 3, 4})}});
    all.push_back({"outer axes", Mean({0, 1}, false), {draw::normal({2, 3, 4})}});
    return all;
  }
};

// y = x summed over the axes that broadcasting from `to` would stretch    dx = dy expanded
struct SumTo {
  static constexpr const char* name = "sum_to";
  Shape to;
  struct Saved {
    Shape from;
  };
  Tensor forward(Saved& saved, const Tensor& x) const {
    saved.from = x.shape();
    // Axes that broadcasting added are summed away; those it stretched are summed to 1.
    const int added = x.rank() - to.rank();
    bool fits = added >= 0;
    std::vector<int> axes;
    for (int axis = 0; fits && axis < x.rank(); ++axis) {
      const index_t extent = axis < added ? 1 : to[axis - added];
      fits = extent == x.size(axis) || extent == 1;
      if (axis < added || extent != x.size(axis)) axes.push_back(axis);
    }
    if (!fits) fail(name, "x is ", x.shape(), ", shape ", to, " given; a shape that expands to x's is required");
    return raw::reshape(raw::reduce(Reduction::sum, x, axes, true), to);
  }
  Grads<1> backward(const Saved& saved, const Tensor& dy, Needs<1>) const { return {expand(dy, saved.from)}; }
  static Samples<SumTo> samples() {
    return {{"inner and leading axis", {{3, 1}}, {draw::normal({2, 3, 4})}}, {"to 0-d", {{}}, {draw::normal({2, 3})}},
        {"from nothing", {{1, 3}}, {draw::normal({0, 3})}}};
  }
  static std::vector<BadInput> bad_inputs() {
    return {{"sum_to: x is [2,3], shape [2] given; a shape that expands to x's is required",
        [] { (void)sum_to(draw::zeros(2, 3), {2}); }}};
  }
};

// y = max_j x_j = x_{argmax}: the gradient goes to the first of equal maxima, through gather.
std::vector<CheckedSample> maximum_samples() {
  const auto along = [](int axis) {
    return [axis](const std::vector<Tensor>& in) { return maximum_along(in[0], axis); };
  };
  return {{"last axis", false, {draw::normal({3, 5})}, along(-1)},
      {"middle axis", false, {draw::normal({2, 4, 3})}, along(1)},
      {"ties", true, {draw::integers({3, 6}, 0, 1)}, along(1)}, {"one axis", false, {draw::normal({7})}, along(0)}};
}
std::vector<BadInput> maximum_bad_inputs() {
  return {{"maximum_along: x is [2,0]; at least one element along axis 1 required",
      [] { (void)maximum_along(draw::zeros(2, 0), 1); }}};
}

const Checked<Sum> checked_sum;
const Checked<Mean> checked_mean;
const Checked<SumTo> checked_sum_to;
const CheckedEntry checked_maximum({"maximum_along", false, maximum_samples, maximum_bad_inputs, {}});

}  // namespace

Tensor sum(const Tensor& x, const std::vector<int>& axes, bool keep_axes, Site at) {
  return apply(Sum(axes, keep_axes), at, x);
}
Tensor mean(const Tensor& x, const std::vector<int>& axes, bool keep_axes, Site at) {
  return apply(Mean(axes, keep_axes), at, x);
}
Tensor sum_to(const Tensor& x, const Shape& shape, Site at) {
  return x.shape() == shape ? x : apply(SumTo{shape}, at, x);
}

Tensor maximum_along(const Tensor& x, int axis, Site at) {
  const CallSite place(at);
  raw::require_floating("maximum_along", "x", x);
  const int normal = normal_axis("maximum_along", axis, x.rank());
  if (x.size(normal) == 0)
    fail("maximum_along", "x is ", x.shape(), "; at least one element along axis ", normal, " required");
  const Tensor index = raw::argmax(raw::contiguous(raw::transpose(x, normal, -1)));
  return select(gather(x, normal, raw::transpose(raw::unsqueeze(index, -1), normal, -1), at), normal, 0, at);
}

}  // namespace whence
