// Samples of autograd/ops/matmul.cpp.
#include "autograd/ops.h"
#include "autograd/samples/samples.h"

namespace whence {
namespace {

Samples samples() {
  return {{"batched", {draw::normal({2, 3, 4}), draw::normal({2, 4, 5})}, call(matmul, 0.5)},
      {"two matrices", {draw::normal({3, 4}), draw::normal({4, 2})}, call(matmul, 1)},
      {"one b for a batch", {draw::normal({2, 3, 2, 4}), draw::normal({4, 5})}, call(matmul, -2)},
      {"one a for a batch", {draw::normal({3, 4}), draw::normal({2, 4, 2})}, call(matmul, 1)},
      {"both broadcast", {draw::normal({2, 1, 3, 4}), draw::normal({1, 5, 4, 2})}, call(matmul, 1)},
      {"one b for several a", {draw::normal({2, 3, 2, 4}), draw::normal({2, 1, 4, 5})}, call(matmul, 0.5)},
      {"one b of extent 1", {draw::normal({3, 2, 4}), draw::normal({1, 4, 2})}, call(matmul, 1)},
      {"vectors as matrices", {draw::normal({1, 7}), draw::normal({7, 1})}, call(matmul, 1)},
      {"no rows", {draw::normal({2, 0, 3}), draw::normal({3, 4})}, call(matmul, 1)},
      {"nothing to sum", {draw::normal({2, 0}), draw::normal({0, 3})}, call(matmul, 1)}};
}
std::vector<BadInput> bad_inputs() {
  return {
      refusal("matmul: a is [2,3,4], b is [2,5,4]; inner extents 4 and 5 differ; equal ones are required; transpose b",
          matmul, draw::zeros(2, 3, 4), draw::zeros(2, 5, 4), 1)};
}

const Checked checked({"matmul", samples, bad_inputs}, Accepts::any_shapes);

}  // namespace
}  // namespace whence
