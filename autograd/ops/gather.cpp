// Pick along one axis, and its adjoint.    x:[... n ...]  index:[... j ...]
//   gather:        y[..., j, ...] = x[..., index[..., j, ...], ...]
//                  dx[..., index[..., j, ...], ...] += dy[..., j, ...]    in order of j: the same bits on every run
//   sum_by_index:  y[..., n] = sum over j with index[..., j] = n of x[..., j]      dx[..., j] = dy[..., index[..., j]]
#include "autograd/check/checked.h"
#include "autograd/ops.h"
#include "autograd/ops/index.h"

namespace whence {
namespace {

// `same_extent`: extents must be equal along the axis too.
void check_index(const char* op, const Tensor& x, const Tensor& index, int axis, bool same_extent) {
  raw::require_floating(op, "x", x);
  raw::require_same_device(op, "x", x, "index", index);
  bool agree = x.rank() == index.rank();
  for (int k = 0; agree && k < x.rank(); ++k)
    agree = (k == axis && !same_extent) || x.size(k) == index.size(k) || (k < axis && index.size(k) == 1);
  if (!agree) {
    fail(op, "x is ", x.shape(), ", index is ", index.shape(), "; equal extents ",
        same_extent ? "" : to_text("outside axis ", axis, " "), "required, or 1 in index before ",
        same_extent ? "the last axis" : "it");
  }
}

// The public function has already checked the index, so that backward does not check it again.
struct Gather {
  static constexpr const char* name = "gather";
  int axis;
  struct Saved {
    SavedTensor index;
    index_t rows = 0;
  };
  Tensor forward(Saved& saved, const Tensor& x, const Tensor& index) const {
    const Tensor places = raw::contiguous(index), from = raw::contiguous(x);
    saved.index = places;
    saved.rows = x.size(axis);
    Shape shape = x.shape();
    shape[axis] = index.size(axis);
    const Tensor y = Tensor::like(x, shape);
    kernels(x).gather(from, places, axis, y);
    return y;
  }
  Grads<2> backward(const Saved& saved, const Tensor& dy, Needs<2>) const;
  std::vector<Stop> stops(const Saved&, std::size_t) const { return {Stop::unread}; }
  static Samples<Gather> samples() {
    return {{"last axis", {1}, {draw::normal({3, 5}), draw::index({3, 7}, 5)}},
        {"first axis", {0}, {draw::normal({4, 2, 3}), draw::index({6, 2, 3}, 4)}},
        {"middle axis", {1}, {draw::normal({2, 3, 4}), draw::index({2, 2, 4}, 3)}},
        {"one index for all heads", {3}, {draw::normal({2, 3, 4, 5}), draw::index({1, 1, 4, 6}, 5)}},
        {"one index for all rows", {3}, {draw::normal({2, 2, 3, 5}), draw::index({2, 1, 1, 2}, 5)}},
        {"one index for the first axis", {1}, {draw::normal({3, 4, 2}), draw::index({1, 3, 2}, 4)}},
        {"no index", {1}, {draw::normal({2, 3}), draw::index({2, 0}, 3)}}};
  }
  static std::vector<BadInput> bad_inputs() {
    const Tensor x = draw::zeros(2, 3);
    return {refusal("gather: index at [1,0] is 3; a value in [0, 3) required", gather, x, 1,
                Tensor::of({0, 3}, {2, 1}, DType::i64)),
        refusal("gather: x is [2,3], index is [3,1]; equal extents outside axis 1 required, or 1 in index before it",
            gather, x, 1, Tensor::zeros({3, 1}, DType::i64)),
        refusal("gather: x is [2,3], index is [2,1]; equal extents outside axis 0 required, or 1 in index before it",
            gather, x, 0, Tensor::zeros({2, 1}, DType::i64)),
        refusal("gather: index is f32; i64 or i32 required; convert with cast", gather, x, 1, draw::zeros(2, 1))};
  }
};

// y[..., n, ...] = sum over j with index[..., j, ...] = n of x[..., j, ...]
struct SumByIndex {
  static constexpr const char* name = "sum_by_index";
  int axis;
  index_t rows;
  struct Saved {
    SavedTensor index;
  };
  Tensor forward(Saved& saved, const Tensor& x, const Tensor& index) const {
    const Tensor from = raw::contiguous(x), places = raw::contiguous(index);
    saved.index = places;
    Shape shape = x.shape();
    shape[axis] = rows;
    const Tensor y = Tensor::like(x, shape);
    kernels(x).sum_by_index(from, places, axis, y);
    return y;
  }
  Grads<2> backward(const Saved& saved, const Tensor& dy, Needs<2>) const {
    return {apply(Gather{axis}, Site::current(), dy, saved.index.get()), Tensor()};
  }
  static Samples<SumByIndex> samples() {
    return {{"last axis", {1, 4}, {draw::normal({3, 7}), draw::index({3, 7}, 4)}},
        {"first axis, one row hit often", {0, 2}, {draw::normal({6, 2}), draw::index({6, 2}, 1)}},
        {"one index for all heads", {3, 5}, {draw::normal({2, 3, 4, 6}), draw::index({1, 1, 4, 6}, 5)}},
        {"one index for all rows", {2, 3}, {draw::normal({2, 3, 4}), draw::index({2, 1, 4}, 3)}},
        {"nothing to add", {1, 3}, {draw::normal({2, 0}), draw::index({2, 0}, 3)}}};
  }
  static std::vector<BadInput> bad_inputs() {
    const Tensor x = draw::zeros(2, 3), index = Tensor::of({0, 2, 1}, {1, 3}, DType::i64);
    return {refusal("sum_by_index: index at [0,1] is 2; a value in [0, 2) required", sum_by_index, x, index, 2),
        refusal("sum_by_index: x is [2,2], index is [1,3]; equal extents required, or 1 in index before the last axis",
            sum_by_index, draw::zeros(2, 2), index, 4),
        refusal("sum_by_index: rows -1 given; 0 or more required", sum_by_index, x, index, -1),
        refusal("sum_by_index: x is []; at least one axis required", sum_by_index, draw::zeros(), index, 1)};
  }
};

Grads<2> Gather::backward(const Saved& saved, const Tensor& dy, Needs<2>) const {
  return {apply(SumByIndex{axis, saved.rows}, Site::current(), dy, saved.index.get()), Tensor()};
}

const Checked<Gather, SumByIndex> checked;

}  // namespace

// The index is checked before anything runs, so an error leaves nothing half-done.
Tensor gather(const Tensor& x, int axis, const Tensor& index, Site site) {
  const CallSite place(site);
  const int along = normal_axis(Gather::name, axis, x.rank());
  check_index(Gather::name, x, index, along, false);
  return apply(Gather{along}, site, x, detail::checked_index(Gather::name, "index", index, x.size(along)));
}

Tensor sum_by_index(const Tensor& x, const Tensor& index, index_t rows, Site site) {
  const CallSite place(site);
  const char* name = SumByIndex::name;
  if (rows < 0) fail(name, "rows ", rows, " given; 0 or more required");
  if (x.rank() == 0) fail(name, "x is []; at least one axis required");
  check_index(name, x, index, x.rank() - 1, true);
  return apply(SumByIndex{x.rank() - 1, rows}, site, x, detail::checked_index(name, "index", index, rows));
}

}  // namespace whence
