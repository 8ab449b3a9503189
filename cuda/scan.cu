// Running sums along rows, one thread per row.
#include "cuda/kernels.h"
#include "cuda/sums.h"
#include "tensor/convert.h"
#include "tensor/launch.h"

namespace whence {
namespace {

template <class T>
struct ScanRow {
  const T* x;
  T* y;
  index_t width;
  bool reverse;
  WHENCE_HD void operator()(index_t row) const {
    const index_t step = reverse ? -1 : 1;
    index_t at = row * width + (reverse ? width - 1 : 0);
    sum_t<T> total = 0;
    for (index_t j = 0; j < width; ++j, at += step) {
      total += convert<sum_t<T>>(static_cast<compute_t<T>>(x[at]));
      y[at] = convert<T>(total);
    }
  }
};

}  // namespace

void CudaKernels::cumulative_sum(const Tensor& x, bool reverse, const Tensor& y) {
  if (x.numel() == 0) return;
  const index_t width = x.size(-1);
  visit_floating("cumulative_sum", x.dtype(), [&]<class T>(Type<T>) {
    launch("cumulative_sum", x.device(), x.numel() / width, ScanRow<T>{x.data<T>(), y.data<T>(), width, reverse}, width);
  });
}

}  // namespace whence
