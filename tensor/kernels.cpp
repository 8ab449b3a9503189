// The choice of kernels, and those that only call others.
#include "tensor/kernels.h"

#include <algorithm>

#include "tensor/adam.h"
#include "tensor/backend.h"
#include "tensor/index_check.h"
#include "tensor/raw.h"

namespace whence {

Kernels& kernels(Device device) { return *backend_of(device).kernels; }
Kernels& kernels(const Tensor& x) {
  const Backend backend = backend_of(x.device());
  return x.dtype() == DType::dual && backend.of_duals ? *backend.of_duals : *backend.kernels;
}

void index_out_of_range(const IndexCheck& check, const Shape& shape, index_t element, index_t value) {
  fail(check.op, check.argument, " at ", position_of(element, shape), " is ", value, "; a value in [0, ", check.count,
      ") required", check.also < 0 ? to_text(", or ", check.also, " to ignore it") : std::string());
}

Tensor Kernels::checked_index(const IndexCheck& check, const Tensor& index) {
  for (index_t n = 0; n < index.numel(); ++n)
    if (const index_t value = index.data<index_t>()[n]; !check.allows(value))
      index_out_of_range(check, index.shape(), n, value);
  return index;
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

// The gradients of a layer's weight and bias, one after the other. a is the transposed dy of the layer: sums has the
// bits of the sum of dy as stored.
void Kernels::matmul_row_sums(const Tensor& a, const Tensor& b, const Tensor& out, const Tensor& sums) {
  matmul(a, b, nullptr, 1, out);
  reduce(Reduction::sum, raw::transpose(a), sums.view({1, a.size(0)}, {a.size(0), 1}));
}

void Kernels::clip_scale(const Tensor& total, const Tensor& controls) {
  clip_to_norm(std::sqrt(*total.data<double>()), controls.data<double>());
}

}  // namespace whence
