// Makes three tensors contiguous with one kernel.    y_k = x_k    dx_k = dy_k
#include "autograd/joined/joined_ops.h"
#include "autograd/op.h"
#include "tensor/device/joined_kernels.h"
#include "tensor/raw.h"

namespace whence {
namespace {

using Three = std::array<Tensor, 3>;

struct ContiguousAll {
  static constexpr const char* name = "contiguous_all";
  struct Saved {
    std::array<Shape, 3> shapes;
  };
  Three forward(Saved& saved, const Tensor& a, const Tensor& b, const Tensor& c) const {
    Three y{a, b, c};
    std::vector<Tensor> from, to;
    for (std::size_t k = 0; k < y.size(); ++k) {
      saved.shapes[k] = y[k].shape();
      if (y[k].is_contiguous()) continue;
      from.push_back(y[k]);
      to.push_back(y[k] = Tensor::like(y[k]));
    }
    joined_kernels(a).copy_all(from, to);
    return y;
  }
  Grads<3> backward(const Saved& saved, std::span<const Tensor, 3> dy, Needs<3>) const {
    const Tensor& read = *std::ranges::find_if(dy, &Tensor::defined);
    Grads<3> dx;
    for (std::size_t k = 0; k < dx.size(); ++k)
      dx[k] = dy[k].defined() ? dy[k] : Tensor::zeros(saved.shapes[k], read.dtype(), read.device());
    return dx;
  }
};

}  // namespace

Three contiguous_all(const Three& x, Site site) { return apply(ContiguousAll{}, site, x[0], x[1], x[2]); }

}  // namespace whence
