// Dropout (Srivastava et al. 2014), and the data of a forward pass that it draws from. A resumed run draws the same.
#pragma once

#include <cstdint>

#include "nn/layers/module.h"

namespace whence {

// One forward pass of a model.
struct Pass {
  bool training = false;
  std::uint64_t seed = 0;  // seed of the run
  std::uint64_t step = 0;  // unique among the training passes of the run
};

class Dropout final : public Module {
 public:
  explicit Dropout(double probability);  // in [0, 1), else InputError

  [[nodiscard]] bool drops(const Pass& pass) const { return pass.training && probability_ > 0; }
  // In training each number is 0 with the module's probability, else divided by 1 - probability. Otherwise returns x
  // itself. The draw depends only on the pass and the module's path.
  [[nodiscard]] Tensor operator()(const Tensor& x, const Pass& pass, Site site = Site::current()) const;

 private:
  double probability_;
};

}  // namespace whence
