// The optimiser on the GPU, or the emulated one, against the CPU's: refusals, steps that are replayed, gradients that
// are not finite. Its kernels: tests/tensor/kernels/steps.cpp.
#include "nn/training/optim.h"

#include <limits>

#include "tensor/adam.h"
#include "tests/support/device.h"

using namespace whence;
using namespace whence::test;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
const AdamStep step{1e-2, 0.9, 0.99, 1e-8, 0.1, 0.01, 0.5, 3};

struct Model final : Module {
  Tensor weight = param("weight", {30, 7}, Init::normal(0, 1)), bias = param("bias", {7}, Init::zeros(), false);
};

}  // namespace

TEST_CASE("cuda optimiser: dtypes that do not go together are refused, before any entry is changed") {
  for (const Device device : {Device::cpu(), Device::cuda(0)}) {
    const auto entry_of = [&](DType gradient, DType weight, DType shadow) {
      const auto some = [&](DType dtype) { return on_device(random_contiguous({2}, dtype, 1), device); };
      const Tensor rounded = shadow == weight ? Tensor() : some(shadow);
      return AdamEntry{some(gradient), some(weight), some(weight), some(weight), rounded, true};
    };
    const auto refusal = [&](DType gradient, DType weight, DType shadow) {
      const AdamEntry entries[] = {entry_of(DType::f32, DType::f32, DType::f32), entry_of(gradient, weight, shadow)};
      const std::vector<double> before = entries[0].weight.to_vector();
      const std::string text = error_text([&] { kernels(device).adam_all(step, {}, entries); });
      CHECK(entries[0].weight.to_vector() == before);
      return text.substr(std::min(text.find("adam: "), text.size()));
    };
    const auto given = [](const char* dtype, const char* required) {
      return to_text("adam: dtype ", dtype, " given; ", required, " required; convert with cast");
    };
    const char *a_weight = "an f32 weight, or an f64 weight with an f64 gradient",
               *a_shadow = "f16 or bf16 as the shadow of an f32 weight";
    CHECK(refusal(DType::f16, DType::f16, DType::f16) == given("f16", a_weight));
    CHECK(refusal(DType::f16, DType::f64, DType::f64) == given("f64", a_weight));
    CHECK(refusal(DType::f64, DType::f32, DType::f32) == given("f64", "a gradient in f16, bf16 or f32"));
    CHECK(refusal(DType::f64, DType::f64, DType::bf16) == given("bf16", a_shadow));
    CHECK(refusal(DType::f32, DType::f32, DType::f64) == given("f64", a_shadow));
  }
}

TEST_CASE("cuda optimiser: gradients that are not finite leave a replayed step out, and are named where an error") {
  Model model;
  model.initialise(1);
  model.to(Device::cuda(0));
  Adam adam(model);
  set_gradient(model.weight, Tensor::ones({30, 7}, DType::f32, Device::cuda(0)));
  set_gradient(model.bias, raw::to_device(Tensor::of({0, 0, infinity, 0, 0, 0, 0}, {7}), Device::cuda(0)));
  const std::vector<double> before = numbers_of(model);
  CHECK_THROWS_WITH_AS(static_cast<void>(clip_by_global_norm(model.parameters(), 1)),
      doctest::Contains("the gradient of bias is inf at element 2"), Error);
  const GradientNorm norm = clip_by_global_norm(model.parameters(), 1, 1024);
  CHECK_FALSE(norm.finite());
  CHECK(std::isnan(norm.scale));
  CHECK_THROWS_WITH_AS(adam.step(0.1, norm), doctest::Contains("leave the step out"), Error);
  adam.prepare(0.1, 1, 1024);
  adam.launch();
  CHECK_FALSE(adam.finish().finite());
  CHECK(adam.steps() == 0);
  CHECK(numbers_of(model) == before);
}
