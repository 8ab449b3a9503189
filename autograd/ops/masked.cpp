// Keeps some entries and overwrites the others.    y = mask ? x : value    dx = mask ? dy : 0
#include "autograd/op.h"
#include "autograd/ops.h"
#include "tensor/raw.h"

namespace whence {
namespace {

struct Masked {
  static constexpr const char* name = "masked";
  double value;
  struct Saved {
    SavedTensor mask;
  };
  Tensor forward(Saved& saved, const Tensor& x, const Tensor& mask) const {
    saved.mask = mask;
    const Tensor y = Tensor::like(x);
    kernels(x).masked(x, raw::expand(mask, x.shape()), value, y);
    return y;
  }
  Grads<2> backward(const Saved& saved, const Tensor& dy, Needs<2>) const {
    return {apply(Masked{0}, Site::current(), dy, saved.mask.get()), Tensor()};
  }
  bool by_element(std::size_t input) const { return input == 0; }
  std::vector<Stop> stops(const Saved&, std::size_t) const { return {Stop::masked}; }
};

}  // namespace

Tensor masked(const Tensor& x, const Tensor& mask, double value, Site site) {
  const CallSite place(site);
  raw::require_floating(Masked::name, "x", x);
  raw::require_mask(Masked::name, x, mask);
  return apply(Masked{value}, site, x, mask);
}

}  // namespace whence
