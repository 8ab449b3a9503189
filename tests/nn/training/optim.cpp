// Adam, AdamW and SGD against PyTorch's numbers; clipping; refusals that change nothing.
#include "nn/training/optim.h"

#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

struct Pair final : Module {
  Tensor weight = param("weight", {2, 3}, Init::zeros()), bias = param("bias", {3}, Init::zeros(), false);
};

Tensor wave(index_t count, double phase, double scale, const Shape& shape, DType dtype) {
  std::vector<double> values;
  for (index_t i = 0; i < count; ++i) values.push_back(scale * std::sin(phase + 0.7 * static_cast<double>(i)));
  return Tensor::of(values, shape, dtype);
}

// Five steps at rates 0.01 t, from weights cos(i) and cos(10 + i), with gradients 0.5 sin(1 + 0.7 i + 1.3 t) and 0.5
// sin(2 + 0.7 i + 1.3 t).
void five_steps(Pair& pair, Optimizer& adam, double gradients, double scale) {
  const DType dtype = pair.weight.dtype();
  std::vector<double> w, b;
  for (int i = 0; i < 6; ++i) w.push_back(std::cos(i));
  for (int i = 0; i < 3; ++i) b.push_back(std::cos(10.0 + i));
  raw::copy_into(Tensor::of(w, {2, 3}, dtype), pair.weight);
  raw::copy_into(Tensor::of(b, {3}, dtype), pair.bias);
  for (int t = 1; t <= 5; ++t) {
    const Tensor of_weight = wave(6, 1 + 1.3 * t, gradients, {2, 3}, dtype);
    set_gradient(pair.weight, raw::transpose(raw::copy(raw::transpose(of_weight))));  // with other strides
    set_gradient(pair.bias, wave(3, 2 + 1.3 * t, gradients, {3}, dtype));
    adam.step(0.01 * t, scale);
  }
}

using Make = std::function<std::unique_ptr<Optimizer>(const Module&)>;
Make adam_of(const AdamOptions& options) {
  return [=](const Module& module) { return std::make_unique<Adam>(module, options); };
}
Make sgd_of(const SgdOptions& options) {
  return [=](const Module& module) { return std::make_unique<Sgd>(module, options); };
}

// torch.optim's numbers in f64, weight decay 0.1 on the weight and 0 on the bias; Adam's beta 0.9 and 0.95, epsilon
// 1e-6.
struct Expected {
  Make make;
  std::vector<double> weight, bias;
  double gradients = 4, scale = 0.125;  // which multiplies gradients before anything else
};
std::vector<Expected> from_pytorch() {
  const AdamOptions decoupled{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-6, .weight_decay = 0.1};
  AdamOptions coupled = decoupled;
  coupled.decoupled = false;
  const std::vector<double> bias_of_adam{-0.7862246543101343, 0.0462317251669959, 0.8651036244699858};
  return {{adam_of(decoupled),
              {0.9924546358344252, 0.5623898874051142, -0.3618390479894982, -0.9450663656577812, -0.6371985764065436,
                  0.25800837977070495},
              bias_of_adam, 0.5, 1},
      {adam_of(coupled),
          {0.9695943193833763, 0.5517024173641742, -0.35632529909071536, -0.9298543321549718, -0.6240022194480696,
              0.2520877363205292},
          bias_of_adam},
      {sgd_of({.weight_decay = 0.1}),
          {0.9785884266442375, 0.5149547061543346, -0.4298900777091422, -0.98845512192008, -0.644179775743263,
              0.292223319727988},
          {-0.8585732756895184, -0.013691810255172871, 0.8356416360797742}},
      {sgd_of({.momentum = 0.9, .weight_decay = 0.1}),
          {0.968522136816391, 0.5450061953402382, -0.3661043978275947, -0.92690386375378, -0.6280119107635382,
              0.2460279274845937},
          {-0.8062837014473111, 0.03125597565426656, 0.852107987614708}},
      {sgd_of({.momentum = 0.9, .nesterov = true, .weight_decay = 0.1}),
          {0.9502882824567294, 0.5188538552423065, -0.3854616829863753, -0.9322211084364658, -0.6212109141920094,
              0.2588285354693079},
          {-0.8290642308232911, 0.010455439644421331, 0.8430702620737686}}};
}

}  // namespace

TEST_CASE("optimisers: PyTorch's numbers for AdamW, Adam with L2, SGD without momentum, with it, and Nesterov's") {
  for (const Expected& expected : from_pytorch()) {
    for (const DType dtype : {DType::f64, DType::f32}) {
      INFO(expected.weight[0], ", dtype ", dtype);
      Pair pair;
      pair.to(dtype);
      const std::unique_ptr<Optimizer> optimiser = expected.make(pair);
      five_steps(pair, *optimiser, expected.gradients, expected.scale);
      const double tolerance = dtype == DType::f64 ? 1e-12 : 2e-6;
      CHECK(distance(pair.weight.to_vector(), expected.weight) < tolerance);
      CHECK(distance(pair.bias.to_vector(), expected.bias) < tolerance);
      CHECK(optimiser->steps() == 5);
    }
  }
}

TEST_CASE("optimisers: a step ends inside the bounds of each parameter, in bf16 at the nearest number") {
  struct Bounded final : Module {
    Tensor low = param("low", {2}, Init::zeros(), true, {.low = 0.01}),
           both = param("both", {2}, Init::zeros(), true, {.low = -0.5, .high = 0.25});
  };
  for (const Make& make : {adam_of({.masters = true}), sgd_of({.masters = true})})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Bounded bounded;
      bounded.to(dtype);
      const std::unique_ptr<Optimizer> optimiser = make(bounded);
      for (const Tensor& each : {bounded.low, bounded.both}) set_gradient(each, Tensor::of({1, -1}, {2}, dtype));
      optimiser->step(1);
      const double least = dtype == DType::bf16 ? 0.010009765625 : 0.01;
      CHECK(distance(bounded.low.to_vector(), {least, 1}) < 1e-6);
      CHECK(distance(bounded.both.to_vector(), {-0.5, 0.25}) < 1e-12);
    }
}

TEST_CASE("sgd: one moment, with momentum alone") {
  Pair pair;
  for (const double momentum : {0.0, 0.9}) {
    const Sgd sgd(pair, {.momentum = momentum});
    CHECK(sgd.moments()[0].first.defined() == (momentum > 0));
    CHECK_FALSE(sgd.moments()[0].second.defined());
  }
}

TEST_CASE("adam: parameters without a path from the loss are all named, and nothing is changed") {
  struct Three final : Module {
    Tensor a = param("a", {2}, Init::ones()), b = param("b", {2}, Init::ones()), c = param("c", {2}, Init::ones());
  } three;
  Adam adam(three);
  backward(sum(square(three.b)));
  CHECK_THROWS_WITH_AS(adam.step(0.1), doctest::Contains("parameters a, c"), Error);
  CHECK_THROWS_WITH_AS((void)clip_by_global_norm(three.parameters(), 1), doctest::Contains("parameters a, c"), Error);
  CHECK(three.b.to_vector() == std::vector<double>{1, 1});
  CHECK(adam.steps() == 0);
  three.freeze("a");
  three.freeze("c");
  adam.step(0.1);
  CHECK(three.a.to_vector() == std::vector<double>{1, 1});
  CHECK(three.b.to_vector()[0] == doctest::Approx(0.9));
  adam.zero_gradients();
  CHECK_THROWS_WITH_AS(adam.step(0.1), doctest::Contains("parameters b;"), Error);
}

TEST_CASE("adam: a gradient that is not finite is named, and nothing is changed") {
  for (const double wrong : {infinity, -infinity, std::nan("")}) {
    Pair pair;
    Adam adam(pair);
    set_gradient(pair.weight, Tensor::ones({2, 3}));
    set_gradient(pair.bias, Tensor::of({0, wrong, 0}, {3}));
    CHECK_THROWS_WITH_AS(adam.step(0.1), doctest::Contains("gradient of bias is"), NotFinite);
    CHECK_THROWS_WITH_AS(
        (void)clip_by_global_norm(pair.parameters(), 1), doctest::Contains("element 1 of [3]"), NotFinite);
    CHECK(pair.weight.to_vector() == std::vector<double>(6, 0));
    CHECK(adam.moments()[0].first.to_vector() == std::vector<double>(6, 0));
  }
}

TEST_CASE("clipping: norm and scale") {
  Pair pair;
  pair.to(DType::f64);
  set_gradient(pair.weight, Tensor::of({3, 0, 0, 0, 0, 0}, {2, 3}, DType::f64));
  set_gradient(pair.bias, Tensor::of({0, 4, 0}, {3}, DType::f64));
  const GradientNorm clipped = clip_by_global_norm(pair.parameters(), 2);
  CHECK(clipped.value == 5);
  CHECK(clipped.scale == 0.4);
  CHECK(gradient(pair.weight).to_vector()[0] == 3);  // the scale goes into the step
  CHECK(clip_by_global_norm(pair.parameters(), 5).scale == 1);
  CHECK(clip_by_global_norm(pair.parameters(), infinity).scale == 1);
  set_gradient(pair.weight, Tensor::of({3e200, 0, 0, 0, 0, 0}, {2, 3}, DType::f64));  // its square overflows
  set_gradient(pair.bias, Tensor::of({0, 4e200, 0}, {3}, DType::f64));
  CHECK(clip_by_global_norm(pair.parameters(), 1).value == doctest::Approx(5e200).epsilon(1e-14));
  set_gradient(pair.weight, Tensor::zeros({2, 3}, DType::f64));
  set_gradient(pair.bias, Tensor::zeros({3}, DType::f64));
  const GradientNorm nothing = clip_by_global_norm(pair.parameters(), 1);
  CHECK(nothing.value == 0);
  CHECK(nothing.scale == 1);
  for (const double wrong : {0.0, -1.0, std::nan("")})
    CHECK(has(message([&] { (void)clip_by_global_norm(pair.parameters(), wrong); }), to_text("norm ", wrong)));
}

TEST_CASE("optimisers: options, rates and dtypes out of range") {
  Pair pair, wide, narrow;
  narrow.to(DType::bf16);
  Adam adam(pair), cast(wide);
  for (Pair* each : {&pair, &wide}) {
    set_gradient(each->weight, Tensor::ones({2, 3}));
    set_gradient(each->bias, Tensor::ones({3}));
  }
  wide.to(DType::f64);
  const double nan = std::nan("");
  const std::pair<std::function<void()>, const char*> rows[] = {
      {[&] { Adam(pair, {.beta1 = 1}); }, "betas 1 and 0.999"},
      {[&] { Adam(pair, {.beta2 = -0.1}); }, "betas 0.9 and -0.1"}, {[&] { Adam(pair, {.epsilon = 0}); }, "epsilon 0"},
      {[&] { Adam(pair, {.epsilon = 1e-46}); }, "epsilon 1e-46"},  // 0 in f32
      {[&] { Adam(pair, {.weight_decay = nan}); }, "weight decay nan"},
      {[&] { Sgd(pair, {.momentum = 1}); }, "momentum 1"}, {[&] { Sgd(pair, {.nesterov = true}); }, "Nesterov"},
      {[&] { Sgd(pair, {.weight_decay = -1}); }, "weight decay -1"}, {[&] { adam.step(nan); }, "rate nan"},
      {[&] { adam.step(0.1, infinity); }, "scale inf"}, {[&] { cast.step(0.1); }, "cast before"},
      {[&] { Adam{narrow}; }, "is bf16"}, {[&] { Sgd{narrow}; }, "is bf16"}};
  for (const auto& [call, part] : rows) CHECK_MESSAGE(has(message(call), part), part);
}
