// The public gradient checker: whole models, kinks, refusals, and no side effects.
#include "autograd/check/gradcheck.h"

#include "autograd/op.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

namespace {

// y = 3 x with a backward that is wrong in one element.
struct OneElementWrong {
  static constexpr const char* name = "one_element_wrong";
  index_t element;
  struct Saved {};
  Tensor forward(Saved&, const Tensor& x) const { return raw::unary(functions::Affine{}, x, {3, 0}); }
  Grads<1> backward(const Saved&, const Tensor& dy, Needs<1>) const {
    const Tensor dx = raw::unary(functions::Affine{}, dy, {3, 0});
    visit_floating(name, dx.dtype(), [&]<class T>(Type<T>) { dx.data<T>()[element] = T(compute_t<T>(7.0f)); });
    return {dx};
  }
};

// y = x^3 whose first derivative is right and whose second is not: backward multiplies by a constant 3 x^2.
struct FrozenCube {
  static constexpr const char* name = "frozen_cube";
  struct Saved {
    SavedTensor x;
  };
  Tensor forward(Saved& saved, const Tensor& x) const {
    saved.x = x;
    return raw::binary(name, functions::Multiply{}, x, raw::unary(functions::Square{}, x));
  }
  Grads<1> backward(const Saved& saved, const Tensor& dy, Needs<1>) const {
    return {
        multiply(dy, raw::unary(functions::Affine{}, raw::unary(functions::Square{}, saved.x.get().detach()), {3, 0}))};
  }
};

struct TwoLayers {
  Tensor w1 = normal_leaf({8, 5}, 1), b1 = normal_leaf({8}, 2);
  Tensor gain = normal_leaf({8}, 3), shift = normal_leaf({8}, 4);
  Tensor w2 = normal_leaf({3, 8}, 5);
  Tensor x = normal({4, 5}, 6), target = Tensor::of({0, 2, 1, 2}, {4}, DType::i64);

  Tensor loss() const {
    const Tensor hidden = gelu(layer_norm(linear(x, w1, b1), gain, shift));
    return cross_entropy(linear(hidden, w2, {}), target);
  }
  std::vector<Named> parameters() const {
    return {{"w1", w1}, {"b1", b1}, {"gain", gain}, {"shift", shift}, {"w2", w2}};
  }
};

}  // namespace

TEST_CASE("gradcheck passes a model by its parameters and leaves it untouched") {
  const TwoLayers model;
  const GraphLink* link = model.w1.link();
  const std::vector<double> before = model.w1.to_vector();
  const GradcheckReport report = gradcheck([&] { return model.loss(); }, model.parameters());
  CHECK_MESSAGE(report.ok(), report.text());
  REQUIRE(report.inputs.size() == 5);
  CHECK(report.inputs[0].name == "w1");
  CHECK(report.inputs[0].duals.relative < 1e-13);
  CHECK(report.inputs[0].differences.relative < 1e-7);
  CHECK(model.w1.dtype() == DType::f64);
  CHECK(model.w1.to_vector() == before);
  CHECK(model.w1.link() == link);
  CHECK_FALSE(gradient(model.w1).defined());
}

TEST_CASE("a constant in f64 next to a checked input stays a constant") {
  const Tensor x = normal({3, 4}, 6), offset = normal({4}, 7);
  const auto f = [&] {
    return concat_along(0, {multiply(add(x, offset), cast(offset, DType::f64)), unsqueeze(offset, 0)});
  };
  CHECK(gradcheck(f, {{"x", x}}).ok());
}

TEST_CASE("the gradient of a cast has the dtype of what was cast") {
  const Tensor x = requires_grad(Tensor::of({1, 2, 3}, {3}, DType::f64));
  const Tensor y = square(cast(x, DType::f32));
  CHECK(y.dtype() == DType::f32);
  const Tensor dx = grad(y, Tensor::ones({3}), {x})[0];
  CHECK(dx.dtype() == DType::f64);
  CHECK(dx.to_vector() == std::vector<double>{2, 4, 6});
  CHECK_FALSE(tracked(cast(x, DType::i64)));
  CHECK(cast(x, DType::f64).identity() == x.identity());
}

TEST_CASE("the wrong element of a large input is found") {
  const Tensor x = normal({20, 30}, 6);
  const GradcheckReport report = gradcheck([&] { return apply(OneElementWrong{437}, Site::current(), x); }, {{"x", x}});
  CHECK_FALSE(report.ok());
  CHECK(report.inputs[0].duals.where == "[14,17]");
  CHECK(report.inputs[0].duals.got == 7);
  CHECK(report.inputs[0].differences.where == "[14,17]");
  CHECK(has(report.text(), "duals at [14,17]:"));
}

TEST_CASE("kinks are reported, and are no failures") {
  const Tensor x = Tensor::of({-1, 0, 2}, {3}, DType::f64);
  const GradcheckReport report = gradcheck([&] { return sum(relu(x)); }, {{"x", x}}, {.seed = 2});
  CHECK_MESSAGE(report.ok(), report.text());
  const auto kink = [](const std::string& each) { return each.starts_with("kink at [1]:") && has(each, "return 0"); };
  CHECK_MESSAGE(std::ranges::any_of(report.inputs[0].kinks, kink), report.text());
  CHECK(gradcheck([&] { return sum(relu(affine(x, 1, 0.5))); }, {{"x", x}}).inputs[0].kinks.empty());
}

TEST_CASE("a function that differs from call to call is reported") {
  const Tensor x = normal({3}, 6);
  std::uint64_t step = 0;
  const GradcheckReport report = gradcheck([&] { return dropout(x, 0.5, Stream(1, "drop", step++)); }, {{"x", x}});
  CHECK_FALSE(report.ok());
  CHECK(has(report.text(), "its inputs:"));
}

TEST_CASE("inputs that cannot be checked are refused by name") {
  const Tensor single = Tensor::zeros({2}), x = normal_leaf({2}, 6), y = exp(x);
  CHECK(has(message([&] { (void)gradcheck([&] { return exp(single); }, {{"w", single}}); }), "f32; f64"));
  CHECK(has(message([&] { (void)gradcheck([&] { return exp(y); }, {{"y", y}}); }), "gradcheck: y"));
  CHECK(has(message([&] { (void)gradcheck([&] { return exp(x); }, {{"x", x}, {"again", x}}); }), "gradcheck: again"));
  CHECK(gradcheck(
      [&] { return exp(single); }, {{"w", single}}, {.differences = false, .dual_tolerance = 1e-5, .any_dtype = true})
            .ok());
}

TEST_CASE("numbers are back after f has thrown") {
  const Tensor x = normal({3}, 6);
  const std::vector<double> before = x.to_vector();
  int calls = 0;
  const auto gives_up = [&] {
    if (++calls == 4) throw InputError("f");
    return square(x);
  };
  CHECK_THROWS_AS((void)gradcheck(gives_up, {{"x", x}}), InputError);
  CHECK(x.dtype() == DType::f64);
  CHECK(x.to_vector() == before);
  CHECK_FALSE(tracked(x));
}

TEST_CASE("an input that f does not read has derivative 0") {
  const Tensor x = normal({3}, 6), unused = normal({2}, 8);
  CHECK(gradcheck([&] { return square(x); }, {{"x", x}, {"unused", unused}}).ok());
}

TEST_CASE("second derivatives: right ones pass, a frozen one is caught") {
  const Tensor x = normal({4}, 6);
  const GradcheckReport right = gradgradcheck([&] { return multiply(x, square(x)); }, {{"x", x}});
  CHECK_MESSAGE(right.ok(), right.text());
  REQUIRE(right.inputs.size() == 2);
  CHECK(right.inputs[1].name == "cotangent");
  CHECK(gradcheck([&] { return apply(FrozenCube{}, Site::current(), x); }, {{"x", x}}).ok());
  CHECK_FALSE(gradgradcheck([&] { return apply(FrozenCube{}, Site::current(), x); }, {{"x", x}}).ok());
  CHECK_FALSE(tracked(x));
}
