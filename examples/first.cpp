// The smallest gradient: a table that is read between two of its rows, as CoPE reads its positions.
//   y = (1 - w) t[a] + w t[c],   a = floor p,  c = ceil p,  w = p - a          dp = t[c] - t[a]
#include <iostream>

#include "autograd/backward.h"
#include "autograd/inspect/zeros.h"
#include "autograd/ops.h"

using namespace whence;

int main() {
  for (const double at : {1.3, 2.0}) {
    const Tensor t = requires_grad(Tensor::of({5, 1, 4, 2}, {4})), p = requires_grad(Tensor::of({at}, {1}));
    const Tensor y = sum(lerp_at(t, p));
    const std::string why = why_zero(y, p);
    backward(y);
    std::cout << "p = " << at << "  y = " << y.item() << "  dp = " << gradient(p).item() << "  dt =";
    for (const double each : gradient(t).to_vector()) std::cout << ' ' << each;
    std::cout << "\n  " << why << '\n';
  }
}
