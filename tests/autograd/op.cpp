// Ops with several results (autograd/op.h): every result used, or one, or one twice; repeated passes; passes after
// errors; walks of the graph.
#include "autograd/op.h"
#include "autograd/inspect/explain.h"
#include "autograd/inspect/graph_text.h"
#include "autograd/inspect/observers.h"
#include "autograd/inspect/paths.h"
#include "autograd/inspect/zeros.h"
#include "tensor/device/allocator.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

namespace {

using Numbers = std::vector<double>;

// Returns c x by an op of the test, because the engine's op would itself report that it made infinity.
Tensor times(const Tensor& x, double c) {
  Numbers numbers = x.to_vector();
  for (double& number : numbers) number *= c;
  return Tensor::of(numbers, x.shape(), x.dtype());
}

// y_0 = 2 x + z, y_1 = 5 x. Backward records its input, and fails on request.
struct Two {
  static constexpr const char* name = "two";
  static constexpr bool once = true;
  struct Seen {
    int calls = 0;
    bool first = false, second = false, fails = false;
  };
  Seen* seen;
  struct Saved {
    SavedTensor x;
  };
  std::array<Tensor, 2> forward(Saved& saved, const Tensor& x, const Tensor& z) const {
    saved.x = x;
    return {whence::add(x * 2.0, z), x * 5.0};
  }
  Grads<2> backward(const Saved& saved, std::span<const Tensor, 2> dy, Needs<2>) const {
    ++seen->calls, seen->first = dy[0].defined(), seen->second = dy[1].defined();
    if (seen->fails) fail(name, "told to fail");
    const Tensor none = Tensor::zeros(saved.x.get().shape(), saved.x.get().dtype());
    const Tensor first = dy[0].defined() ? dy[0] : none, second = dy[1].defined() ? dy[1] : none;
    return {raw::add(times(first, 2), times(second, 5)), first};
  }
};

struct Same {
  static constexpr const char* name = "same";
  struct Saved {};
  std::array<Tensor, 1> forward(Saved&, const Tensor& x) const { return {x}; }
  Grads<1> backward(const Saved&, std::span<const Tensor, 1> dy, Needs<1>) const { return {dy[0]}; }
};

struct SavesTwice {
  static constexpr const char* name = "saves_twice";
  struct Saved {
    SavedTensor x;
  };
  Tensor forward(Saved& saved, const Tensor& x) const {
    saved.x = Tensor::zeros(x.shape(), x.dtype());
    saved.x = x;
    return x * x;
  }
  Grads<1> backward(const Saved& saved, const Tensor& dy, Needs<1>) const { return {dy * saved.x.get() * 2.0}; }
};

struct Example {
  Two::Seen seen;
  Tensor x = leaf({1, -2}, {2}), z = leaf({3, 4}, {2});
  std::array<Tensor, 2> y = apply(Two{&seen}, Site::current(), x, z);
  Tensor first = y[0], second = y[1];
};

}  // namespace

TEST_CASE("several results: both results, one, one twice, and none") {
  Example of;
  const Tensor &first = of.first, &second = of.second;
  CHECK(first.to_vector() == Numbers{5, 0});
  CHECK(second.to_vector() == Numbers{5, -10});
  const Tensor ones = Tensor::ones({2}, DType::f64);
  auto g = grad(first + second, ones, {of.x, of.z});
  CHECK(g[0].to_vector() == Numbers{7, 7});
  CHECK(g[1].to_vector() == Numbers{1, 1});
  CHECK(of.seen.calls == 1);
  g = grad(second, ones, {of.x});
  CHECK(g[0].to_vector() == Numbers{5, 5});
  CHECK_FALSE(of.seen.first);  // nothing is left of the pass before
  CHECK(of.seen.second);
  g = grad(first * first + first, ones, {of.x});  // 2 (2 first + 1)
  CHECK(g[0].to_vector() == Numbers{22, 2});
  CHECK_FALSE(of.seen.second);
  CHECK(of.seen.calls == 3);
  CHECK(grad(first * second, ones, {first, second})[1].to_vector() == Numbers{5, 0});
  CHECK(of.seen.calls == 3);  // it ended at the results
}

TEST_CASE("several results: backward again and again, and once") {
  Example of;
  const Tensor &first = of.first, &second = of.second;
  const Tensor y = sum(first * second);
  backward(y, {}, {.keep_graph = true});
  const Numbers once = gradient(of.x).to_vector();
  CHECK(once == Numbers{35, -20});  // 2 second + 5 first
  backward(y, {}, {.keep_graph = true});
  CHECK(gradient(of.x).to_vector() == Numbers{70, -40});
  backward(sum(second));
  CHECK(gradient(of.x).to_vector() == Numbers{75, -35});
  for (const Tensor& each : {second, first}) CHECK(has(message([&] { backward(sum(each)); }), "two recorded"));
  CHECK(gradient(of.x).to_vector() == Numbers{75, -35});
}

TEST_CASE("several results: a backward that fails leaves nothing for the next") {
  Example of;
  const Tensor &first = of.first, &second = of.second;
  const Tensor ones = Tensor::ones({2}, DType::f64);
  of.seen.fails = true;
  CHECK(has(message([&] { (void)grad(first * 3.0 + second, ones, {of.x}); }), "two: told"));
  of.seen.fails = false;
  CHECK(grad(second, ones, {of.x})[0].to_vector() == Numbers{5, 5});
  CHECK_FALSE(of.seen.first);
  CHECK(grad(first, ones, {of.x})[0].to_vector() == Numbers{2, 2});
  CHECK_FALSE(of.seen.second);
}

TEST_CASE("several results: what an op gives back unchanged keeps its own history") {
  const Tensor x = leaf({1, 2}, {2});
  const Tensor y = apply(Same{}, Site::current(), x)[0];
  CHECK(x.link() != y.link());
  CHECK(grad(sum(y * y), {}, {x})[0].to_vector() == Numbers{2, 4});
}

TEST_CASE("several results: graphs are freed, used or not, and after an error") {
  const std::size_t before = Allocator::cpu().statistics().live;
  for (const bool fails : {false, true}) {
    Example of;
    of.seen.fails = fails;
    Tensor y = of.x;
    for (int k = 0; k < 1000; ++k) {
      const std::array<Tensor, 2> made = apply(Two{&of.seen}, Site::current(), y, of.z);
      y = k % 2 ? made[0] * 0.5 : made[1] * 0.2;
    }
    CHECK(error_text([&] { backward(sum(y)); }).empty() == !fails);
  }
  CHECK(Allocator::cpu().statistics().live == before);
}

TEST_CASE("several results: walks over the graph meet each result by itself") {
  Example of;
  const Tape tape;
  const Tensor scaled = of.x * 3.0;
  const std::array<Tensor, 2> made = apply(Two{&of.seen}, Site::current(), scaled, of.z);
  const Tensor &first = made[0], &second = made[1];
  const Tensor y = sum(first * 7.0) + sum(second);
  // x reaches y by first (3 2 7) and by second (3 5).
  const std::vector<GradientPath> found =
      gradient_paths(y, {}, place_of("x", of.x), {place_of("first", first), place_of("second", second)});
  REQUIRE(found.size() == 2);
  for (const GradientPath& way : found)
    CHECK(way.gradient.to_vector() ==
          (way.steps == std::vector<std::string>{"first"} ? Numbers{42, 42} : Numbers{15, 15}));
  // Both paths join at `scaled`, and split again after it.
  const std::vector<Passage> passed = passages(y, {}, {place_of("scaled", scaled), place_of("x", of.x)});
  CHECK(passed.back().norm == doctest::Approx(std::sqrt(2.0) * 57));
  const Zeros zeros = why_zero(sum(second), {}, {place_of("x", of.x)});
  CHECK(zeros.of.at("x") == std::vector<unsigned char>{0, 0});  // no entry is 0
  const Contribution value = explain_value(tape, place_of("first", first), {1}, {place_of("scaled", scaled)}, 5);
  CHECK(value.value == -8);
  CHECK(value.op == "two");
  const ExplainedGradient slope = explain_gradient(
      tape, y, place_of("scaled", scaled), {0}, {place_of("first", first), place_of("second", second)}, 5);
  CHECK(slope.gradient == 19);
  CHECK(slope.sum == doctest::Approx(19));
}

TEST_CASE("several results: a value that is not finite is reported with the incoming numbers") {
  Example of;
  const Tensor &first = of.first, &second = of.second;
  const CheckFinite checking;
  CHECK(grad(first + second, Tensor::ones({2}, DType::f64), {of.x})[0].to_vector() == Numbers{7, 7});
  const std::string text = message([&] { (void)grad(second, Tensor::of({1e308, -3}, {2}, DType::f64), {of.x}); });
  CHECK(has(text, "element 0 of [2]"));
  CHECK(has(text, "in [-3, 1e+308]"));
}

TEST_CASE("saved twice in one forward: the last one counts, it is reported once, and the graph is released") {
  const Tensor x = leaf({3, -4}, {2}), y = apply(SavesTwice{}, Site::current(), x);
  CHECK(memory_report(y).total == 2 * sizeof(double));
  backward(sum(y));
  CHECK(gradient(x).to_vector() == Numbers{6, -8});
  CHECK(memory_report(y).total == 0);
}
