// Samples of autograd/ops/norm.cpp.
#include "autograd/ops.h"
#include "autograd/samples/samples.h"

namespace whence {
namespace {

using Inputs = std::vector<Tensor>;

// Makes a sample of layer_norm, rms_norm or add_norm; for add_norm the result is the sums, then their norms.
CheckedSample sample(const char* name, const Shape& shape, bool added, bool biased, double epsilon) {
  Inputs inputs{draw::normal(shape)};
  if (added) inputs.push_back(draw::normal(shape));
  inputs.push_back(draw::normal({shape[-1]}));
  if (biased || added) inputs.push_back(biased ? draw::normal({shape[-1]}) : Tensor());
  const auto norm = [=](const Tensor& x, const Tensor& weight, const Tensor& bias) {
    return biased ? layer_norm(x, weight, bias, epsilon) : rms_norm(x, weight, epsilon);
  };
  if (!added) return {name, inputs, [=](const Inputs& in) { return norm(in[0], in[1], in.back()); }};
  return {name, inputs,
      [=](const Inputs& in) {
        const SumAndNorm y = add_norm(in[0], in[1], in[2], in[3], epsilon);
        return concat_along(-1, {y.sum, y.normed});
      },
      false,
      [=](const Inputs& in) {
        const Tensor sum = in[0] + in[1];
        return concat_along(-1, {sum, norm(sum, in[2], in[3])});
      }};
}

// A row of equal sums contains only the rounding error of its mean, and epsilon sets how much that is amplified: each
// derivative by another factor of 1 / sqrt(epsilon).
Samples norm_samples(bool added, bool biased) {
  const double epsilon = biased ? 1e-3 : 1e-6;
  return {sample("rows", {4, 7}, added, biased, epsilon), sample("leading axes", {2, 3, 16}, added, biased, epsilon),
      sample("one row without an axis", {5}, added, biased, added ? 0.1 : 1e-3),
      sample("no rows", {0, 3}, added, biased, epsilon)};
}
Samples samples_of_layer_norm() {
  Samples all = norm_samples(false, true);
  all.push_back(sample("two channels", {3, 2}, false, true, 1e-5));
  return all;
}
Samples samples_of_rms_norm() {
  Samples all = norm_samples(false, false);
  all.push_back(sample("several runs of rows, blocks of channels", {130, 70}, false, false, 1e-6));
  all.push_back(sample("one channel", {3, 1}, false, false, 0.1));
  all.push_back(sample("a row of zeros", {2, 3}, false, false, 1e-2));
  all.back().inputs[0] = Tensor::zeros({2, 3}, DType::f64);
  return all;
}
Samples samples_of_add_norm() {
  Samples all = norm_samples(true, true);
  all.push_back(sample("without bias, several runs of rows", {130, 6}, true, false, 1e-5));
  for (const bool of_sum : {false, true}) {
    all.push_back(sample(of_sum ? "the sum alone" : "the norm alone", {3, 6}, true, false, 1e-5));
    all.back().run = [=](const Inputs& in) {
      const SumAndNorm y = add_norm(in[0], in[1], in[2], in[3], 1e-5);
      return of_sum ? y.sum : y.normed;
    };
    all.back().composed = [=](const Inputs& in) {
      const Tensor sum = in[0] + in[1];
      return of_sum ? sum : rms_norm(sum, in[2], 1e-5);
    };
  }
  return all;
}

std::vector<BadInput> bad_layer_norms() {
  return {refusal("layer_norm: weight is [4]; [3] required", layer_norm, draw::zeros(2, 3), draw::zeros(4),
              draw::zeros(3), 0),
      refusal(
          "layer_norm: bias is [4]; [3] required", layer_norm, draw::zeros(2, 3), draw::zeros(3), draw::zeros(4), 0),
      refusal("layer_norm: x is [2,0]; [... c] with c > 0 required", layer_norm, draw::zeros(2, 0), draw::zeros(0),
          draw::zeros(0), 0)};
}
std::vector<BadInput> bad_rms_norms() {
  return {refusal("rms_norm: epsilon -1 given; 0 or more required", rms_norm, draw::zeros(2, 3), draw::zeros(3), -1)};
}
std::vector<BadInput> bad_add_norms() {
  return {refusal("add_norm: added is [1,3]; [2,3] required", add_norm, draw::zeros(2, 3), draw::zeros(1, 3),
      draw::zeros(3), Tensor(), 0)};
}

const Checked checked[] = {{{"layer_norm", samples_of_layer_norm, bad_layer_norms}, Accepts::any_shapes},
    {{"rms_norm", samples_of_rms_norm, bad_rms_norms}, Accepts::any_shapes},
    {{"add_norm", samples_of_add_norm, bad_add_norms}}};

}  // namespace
}  // namespace whence
