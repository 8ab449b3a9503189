// Rows of a table: an embedding.    table:[n c]  index:[...]  ->  y[..., :] = table[index[...], :]
//   dtable[index[...], :] += dy[..., :]    in order of the index's elements for each row
#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/ops/index.h"
#include "tensor/divisor.h"
#include "tensor/launch.h"

namespace whence {
namespace {

// On the CPU a row is one copy; on a GPU a thread for each number, so that neighbouring threads read neighbouring
// numbers.
template <class T> struct CopyRow {
  const T* table;
  const index_t* index;
  T* y;
  index_t width;
  WHENCE_HD void operator()(index_t i) const {
    const T* row = table + index[i] * width;
    for (index_t k = 0; k < width; ++k) y[i * width + k] = row[k];
  }
};

template <class T> struct CopyNumber {
  const T* table;
  const index_t* index;
  T* y;
  Divisor width;
  WHENCE_HD void operator()(index_t i) const {
    const auto [row, k] = width(i);
    y[i] = table[index[row] * width.by() + k];
  }
};

// The adjoint; it is an op so that it has a gradient too: ddy = rows of ddtable.
struct ScatterRows {
  static constexpr const char* name = "scatter_rows";
  index_t rows;
  struct Saved {
    SavedTensor index;
  };
  Tensor forward(Saved& saved, const Tensor& dy, const Tensor& index) const {
    saved.index = index;
    // The kernel groups entries by row first. So each row is summed in a fixed order.
    const index_t width = dy.size(-1), count = index.numel();
    const Tensor from = raw::reshape(raw::contiguous(dy), {count, width}),
                 sums = Tensor::zeros({rows, width}, dy.dtype(), dy.device());
    kernels(dy).scatter_add_rows(raw::reshape(raw::contiguous(index), {count}), from, sums);
    return sums;
  }
  Grads<2> backward(const Saved& saved, const Tensor& dz, Needs<2>) const;
};

// The public function has already checked the index, so that backward does not check it again.
struct TakeRows {
  static constexpr const char* name = "take_rows";
  struct Saved {
    SavedTensor index;
    index_t rows = 0;
  };
  Tensor forward(Saved& saved, const Tensor& table, const Tensor& index) const {
    const Tensor places = raw::contiguous(index), from = raw::contiguous(table);
    saved.index = places;
    saved.rows = table.size(0);
    Shape shape = index.shape();
    shape.push_back(table.size(1));
    const Tensor y = Tensor::like(table, shape);
    visit_floating(name, table.dtype(), [&]<class T>(Type<T>) {
      const index_t width = table.size(1);
      if (table.device().is_cpu())
        launch(name, table.device(), index.numel(),
            CopyRow<T>{from.data<T>(), places.data<index_t>(), y.data<T>(), width}, width);
      else
        launch(name, table.device(), y.numel(),
            CopyNumber<T>{from.data<T>(), places.data<index_t>(), y.data<T>(), {width, y.numel()}});
    });
    return y;
  }
  Grads<2> backward(const Saved& saved, const Tensor& dy, Needs<2>) const {
    return {apply(ScatterRows{saved.rows}, Site::current(), dy, saved.index.get()), Tensor()};
  }
  std::vector<Stop> stops(const Saved&, std::size_t) const { return {Stop::unread}; }
};

Grads<2> ScatterRows::backward(const Saved& saved, const Tensor& dz, Needs<2>) const {
  return {apply(TakeRows{}, Site::current(), dz, saved.index.get()), Tensor()};
}

}  // namespace

Tensor take_rows(const Tensor& table, const Tensor& index, Site site) {
  const CallSite place(site);
  raw::require_floating(TakeRows::name, "table", table);
  raw::require_same_device(TakeRows::name, "table", table, "index", index);
  if (table.rank() != 2) fail(TakeRows::name, "table is ", table.shape(), "; [n,c] required");
  return apply(TakeRows{}, site, table, detail::checked_index(TakeRows::name, "index", index, table.size(0)));
}

}  // namespace whence
