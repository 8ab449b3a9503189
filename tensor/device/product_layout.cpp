#include "tensor/device/product_layout.h"

#include <algorithm>

#include "tensor/device/gpu_kernels.h"
#include "tensor/raw.h"
#include "tensor/shape.h"

namespace whence {
namespace {

// A copy costs a launch, and reads and writes its matrix. With fewer multiplications a faster kernel gains less.
constexpr double fewest_multiplications = 1 << 26;
constexpr double most_added = 1.25;  // factor on all multiplications: a padded narrow product would be mostly zeros

// True if neighbours along a column are adjacent. A GPU's library reads such a matrix as transposed.
bool is_transposed(const Tensor& x) { return x.strides()[-2] == 1 && x.strides()[-1] > 1; }

// Returns x [... r c] with zeros after the last row and column.
Tensor padded(const Tensor& x, index_t rows, index_t columns) {
  const index_t given_rows = x.size(-2), given_columns = x.size(-1);
  if (rows == given_rows && columns == given_columns) return x;
  if (is_transposed(x)) return raw::transpose(padded(raw::transpose(x), columns, rows));
  if (rows == given_rows && raw::has_zeros_between_rows(x)) return x.view({rows, columns}, x.strides());
  Shape each = x.shape();  // a matrix broadcast over the batch is copied once
  for (int axis = 0; axis < x.rank() - 2; ++axis)
    if (x.strides()[axis] == 0) each[axis] = 1;
  Shape shape = each;
  shape[-2] = rows, shape[-1] = columns;
  const Tensor to = Tensor::like(x, shape), wide = raw::slice(to, -2, 0, given_rows);
  Kernels& on = kernels(x.device());
  on.copy(x.view(each, x.strides()), raw::slice(wide, -1, 0, given_columns));
  if (columns > given_columns) on.fill(raw::slice(wide, -1, given_columns, columns), 0);
  if (rows > given_rows) on.fill(raw::slice(to, -2, given_rows, rows), 0);
  Shape all = x.shape();
  all[-2] = rows, all[-1] = columns;
  return raw::expand(to, all);
}

}  // namespace

// On a GPU the rows of a wide matrix begin aligned_extent(width) apart.
Tensor GpuKernels::product_rows(const Tensor& x, index_t rows, index_t width) {
  constexpr index_t narrow = 128;  // such rows would be mostly zeros, and other ops copy what is not contiguous
  const index_t apart = x.device().is_gpu() && width >= narrow ? aligned_extent(width, x.dtype()) : width;
  const Tensor all = Tensor::like(x, {rows, apart});
  if (apart == width) return all;
  all.storage().set_row_width(width);
  return raw::slice(all, 1, 0, width);
}

bool GpuKernels::is_transposed_view(const Tensor& x) { return x.device().is_gpu() && x.rank() > 1 && is_transposed(x); }

// True for a batch whose matrices are not evenly spaced.
bool GpuKernels::is_copied_by_products(const Tensor& x) {
  const bool evenly =
      even_step(x.shape().leading(-2), x.strides().leading(-2)) && (x.strides()[-1] == 1 || x.strides()[-2] == 1);
  return x.device().is_gpu() && !evenly;
}

std::optional<ProductExtents> aligned_extents(const Tensor& a, const Tensor& b, const Tensor& out) {
  const auto multiplications = [](const ProductExtents& of) {
    return static_cast<double>(of.m) * static_cast<double>(of.n) * static_cast<double>(of.k);
  };
  const ProductExtents given{out.size(-2), out.size(-1), a.size(-1)};
  ProductExtents made = given;  // the extents that grow are those along which a matrix is contiguous
  if (is_transposed(a)) made.m = aligned_extent(given.m, a.dtype());
  if (!is_transposed(a) || is_transposed(b)) made.k = aligned_extent(given.k, a.dtype());
  made.n = aligned_extent(given.n, a.dtype());
  const double batch = static_cast<double>(out.numel() / std::max<index_t>(given.m * given.n, 1));
  const bool grows = made.m > given.m || made.n > given.n || made.k > given.k;
  const bool pays = batch * multiplications(given) >= fewest_multiplications &&
                    multiplications(made) <= most_added * multiplications(given);
  return grows && pays ? std::optional(made) : std::nullopt;
}

AlignedProduct aligned_product(
    const ProductExtents& extents, const Tensor& a, const Tensor& b, const Tensor* bias, const Tensor& out) {
  const auto& [m, n, k] = extents;
  AlignedProduct product{padded(a, m, k), padded(b, k, n), {}, {}};
  if (bias) product.bias = raw::reshape(padded(raw::reshape(*bias, {1, bias->size(0)}), 1, n), {n});
  if (m == out.size(-2) && raw::has_zeros_between_rows(out)) {
    product.out = out.view({m, n}, out.strides());
  } else {
    Shape shape = out.shape();
    shape[-2] = m, shape[-1] = n;
    product.out = Tensor::like(out, shape);
  }
  return product;
}

}  // namespace whence
