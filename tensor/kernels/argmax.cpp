// The index of a row's maximum.
#include "tensor/kernels/each_row.h"

namespace whence {

// out_i = the smallest j with x_ij = max_l x_il; a NaN counts as the largest
void Kernels::argmax(const Tensor& x, const Tensor& out) {
  visit_floating("argmax", x.dtype(), [&]<class T>(Type<T>) {
    Operands(In<T>(x), Out<index_t>(out, 1)).each_row([](auto from, auto to) {
      index_t best = 0;
      for (index_t j = 1; j < from.size(); ++j)
        if (const auto top = from[best]; top == top && (from[j] > top || !(from[j] == from[j]))) best = j;
      to[0] = best;
    });
  });
}

}  // namespace whence
