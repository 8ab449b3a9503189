// Matrix products over leading axes that broadcast.    y = s a b,  a:[... m k]  b:[... k n]  ->  y:[... m n]
//   da = s dy b'    db = s a' dy    each summed over what broadcasting stretched
// With one b for a whole batch (a weight, CoPE's table) the batch is folded into m, and for db into the summed axis:
// one tall product.
#include "autograd/backward.h"
#include "autograd/op.h"
#include "autograd/ops.h"
#include "tensor/raw.h"

namespace whence {
namespace {

struct MatMul {
  static constexpr const char* name = "matmul";
  static constexpr std::size_t factor = 1;
  double scale;
  struct Saved {
    SavedTensor a, b;  // each saved only if the other one needs it
    Shape a_shape, b_shape;
    bool b_is_transposed = false;
  };

  Tensor forward(Saved& saved, const Tensor& a, const Tensor& b) const {
    // If one operand is a constant (a fixed table, a mask of weights), the other one is not saved.
    if (tracked(b)) saved.a = a;
    if (tracked(a)) saved.b = b;
    saved.a_shape = a.shape(), saved.b_shape = b.shape();
    saved.b_is_transposed = kernels(b.device()).is_transposed_view(b);
    return raw::matmul(a, b, scale);
  }

  Grads<2> backward(const Saved& saved, const Tensor& given, Needs<2> needs) const {
    // y = s a b: for each matrix, da is made of dy and b, db of a and dy, with both transposed. BLAS reads these views
    // without a copy.
    Grads<2> grads;
    // Copied once for both products (heads inside tokens).
    const bool copied = needs[0] && needs[1] && kernels(given.device()).is_copied_by_products(given);
    const Tensor dy = copied ? contiguous(given) : given;
    // If b is a transposed view, db is computed in the layout of the tensor behind it, so that transposing back copies
    // nothing.
    const auto gradient_of_b = [&](const Tensor& a, const Tensor& of_y) {
      return saved.b_is_transposed ? transpose(matmul(transpose(of_y), a, scale)) : matmul(transpose(a), of_y, scale);
    };
    if (saved.a_shape.rank() > 2 && saved.b_shape.rank() == 2) {
      // [... m k] [k n]: the product itself sums over the batch for db
      const Tensor tall = reshape(dy, as_rows(dy.shape()));
      if (needs[0]) grads[0] = reshape(matmul(tall, transpose(saved.b.get()), scale), saved.a_shape);
      if (needs[1]) grads[1] = gradient_of_b(reshape(saved.a.get(), as_rows(saved.a_shape)), tall);
    } else {
      if (needs[0]) grads[0] = sum_to(matmul(dy, transpose(saved.b.get()), scale), saved.a_shape);
      if (needs[1]) grads[1] = sum_to(gradient_of_b(saved.a.get(), dy), saved.b_shape);
    }
    return grads;
  }
};

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b, double scale, Site site) { return apply(MatMul{scale}, site, a, b); }

}  // namespace whence
