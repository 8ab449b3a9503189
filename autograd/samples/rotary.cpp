// Samples of autograd/ops/rotary.cpp.
#include "autograd/ops.h"
#include "autograd/samples/samples.h"
#include "tensor/random.h"

namespace whence {
namespace {

Tensor constant_angles(const Shape& shape) { return Tensor::uniform(shape, -9, 9, Stream(1, "angles"), DType::f64); }

Tensor rotated(const Tensor& x, const Shape& angles, bool interleaved, Site site) {
  return rotary(x, constant_angles(angles), interleaved, site);
}

Samples samples() {
  auto all = drawn<Shape, bool>(
      rotated, {{"halves", {2, 3, 5, 4}, {Shape{5, 2}, false}}, {"interleaved", {2, 3, 5, 4}, {Shape{5, 2}, true}},
                   {"angles per sequence, some dims stay", {2, 3, 4, 7}, {Shape{2, 1, 4, 2}, false}},
                   {"no rows", {0, 4}, {Shape{0, 2}, true}}})();
  const auto learned = [&](const char* called, const Shape& x, const Shape& angles, bool interleaved) {
    all.push_back({called, {draw::normal(x), draw::uniform(angles, -9, 9)},
        [=](const std::vector<Tensor>& in) { return rotary(in[0], in[1], interleaved); }});
  };
  learned("learned angles", {2, 3, 5, 4}, {5, 2}, false);
  learned("learned angles of each sequence, interleaved, some dims stay", {2, 3, 4, 7}, {2, 1, 4, 2}, true);
  learned("no pairs, interleaved", {2, 4}, {2, 0}, true);
  learned("learned angles of each head", {2, 3, 4, 6}, {2, 3, 4, 3}, false);
  learned("learned angles of each head, shared by sequences", {2, 3, 4, 5}, {1, 3, 4, 2}, true);
  return all;
}

std::vector<BadInput> rotary_refusals() {
  return {
      refusal("rotary: x is [3,4], angles are [3,3]; x [... t d] and angles [t m] or [... t m] with 2m <= d required, "
              "leading axes equal or 1",
          rotary, draw::zeros(3, 4), Tensor::zeros({3, 3}, DType::f64), false),
      refusal("rotary: x is f64, angles are f32; angles of f64 or of x's dtype required", rotary,
          Tensor::zeros({3, 4}, DType::f64), draw::zeros(3, 2), false)};
}

// Computes the first sample.
Tensor reference(const std::vector<Tensor>& in) {
  const Tensor a = constant_angles({5, 2}), first = slice(in[0], -1, 0, 2), second = slice(in[0], -1, 2, 4);
  return concat_along(-1, {first * cos(a) - second * sin(a), first * sin(a) + second * cos(a)});
}

const Checked checked({"rotary", samples, rotary_refusals, reference});

}  // namespace
}  // namespace whence
