// Samples of autograd/ops/gather.cpp.
#include "autograd/ops.h"
#include "autograd/samples/samples.h"

namespace whence {
namespace {

Samples samples() {
  const auto along = [](int axis) {
    return [axis](const std::vector<Tensor>& in) { return gather(in[0], axis, in[1]); };
  };
  return {{"last axis", {draw::normal({3, 5}), draw::index({3, 7}, 5)}, along(1)},
      {"first axis", {draw::normal({4, 2, 3}), draw::index({6, 2, 3}, 4)}, along(0)},
      {"middle axis", {draw::normal({2, 3, 4}), draw::index({2, 2, 4}, 3)}, along(1)},
      {"one index for all heads", {draw::normal({2, 3, 4, 5}), draw::index({1, 1, 4, 6}, 5)}, along(3)},
      {"one index for all rows", {draw::normal({2, 2, 3, 5}), draw::index({2, 1, 1, 2}, 5)}, along(3)},
      {"one index for the first axis", {draw::normal({3, 4, 2}), draw::index({1, 3, 2}, 4)}, along(1)},
      {"no index", {draw::normal({2, 3}), draw::index({2, 0}, 3)}, along(1)}};
}
std::vector<BadInput> bad_gathers() {
  const Tensor x = draw::zeros(2, 3);
  return {refusal("gather: index at [1,0] is 3; a value in [0, 3) required", gather, x, 1,
              Tensor::of({0, 3}, {2, 1}, DType::i64)),
      refusal("gather: x is [2,3], index is [3,1]; equal extents outside axis 1 required, or 1 in index before it",
          gather, x, 1, Tensor::zeros({3, 1}, DType::i64)),
      refusal("gather: x is [2,3], index is [2,1]; equal extents outside axis 0 required, or 1 in index before it",
          gather, x, 0, Tensor::zeros({2, 1}, DType::i64)),
      refusal("gather: index is f32; i64 or i32 required; convert with cast", gather, x, 1, draw::zeros(2, 1))};
}

Samples samples_of_sums() {
  const auto along_first = [](const Tensor& x, const std::vector<Tensor>& in) { return gather(x, 0, in[1]); };
  return {{"last axis", {draw::normal({3, 7}), draw::index({3, 7}, 4)}, call(sum_by_index, 4)},
      {"first axis, one row hit often", {draw::normal({6, 2}), draw::index({6, 2}, 1)}, adjoint(along_first, {2, 2})},
      {"one index for all heads", {draw::normal({2, 3, 4, 6}), draw::index({1, 1, 4, 6}, 5)}, call(sum_by_index, 5)},
      {"one index for all rows", {draw::normal({2, 3, 4}), draw::index({2, 1, 4}, 3)}, call(sum_by_index, 3)},
      {"nothing to add", {draw::normal({2, 0}), draw::index({2, 0}, 3)}, call(sum_by_index, 3)}};
}
std::vector<BadInput> bad_sums() {
  const Tensor x = draw::zeros(2, 3), index = Tensor::of({0, 2, 1}, {1, 3}, DType::i64);
  return {refusal("sum_by_index: index at [0,1] is 2; a value in [0, 2) required", sum_by_index, x, index, 2),
      refusal("sum_by_index: x is [2,2], index is [1,3]; equal extents required, or 1 in index before the last axis",
          sum_by_index, draw::zeros(2, 2), index, 4),
      refusal("sum_by_index: rows -1 given; 0 or more required", sum_by_index, x, index, -1),
      refusal("sum_by_index: x is []; at least one axis required", sum_by_index, draw::zeros(), index, 1)};
}

const Checked checked[] = {{{"gather", samples, bad_gathers}}, {{"sum_by_index", samples_of_sums, bad_sums}}};

}  // namespace
}  // namespace whence
