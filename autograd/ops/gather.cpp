// Pick along one axis, and its adjoint.    x:[... n ...]  index:[... j ...]
//   gather:        y[..., j, ...] = x[..., index[..., j, ...], ...]
//                  dx[..., index[..., j, ...], ...] += dy[..., j, ...]    in order of j: the same bits on every run
//   sum_by_index:  y[..., n] = sum over j with index[..., j] = n of x[..., j]      dx[..., j] = dy[..., index[..., j]]
#include "autograd/op.h"
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
};

Grads<2> Gather::backward(const Saved& saved, const Tensor& dy, Needs<2>) const {
  return {apply(SumByIndex{axis, saved.rows}, Site::current(), dy, saved.index.get()), Tensor()};
}

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
