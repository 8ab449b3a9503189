#include "nn/layers/dropout.h"

#include "autograd/ops.h"
#include "tensor/error.h"
#include "tensor/random.h"

namespace whence {

Dropout::Dropout(double probability) : probability_(probability) {
  if (!(probability >= 0 && probability < 1))
    throw InputError("dropout: ", probability, " given; at least 0 and less than 1 required");
}

Tensor Dropout::operator()(const Tensor& x, const Pass& pass, Site site) const {
  if (!drops(pass)) return x;
  return dropout(x, probability_, Stream(pass.seed, path(), pass.step), {}, site);
}

}  // namespace whence
