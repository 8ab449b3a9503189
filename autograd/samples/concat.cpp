// Samples of autograd/ops/concat.cpp.
#include "autograd/ops.h"
#include "autograd/samples/samples.h"

namespace whence {
namespace {

Samples samples() {
  const auto along = [](int axis) { return [axis](const std::vector<Tensor>& in) { return concat_along(axis, in); }; };
  return {{"three parts, middle axis", {draw::normal({2, 1, 3}), draw::normal({2, 4, 3}), draw::normal({2, 2, 3})},
              along(1)},
      {"last axis", {draw::normal({3, 2}), draw::normal({3, 5})}, along(-1)},
      {"one part", {draw::normal({3})}, along(0)},
      {"an empty part", {draw::normal({0, 2}), draw::normal({3, 2})}, along(0)}};
}
std::vector<BadInput> bad_inputs() {
  const std::vector<Tensor> parts{draw::zeros(2, 3), draw::zeros(3, 3)}, none;
  return {refusal("concat_along: part 0 is [2,3], part 1 is [3,3]; equal extents outside axis 1 required", concat_along,
              1, parts),
      refusal("concat_along: no parts given; at least one required", concat_along, 0, none)};
}

const Checked checked({"concat_along", samples, bad_inputs});

}  // namespace
}  // namespace whence
