// Layout and extents of matrices for a GPU's library. Its fast kernels need extents that are whole packs of 16 bytes:
// two products with 50257 logits took an H200 14.9 of the 31.8 ms of a step. So products are padded there. The padding
// is zeros, and no tensor's shape shows it. On the CPU nothing here has an effect.
#pragma once

#include <optional>

#include "tensor/tensor.h"

namespace whence {

// Returns the multiple that extents of fast products must have: 8 in f16 and bf16, 4 in f32; 1 if any extent will do.
constexpr index_t product_pack(DType dtype) {
  return dtype == DType::f32 ? 4 : size_of(dtype) == 2 && is_floating(dtype) ? 8 : 1;
}
// Returns the smallest such multiple >= `extent`; above 1024 the smallest multiple of 128, which fills whole tiles too.
constexpr index_t aligned_extent(index_t extent, DType dtype) {
  const index_t pack = product_pack(dtype), multiple = pack > 1 && extent > 1024 ? 128 : pack;
  return extent % pack == 0 ? extent : (extent + multiple - 1) / multiple * multiple;
}

// Returns the extents to pad out [... m n] = a [... m k] b [... k n] to, or nothing if they are whole packs already or
// padding would not pay, as in a small or narrow product.
struct ProductExtents {
  index_t m, n, k;
};
[[nodiscard]] std::optional<ProductExtents> aligned_extents(const Tensor& a, const Tensor& b, const Tensor& out);

// The operands with such extents, and a bias [n]. Zeros already stored around a matrix are read in place; any other
// matrix is copied. `out` gets the result in its first rows and columns. It is new, unless the given out has room
// between its rows.
struct AlignedProduct {
  Tensor a, b, bias, out;
};
[[nodiscard]] AlignedProduct aligned_product(
    const ProductExtents& extents, const Tensor& a, const Tensor& b, const Tensor* bias, const Tensor& out);

}  // namespace whence
