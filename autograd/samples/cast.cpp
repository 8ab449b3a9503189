// Samples of autograd/ops/cast.cpp.
#include "autograd/ops.h"
#include "autograd/samples/samples.h"

namespace whence {
namespace detail {
Tensor converted(const Tensor& x, DType dtype, Site site);  // autograd/ops/cast.cpp
}
namespace {

const Checked checked(
    {"cast", drawn<DType>(detail::converted, {{"to f64", {3, 4}, DType::f64}, {"0-d to f64", {}, DType::f64}})});

}  // namespace
}  // namespace whence
