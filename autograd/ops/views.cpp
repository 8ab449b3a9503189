// Views: the same numbers under another shape. Forward copies nothing; backward undoes the change of shape.
#include "autograd/check/checked.h"
#include "autograd/ops.h"
#include "tensor/raw.h"

namespace whence {
namespace {

// y = x in another shape    dx = dy in x's shape
struct Reshape {
  static constexpr const char* name = "reshape";
  Shape to;
  struct Saved {
    Shape from;
  };
  Tensor forward(Saved& saved, const Tensor& x) const {
    saved.from = x.shape();
    return raw::reshape(x, to);
  }
  Grads<1> backward(const Saved& saved, const Tensor& dy, Needs<1>) const { return {reshape(dy, saved.from)}; }
  static Samples<Reshape> samples() {
    return {{"merge", {{6, 4}}, {draw::normal({2, 3, 4})}},
        {"split, one extent worked out", {{3, -1, 2}}, {draw::normal({12})}}, {"to 0-d", {{}}, {draw::normal({1, 1})}},
        {"empty", {{0, 7}}, {draw::normal({3, 0})}}};
  }
  static std::vector<BadInput> bad_inputs() {
    return {{"reshape: x is [2,3], shape [4,2] given; a shape of 6 elements is required, at most one extent -1", [] {
               (void)reshape(draw::zeros(2, 3), {4, 2});
             }}};
  }
};

// y[i_axes[0], i_axes[1], ...] = x[i_0, i_1, ...]    dx = dy under the inverse permutation
struct Permute {
  static constexpr const char* name = "permute";
  std::vector<int> axes;
  struct Saved {};
  Tensor forward(Saved&, const Tensor& x) const { return raw::permute(x, axes); }
  Grads<1> backward(const Saved&, const Tensor& dy, Needs<1>) const {
    std::vector<int> inverse(axes.size());
    for (std::size_t k = 0; k < axes.size(); ++k)
      inverse[static_cast<std::size_t>(normal_axis(name, axes[k], dy.rank()))] = static_cast<int>(k);
    return {permute(dy, inverse)};
  }
  static Samples<Permute> samples() {
    Samples<Permute> all;
    all.push_back({"cycle of three", {{1, 2, 0}}, {draw::normal({2, 3, 4})}});
    all.push_back({"[b t h d] to [b h t d]", {{0, 2, 1, 3}}, {draw::normal({2, 3, 4, 5})}});
    all.push_back({"negative axes", {{-1, 0, -2}}, {draw::normal({3, 3, 3})}});
    all.push_back({"0-d", {{}}, {draw::normal({})}});
    return all;
  }
  static std::vector<BadInput> bad_inputs() {
    return {{"permute: x is [2,3], axis 0 given twice; each axis is required once",
                [] {
                  (void)permute(draw::zeros(2, 3), {0, 0});
                }},
        {"permute: x is [2,3], 1 axes given; each of its 2 axes is required once",
            [] { (void)permute(draw::zeros(2, 3), {0}); }}};
  }
};

// Two axes change places; so do those of dy.
struct Transpose {
  static constexpr const char* name = "transpose";
  int axis_a, axis_b;
  struct Saved {};
  Tensor forward(Saved&, const Tensor& x) const { return raw::transpose(x, axis_a, axis_b); }
  Grads<1> backward(const Saved&, const Tensor& dy, Needs<1>) const { return {transpose(dy, axis_a, axis_b)}; }
  static Samples<Transpose> samples() {
    return {{"last two", {-2, -1}, {draw::normal({2, 3, 4})}}, {"outer and inner", {0, 2}, {draw::normal({2, 3, 4})}},
        {"an axis with itself", {1, 1}, {draw::normal({2, 3})}}};
  }
};

// A slice of zeros filled with x: what slice and select do backwards.    y[begin + step k] = x[k], else 0    dx = the
// slice of dy
struct Unslice {
  static constexpr const char* name = "unslice";
  Shape to;
  int axis;
  index_t begin, end, step;
  struct Saved {};
  Tensor forward(Saved&, const Tensor& x) const {
    const Tensor y = Tensor::like(x, to);
    const auto clear = [&](index_t from, index_t until) {
      if (from < until) kernels(x.device()).fill(raw::slice(y, axis, from, until), 0);
    };
    if (step == 1) {  // only what x does not cover
      clear(0, begin);
      clear(end, y.size(axis));
    } else {
      clear(0, y.size(axis));
    }
    raw::copy_into(x, raw::slice(y, axis, begin, end, step));
    return y;
  }
  Grads<1> backward(const Saved&, const Tensor& dy, Needs<1>) const { return {slice(dy, axis, begin, end, step)}; }
  static Samples<Unslice> samples() {
    return {{"inner axis", {{3, 7}, 1, 2, 5, 1}, {draw::normal({3, 3})}},
        {"step 2", {{5, 2}, 0, 1, 5, 2}, {draw::normal({2, 2})}}, {"nothing", {{4}, 0, 2, 2, 1}, {draw::normal({0})}}};
  }
};

// y[k] = x[begin + step k] along one axis    dx = zeros with dy in the slice
struct Slice {
  static constexpr const char* name = "slice";
  int axis;
  index_t begin, end, step;
  struct Saved {
    Shape from;
  };
  Tensor forward(Saved& saved, const Tensor& x) const {
    saved.from = x.shape();
    return raw::slice(x, axis, begin, end, step);
  }
  Grads<1> backward(const Saved& saved, const Tensor& dy, Needs<1>) const {
    return {apply(Unslice{saved.from, axis, begin, end, step}, Site::current(), dy)};
  }
  static Samples<Slice> samples() {
    return {{"middle axis", {1, 1, 3, 1}, {draw::normal({2, 4, 3})}}, {"step 3", {-1, 0, 8, 3}, {draw::normal({2, 8})}},
        {"everything", {0, 0, 3, 1}, {draw::normal({3})}}, {"nothing", {0, 2, 2, 1}, {draw::normal({3, 2})}}};
  }
  static std::vector<BadInput> bad_inputs() {
    return {{"slice: x is [2,3], axis 1 from 2 to 5 step 1 given; 0 <= begin <= end <= 3 and step >= 1 are required",
        [] { (void)slice(draw::zeros(2, 3), 1, 2, 5); }}};
  }
};

// y = x at one index of an axis, which goes away    dx = zeros with dy there
struct Select {
  static constexpr const char* name = "select";
  int axis;
  index_t index;
  struct Saved {
    Shape from;
  };
  Tensor forward(Saved& saved, const Tensor& x) const {
    saved.from = x.shape();
    return raw::select(x, axis, index);
  }
  Grads<1> backward(const Saved& saved, const Tensor& dy, Needs<1>) const {
    const int place = axis < 0 ? axis + saved.from.rank() : axis;
    return {apply(Unslice{saved.from, place, index, index + 1, 1}, Site::current(), unsqueeze(dy, place))};
  }
  static Samples<Select> samples() {
    return {{"first axis", {0, 1}, {draw::normal({3, 4})}}, {"last axis", {-1, 2}, {draw::normal({2, 3, 4})}},
        {"to 0-d", {0, 4}, {draw::normal({5})}}};
  }
  static std::vector<BadInput> bad_inputs() {
    return {{"select: x is [2,3], index 3 of axis 1 given; an index in [0, 3) is required",
        [] { (void)select(draw::zeros(2, 3), 1, 3); }}};
  }
};

// A new axis of extent 1, which dy loses again.
struct Unsqueeze {
  static constexpr const char* name = "unsqueeze";
  int axis;
  struct Saved {
    Shape from;
  };
  Tensor forward(Saved& saved, const Tensor& x) const {
    saved.from = x.shape();
    return raw::unsqueeze(x, axis);
  }
  Grads<1> backward(const Saved& saved, const Tensor& dy, Needs<1>) const { return {reshape(dy, saved.from)}; }
  static Samples<Unsqueeze> samples() {
    return {{"in front", {0}, {draw::normal({2, 3})}}, {"at the end", {-1}, {draw::normal({2, 3})}},
        {"of 0-d", {0}, {draw::normal({})}}};
  }
};

// y = x repeated along axes of extent 1 and new leading ones    dx = the sum of dy over them
struct Expand {
  static constexpr const char* name = "expand";
  Shape to;
  struct Saved {
    Shape from;
  };
  Tensor forward(Saved& saved, const Tensor& x) const {
    saved.from = x.shape();
    return raw::expand(x, to);
  }
  Grads<1> backward(const Saved& saved, const Tensor& dy, Needs<1>) const { return {sum_to(dy, saved.from)}; }
  static Samples<Expand> samples() {
    return {{"inner and leading axis", {{4, 2, 3}}, {draw::normal({2, 1})}}, {"0-d", {{2, 2}}, {draw::normal({})}},
        {"to nothing", {{0, 3}}, {draw::normal({1, 3})}}};
  }
  static std::vector<BadInput> bad_inputs() {
    return {
        {"expand: x is [2,3], shape [2,4] given; extents that are equal, or 1 in x, are required, aligned at the last "
         "axis",
            [] {
              (void)expand(draw::zeros(2, 3), {2, 4});
            }}};
  }
};

// The same numbers in row-major order    dx = dy
struct Contiguous {
  static constexpr const char* name = "contiguous";
  struct Saved {};
  Tensor forward(Saved&, const Tensor& x) const { return raw::contiguous(x); }
  Grads<1> backward(const Saved&, const Tensor& dy, Needs<1>) const { return {dy}; }
  static Samples<Contiguous> samples() { return {{"of a transpose", {}, {raw::transpose(draw::normal({3, 5}))}}}; }
};

const Checked<Reshape> checked_reshape;
const Checked<Permute> checked_permute;
const Checked<Transpose> checked_transpose;
const Checked<Unslice> checked_unslice;
const Checked<Slice> checked_slice;
const Checked<Select> checked_select;
const Checked<Unsqueeze> checked_unsqueeze;
const Checked<Expand> checked_expand;
const Checked<Contiguous> checked_contiguous;

}  // namespace

Tensor reshape(const Tensor& x, const Shape& shape, Site at) { return apply(Reshape{shape}, at, x); }
Tensor permute(const Tensor& x, const std::vector<int>& axes, Site at) { return apply(Permute{axes}, at, x); }
Tensor transpose(const Tensor& x, int axis_a, int axis_b, Site at) { return apply(Transpose{axis_a, axis_b}, at, x); }
Tensor slice(const Tensor& x, int axis, index_t begin, index_t end, index_t step, Site at) {
  return apply(Slice{axis, begin, end, step}, at, x);
}
Tensor select(const Tensor& x, int axis, index_t index, Site at) { return apply(Select{axis, index}, at, x); }
Tensor unsqueeze(const Tensor& x, int axis, Site at) { return apply(Unsqueeze{axis}, at, x); }
Tensor expand(const Tensor& x, const Shape& shape, Site at) { return apply(Expand{shape}, at, x); }
Tensor contiguous(const Tensor& x, Site at) { return x.is_contiguous() ? x : apply(Contiguous{}, at, x); }

}  // namespace whence
