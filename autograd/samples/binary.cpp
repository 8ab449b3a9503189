// Samples of autograd/ops/binary.cpp.
#include "autograd/ops.h"
#include "autograd/samples/samples.h"

namespace whence {
namespace {

// Equal shapes, each operand broadcast, both broadcast, 0-d and empty.
Checked both(
    const std::string& name, Tensor (*f)(const Tensor&, const Tensor&, Site), bool divides = false, bool ties = false) {
  const auto samples = [=] {
    Samples all;
    const std::pair<Shape, Shape> shapes[] = {{{3, 5}, {3, 5}}, {{2, 3, 4}, {4}}, {{3, 1}, {1, 7}}, {{5}, {2, 1, 5}},
        {{}, {2, 3}}, {{2, 1, 3}, {}}, {{}, {}}, {{0, 4}, {1, 4}}, {{1}, {0}}, {{2, 3, 1, 5}, {3, 4, 1}}};
    for (const auto& [a, b] : shapes)  // a divisor away from 0
      all.push_back(
          {to_text(a, " ", b), {draw::normal(a), divides ? draw::uniform(b, 0.5, 2) : draw::normal(b)}, call(f)});
    if (ties) all.push_back({"ties", {draw::integers({4, 5}, -1, 1), draw::integers({4, 5}, -1, 1)}, call(f), true});
    return all;
  };
  const auto refusals = [=] {
    return std::vector{refusal(name + ": a is [2,3], b is [2,4]; extents 3 and 4 of axis -1 differ and neither is 1; "
                                      "reshape or expand one of them",
                           f, draw::zeros(2, 3), draw::zeros(2, 4)),
        refusal(name + ": a is f32, b is f64; equal dtypes required; convert with cast", f, draw::zeros(2),
            Tensor::zeros({2}, DType::f64))};
  };
  return {{name, samples, refusals}, Accepts::any_call};
}

const Checked checked[] = {both("add", add), both("subtract", subtract), both("multiply", multiply),
    both("divide", divide, true), both("maximum", maximum, false, true), both("minimum", minimum, false, true)};

}  // namespace
}  // namespace whence
