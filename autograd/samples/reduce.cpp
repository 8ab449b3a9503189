// Samples of autograd/ops/reduce.cpp.
#include "autograd/ops.h"
#include "autograd/samples/samples.h"

namespace whence {
namespace {

using AxisList = std::vector<int>;

Samples maximum_samples() {
  const auto along = [](int axis) {
    return [axis](const std::vector<Tensor>& in) { return maximum_along(in[0], axis); };
  };
  return {{"last axis", {draw::normal({3, 5})}, along(-1)}, {"middle axis", {draw::normal({2, 4, 3})}, along(1)},
      {"ties", {draw::integers({3, 6}, 0, 1)}, along(1), true}, {"one axis", {draw::normal({7})}, along(0)}};
}
std::vector<BadInput> axis_refusals() {
  return {refusal("sum: axis 2 given for 2 axes; an axis in [-2, 2) is required", sum, draw::zeros(2, 3), AxisList{2},
              false),
      refusal("sum_to: x is [2,3], shape [2] given; a shape that expands to x's is required", sum_to, draw::zeros(2, 3),
          Shape{2}),
      refusal("maximum_along: x is [2,0]; at least one element along axis 1 required", maximum_along, draw::zeros(2, 0),
          1)};
}

const Checked checked[] = {
    {{"sum",
        drawn<AxisList, bool>(
            sum, {{"all", {2, 3, 4}, {AxisList{}, false}}, {"middle axis", {2, 3, 4}, {AxisList{1}, false}},
                     {"two axes, kept", {2, 3, 4}, {AxisList{0, -1}, true}}, {"0-d", {}, {AxisList{}, false}},
                     {"of nothing", {3, 0}, {AxisList{1}, false}}}),
        axis_refusals}},
    {{"mean", drawn<AxisList, bool>(
                  mean, {{"all", {3, 5}, {AxisList{}, false}}, {"last axis, kept", {2, 3, 4}, {AxisList{-1}, true}},
                            {"outer axes", {2, 3, 4}, {AxisList{0, 1}, false}}})}},
    {{"sum_to", drawn<Shape>(sum_to, {{"inner and leading axis", {2, 3, 4}, Shape{3, 1}}, {"to 0-d", {2, 3}, Shape{}},
                                         {"from nothing", {0, 3}, Shape{1, 3}}})}},
    {{"maximum_along", maximum_samples}}};

}  // namespace
}  // namespace whence
