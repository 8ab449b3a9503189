// MatrixLayout: how a device prefers to store matrices for products. The default has no preference; GPUs have one
// (tensor/device/product_layout.cpp).
#pragma once

#include "tensor/tensor.h"

namespace whence {

class MatrixLayout {
 public:
  virtual ~MatrixLayout() = default;
  // Returns a new matrix [rows, width] with x's dtype and device, numbers unspecified. It is contiguous, or a view of
  // wider rows. Then the kernel that writes it, a product or cross-entropy's backward, writes zeros between its rows.
  virtual Tensor product_rows(const Tensor& x, index_t rows, index_t width) { return Tensor::like(x, {rows, width}); }
  // True for a transposed view whose gradient should be made with the strides of x, so that nothing is copied.
  virtual bool is_transposed_view(const Tensor&) { return false; }
  // True if each product would copy these matrices first.
  virtual bool is_copied_by_products(const Tensor&) { return false; }
};

}  // namespace whence
