// The optimiser on the GPU, or the emulated one, against the CPU's: refusals, steps that are replayed, gradients that
// are not finite. Its kernels: tests/tensor/kernels/steps.cpp.
#include "nn/training/optim.h"

#include <limits>

#include "autograd/backward.h"
#include "tensor/adam.h"
#include "tests/support/device.h"

using namespace whence;
using namespace whence::test;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
const AdamStep step{1e-2, 0.9, 0.99, 1e-8, 0.1, 0.01, 0.5, 3};

struct Model final : Module {
  Tensor weight = param("weight", {30, 7}, Init::normal(0, 1)), bias = param("bias", {7}, Init::zeros(), false);
  Tensor bounded = param("bounded", {3}, Init::constant(0.5), false, {0.49, 1});
};

void set_gradients(const Model& model, std::uint64_t seed, double size = 1) {
  for (const Module::Parameter& p : model.parameters()) {
    const Tensor dx =
        raw::unary(functions::Affine{}, random_contiguous(p.tensor.shape(), DType::f32, ++seed), {size, 0});
    set_gradient(p.tensor, raw::to_device(raw::cast(dx, p.tensor.dtype()), p.tensor.device()));
  }
}
std::vector<double> all_numbers(const Model& model) {
  std::vector<double> numbers;
  for (const Module::Parameter& p : model.parameters())
    for (const double value : p.tensor.to_vector()) numbers.push_back(value);
  return numbers;
}

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

TEST_CASE("cuda optimiser: Adam of a model on the GPU, with and without replaying, is Adam on the CPU") {
  constexpr double terms = 37, clip = 0.1;  // gradients are sums of `terms` terms, and clipped
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    std::vector<std::vector<double>> results;
    for (const Device device : {Device::cpu(), Device::cuda(0)}) {
      for (const bool replayed : {false, true}) {
        Model model;
        model.initialise(1);
        model.to(dtype);
        if (!device.is_cpu()) model.to(device);
        Adam adam(model, {.weight_decay = 0.1, .masters = dtype != DType::f32});
        std::vector<double> scales;
        in_order(replayed ? 20 : 0, [&] {
          for (std::uint64_t t = 1; t <= 3; ++t) {
            set_gradients(model, 10 * t, 64);
            if (replayed) {
              adam.prepare(0.01, clip * terms, 64, terms);
              adam.launch();
              scales.push_back(adam.finish().scale);
            } else {
              GradientNorm norm = clip_by_global_norm(model.parameters(), clip * terms, 64);
              norm.scale /= terms;
              scales.push_back(norm.scale);
              adam.step(0.01, norm);
            }
          }
        });
        CHECK(adam.steps() == 3);
        results.push_back(all_numbers(model));
        results.back().insert(results.back().end(), scales.begin(), scales.end());
      }
    }
    CHECK(results[0] == results[1]);  // the same bits
    CHECK(results[2] == results[3]);
    expect_close(results[2], results[0], dtype, 4);
  }
}

TEST_CASE("cuda optimiser: gradients that are not finite leave a replayed step out, and are named where an error") {
  Model model;
  model.initialise(1);
  model.to(Device::cuda(0));
  Adam adam(model);
  set_gradients(model, 1);
  set_gradient(model.bias, raw::to_device(Tensor::of({0, 0, infinity, 0, 0, 0, 0}, {7}), Device::cuda(0)));
  const std::vector<double> before = all_numbers(model);
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
  CHECK(all_numbers(model) == before);
}
