// Kernels that move numbers and compute nothing. A device whose memory is not the CPU's overrides fill and copy;
// access.h reaches it through them.
#include "tensor/plain/access.h"

namespace whence {

using plain::In, plain::Out;

void Kernels::fill(const Tensor& out, double value) {
  visit(out.dtype(), [&]<class T>(Type<T>) {
    const Out<T> y(out);
    for (index_t i = 0; i < y.rows(); ++i)
      for (index_t j = 0; j < y.width(); ++j) y[i][j] = value;
  });
}

void Kernels::copy(const Tensor& from, const Tensor& to) {
  visit(from.dtype(), [&]<class A>(Type<A>) {
    const In<A> x(from);
    visit(to.dtype(), [&]<class B>(Type<B>) {
      const Out<B> y(to);
      for (index_t i = 0; i < y.rows(); ++i)
        for (index_t j = 0; j < y.width(); ++j) y[i][j] = x[i][j];
    });
  });
}

// y = mask ? x : value
void Kernels::masked(const Tensor& x, const Tensor& mask, double value, const Tensor& y) {
  visit(x.dtype(), [&]<class T>(Type<T>) {
    const In<T> from(x);
    const In<bool> kept(mask);
    const Out<T> to(y);
    for (index_t i = 0; i < to.rows(); ++i)
      for (index_t j = 0; j < to.width(); ++j)
        if (kept[i][j])
          to[i][j] = from[i][j];
        else
          to[i][j] = value;
  });
}

void Kernels::copy_rows(std::span<const Tensor> from, std::span<const Tensor> to, int axis, const Tensor& row) {
  const index_t first = raw::to_device(row, Device::cpu()).data<index_t>()[0];
  for (std::size_t k = 0; k < from.size(); ++k) {
    const index_t rows = std::min(from[k].size(axis), to[k].size(axis));
    const auto part = [&](const Tensor& x) {
      return x.size(axis) == rows ? x : raw::slice(x, axis, first, first + rows);
    };
    copy(part(from[k]), part(to[k]));
  }
}

}  // namespace whence
