// Modules: paths, initialisation, casting, freezing. MLPs. Schedules against their formulas.
#include "autograd/inspect/capture.h"
#include "nn/layers/layers.h"
#include "nn/training/schedule.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

namespace {

struct Block final : Module {
  Linear first{3, 4};
  Norm norm{4};
  Tensor scale = param("scale", {2}, Init::ones());
  explicit Block(bool extra = false) {
    child("first", first);
    if (extra) child("norm", norm);
  }
};

struct Stack final : Module {
  Block a, b;
  explicit Stack(bool extra = false) : a(extra) {
    child("blocks", 0, a);
    child("blocks", 1, b);
  }
};

struct Registers final : Module {
  Linear one{1, 1}, two{1, 1};
  void take(const std::string& name) { static_cast<void>(param(name, {1}, Init::zeros())); }
  void adopt(const std::string& name, Module& module) { child(name, module); }
};

}  // namespace

TEST_CASE("module: paths of a whole subtree, own parameters first, in order of registration") {
  const Stack stack;
  CHECK(paths_of(stack) == std::vector<std::string>{"blocks.0.scale", "blocks.0.first.weight", "blocks.0.first.bias",
                               "blocks.1.scale", "blocks.1.first.weight", "blocks.1.first.bias"});
  CHECK(stack.b.first.path() == "blocks.1.first");
  CHECK(stack.path().empty());
  CHECK(stack.parameter_count() == 2 * (2 + 12 + 4));
}

TEST_CASE("module: names are checked") {
  Registers module;
  module.take("a"), module.adopt("one", module.one);
  const std::pair<std::function<void()>, const char*> rows[] = {{[&] { module.take(""); }, "empty name"},
      {[&] { module.take("a.b"); }, "a.b"}, {[&] { module.take("a"); }, "'a' given"},
      {[&] { module.adopt("a", module.two); }, "'a' given"}, {[&] { module.adopt("again", module.one); }, "without a"},
      {[&] { module.adopt("self", module); }, "a tree"}};
  for (const auto& [call, part] : rows) CHECK_MESSAGE(has(message(call), part), message(call));
  CHECK(paths_of(module) == std::vector<std::string>{"a", "one.weight", "one.bias"});
}

TEST_CASE("module: a child that dies first is forgotten, and one that outlives its parent is free again") {
  auto parent = std::make_unique<Registers>();
  auto child = std::make_unique<Linear>(2, 2);
  parent->adopt("gone", *child);
  child.reset();
  CHECK(paths_of(*parent).empty());
  const auto survivor = std::make_unique<Linear>(2, 2);
  parent->adopt("kept", *survivor);
  parent = std::make_unique<Registers>();
  parent->adopt("new", *survivor);
  CHECK(paths_of(*parent) == std::vector<std::string>{"new.weight", "new.bias"});
}

TEST_CASE("module: a parameter's first numbers depend on seed and path alone") {
  Stack plain, larger(true), other;
  CHECK(std::isnan(parameter(plain, "blocks.0.first.weight").to_vector()[0]));  // not initialised: NaN
  plain.initialise(7);
  larger.initialise(7);
  other.initialise(8);
  for (const auto& path : paths_of(plain))
    CHECK(parameter(plain, path).to_vector() == parameter(larger, path).to_vector());
  const auto weight = parameter(plain, "blocks.0.first.weight").to_vector();
  CHECK(weight != parameter(other, "blocks.0.first.weight").to_vector());
  CHECK(weight != parameter(plain, "blocks.1.first.weight").to_vector());
  Stack precise;
  precise.to(DType::f64);
  precise.initialise(7);
  precise.to(DType::f32);
  for (const auto& path : paths_of(plain))
    CHECK(parameter(plain, path).to_vector() == parameter(precise, path).to_vector());
}

TEST_CASE("init: moments, bounds and texts") {
  const Stream stream(3, "init");
  const auto mean_and_deviation = [](const Tensor& x) {
    double sum = 0, squares = 0;
    for (const double value : x.to_vector()) sum += value, squares += value * value;
    const double mean = sum / static_cast<double>(x.numel());
    return std::pair(mean, std::sqrt(squares / static_cast<double>(x.numel()) - mean * mean));
  };
  const auto [mean, deviation] = mean_and_deviation(Init::normal(1, 0.5).draw({100, 400}, stream, DType::f64));
  CHECK(mean == doctest::Approx(1).epsilon(0.01));
  CHECK(deviation == doctest::Approx(0.5).epsilon(0.01));
  const Tensor cut = Init::truncated_normal(1, 0.5).draw({100, 400}, stream, DType::f64);
  for (const double value : cut.to_vector()) REQUIRE(std::abs(value - 1) <= 1.0);
  CHECK(mean_and_deviation(cut).second == doctest::Approx(0.5 * 0.8796).epsilon(0.01));  // of a normal cut at 2: 0.8796
  for (const double value : Init::fan_in(16).draw({1000}, stream).to_vector()) REQUIRE(std::abs(value) <= 0.25);
  const std::pair<Init, const char*> texts[] = {{Init::fan_in(16), "uniform(-0.25, 0.25)"}, {Init::zeros(), "zeros"},
      {Init::normal(0, 0.02), "normal(0, 0.02)"}, {Init::constant(0.5), "constant(0.5)"},
      {inits_of(Initialisation::gpt2, 8, 32, 2).mlp_out, "normal(0, 0.01)"}};  // 0.02 / sqrt(2 layers * 2)
  for (const auto& [init, text] : texts) CHECK(init.text() == text);
  CHECK_THROWS_WITH_AS(static_cast<void>(Init::normal(0, -1)), doctest::Contains("deviation -1"), Error);
  CHECK_THROWS_WITH_AS(static_cast<void>(Init::uniform(1, 0)), doctest::Contains("low <= high"), Error);
}

TEST_CASE("module: casting keeps handles, gradients and training alive") {
  Linear layer(2, 1);
  layer.initialise(1);
  const Tensor weight = layer.weight();
  const std::vector<double> before = weight.to_vector();
  backward(sum(layer(Tensor::ones({1, 2}))));
  layer.to(DType::f64);
  CHECK(weight.dtype() == DType::f64);
  CHECK(weight.to_vector() == before);
  CHECK_FALSE(gradient(weight).defined());
  backward(sum(layer(Tensor::of({3, 5}, {1, 2}, DType::f64))));
  CHECK(gradient(weight).dtype() == DType::f64);
  CHECK(gradient(weight).to_vector() == std::vector<double>{3, 5});
  CHECK_THROWS_WITH_AS(layer.to(DType::i64), doctest::Contains("floating dtype"), Error);
}

TEST_CASE("module: freezing what is not there is refused") {
  Stack stack;
  CHECK_THROWS_WITH_AS(stack.freeze("blocks.7.*"), doctest::Contains("matches 'blocks.7.*'"), Error);
}

TEST_CASE("mlp: each activation, and its probe") {
  for (const Activation activation : {Activation::gelu, Activation::gelu_erf, Activation::relu}) {
    MLP mlp({.dim = 2, .hidden = 3, .activation = activation});
    mlp.initialise(2);
    const Tensor x = Tensor::of({1, -2}, {1, 2});
    const Capture capture("hidden");
    const Tensor y = mlp(x);
    CHECK(y.shape() == Shape{1, 2});
    const Tensor h = linear(x, parameter(mlp, "in.weight"), parameter(mlp, "in.bias"));
    const Tensor expected = activation == Activation::relu       ? relu(h)
                            : activation == Activation::gelu_erf ? gelu_erf(h)
                                                                 : gelu(h);
    CHECK(distance(capture["hidden"].value(), expected) < 1e-6);
    CHECK(activation_of(to_string(activation)) == activation);
  }
  CHECK_THROWS_WITH_AS(static_cast<void>(activation_of("gleu")), doctest::Contains("'gleu' given"), InputError);
  CHECK_THROWS_WITH_AS(MLP({.dim = 2}), doctest::Contains("2 inputs and 0"), Error);
}

TEST_CASE("schedule: warm-up, then constant, linear, cosine, or linear at the end") {
  const ScheduleOptions linear{.peak = 2, .steps = 10, .warm_up = 4, .decay = Decay::linear},
      cosine{.peak = 1, .steps = 8, .decay = Decay::cosine, .floor = 0.1},
      constant{.peak = 3, .steps = 5, .warm_up = 2},
      wsd{.peak = 2, .steps = 40, .warm_up = 4, .decay = Decay::wsd, .floor = 0.5, .decay_share = 0.25},
      falls_at_once{.peak = 1, .steps = 8, .warm_up = 6, .decay = Decay::wsd, .decay_share = 0.5},
      all_warm_up{.peak = 1, .steps = 4, .warm_up = 4, .decay = Decay::linear};
  struct Row {
    const ScheduleOptions& options;
    index_t step;
    double rate;
  };
  for (const Row& row : {Row{linear, 1, 0.5}, {linear, 4, 2}, {linear, 5, 2 * 6.0 / 7}, {linear, 10, 2 / 7.0},
           {linear, 11, 0}, {linear, 1000, 0}, {cosine, 1, 1}, {cosine, 5, 0.55}, {cosine, 9, 0.1}, {constant, 1, 1.5},
           {constant, 5, 3}, {wsd, 2, 1}, {wsd, 4, 2}, {wsd, 5, 2}, {wsd, 29, 2}, {wsd, 30, 2}, {wsd, 31, 2 - 1.5 / 11},
           {wsd, 40, 0.5 + 1.5 / 11}, {wsd, 41, 0.5}, {falls_at_once, 6, 1}, {falls_at_once, 7, 2 / 3.0},
           {all_warm_up, 4, 1}})
    CHECK_MESSAGE(Schedule(row.options)(row.step) == doctest::Approx(row.rate), row.step);
  CHECK(has(message([&] { (void)Schedule(constant)(0); }), "step 0 given"));
}

TEST_CASE("schedule: options out of range or without effect are refused") {
  const auto refuses = [](const ScheduleOptions& options, const char* text) {
    CHECK_THROWS_WITH_AS(Schedule{options}, doctest::Contains(text), InputError);
  };
  refuses({.peak = std::nan(""), .steps = 1}, "learning rate");
  refuses({.peak = 0, .steps = 1}, "learning rate 0");
  refuses({.peak = 1, .steps = 0}, "0 steps");
  refuses({.peak = 1, .steps = 5, .warm_up = 6}, "6 warm-up steps");
  refuses({.peak = 1, .steps = 5, .decay = Decay::linear, .floor = 2}, "floor 2");
  refuses({.peak = 1, .steps = 5, .floor = 0.5}, "no effect");
  refuses({.peak = 1, .steps = 5, .decay = Decay::wsd, .decay_share = 0}, "share of 0");
  refuses({.peak = 1, .steps = 5, .decay = Decay::wsd, .decay_share = 1.5}, "share of 1.5");
  CHECK(decay_of("cosine") == Decay::cosine);
  CHECK(decay_of(to_string(Decay::wsd)) == Decay::wsd);
  CHECK_THROWS_WITH_AS(static_cast<void>(decay_of("cosinus")), doctest::Contains("'cosinus' given"), InputError);
}
