#include "nn/attention/position.h"

#include "autograd/ops.h"
#include "nn/attention/kept.h"
#include "nn/attention/stages.h"
#include "tensor/raw.h"

namespace whence {

Tensor AttendContext::masked(const Tensor& t, double otherwise, Site site) const {
  const Tensor seen = mask();
  return seen.defined() ? whence::masked(t, seen, otherwise, site) : t;
}

Tensor AttendContext::on_device(const Tensor& constant) const {
  if (device == constant.device()) return constant;
  const Tensor numbers = raw::contiguous(constant);
  return kept->constants.get({numbers, device}, [&] { return raw::to_device(numbers, device); });
}

void PositionalScheme::join(Stages& stages) const { stages.enter(*this); }

}  // namespace whence
