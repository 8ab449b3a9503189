// The places and extents of matrices where a GPU's library multiplies them. Its fast kernels want extents that are whole
// packs of 16 bytes: two products with 50257 logits took an H200 14.9 of the 31.8 ms of a step. So products get larger
// extents there. The numbers that are added are zeros, and no tensor's shape shows them. On the CPU nothing here has an
// effect.
#pragma once

#include <optional>

#include "tensor/tensor.h"

namespace whence {

// The multiple that extents of fast products are: 8 in f16 and bf16, 4 in f32; 1 where any extent will do.
constexpr index_t product_pack(DType dtype) {
  return dtype == DType::f32 ? 4 : size_of(dtype) == 2 && is_floating(dtype) ? 8 : 1;
}
// The least such multiple that holds `extent`; from 1024 on the least multiple of 128, which fills whole tiles too.
constexpr index_t aligned_extent(index_t extent, DType dtype) {
  const index_t pack = product_pack(dtype), multiple = pack > 1 && extent > 1024 ? 128 : pack;
  return extent % pack == 0 ? extent : (extent + multiple - 1) / multiple * multiple;
}

// The extents that out [... m n] = a [... m k] b [... k n] gets. Nothing where they are packs already, and where more
// would not pay: in a small product, and in a narrow one.
struct ProductExtents {
  index_t m, n, k;
};
[[nodiscard]] std::optional<ProductExtents> aligned_extents(const Tensor& a, const Tensor& b, const Tensor& out);

// The operands with such extents, and a bias [n]. Zeros that lie beside a matrix are read where they are; any other matrix
// is copied. This out, a new tensor unless out has room between its rows, gets the result in its first rows and columns.
struct AlignedProduct {
  Tensor a, b, bias, out;
};
[[nodiscard]] AlignedProduct aligned_product(
    const ProductExtents& extents, const Tensor& a, const Tensor& b, const Tensor* bias, const Tensor& out);

}  // namespace whence
