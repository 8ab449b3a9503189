// Origins of a gradient: its paths, its zeros, and explained single numbers.
#include "autograd/inspect/paths.h"

#include "autograd/inspect/explain.h"
#include "autograd/inspect/zeros.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

namespace {

using Names = std::vector<std::string>;

std::vector<Place> places_of(const Capture& capture) {
  std::vector<Place> places;
  for (const std::string& name : capture.names()) places.push_back(capture.place(name));
  return places;
}

Tensor sum_of(const std::vector<GradientPath>& paths) {
  Tensor total;
  for (const GradientPath& path : paths) total = total.defined() ? raw::add(total, path.gradient) : path.gradient;
  return total;
}

// Returns the causes of the gradient of y with respect to x, by name; x and y are probed here.
std::vector<std::string> causes(const std::function<Tensor(const Tensor&)>& f, const Tensor& x) {
  const Capture capture("*");
  const Tensor y = f(probe("x", requires_grad(raw::copy(x))));
  const Zeros zeros = why_zero(y, {}, places_of(capture));
  std::vector<std::string> names;
  for (const unsigned char code : zeros.of.at("x")) names.emplace_back(to_string(zeros.causes[code].stop));
  return names;
}

}  // namespace

TEST_CASE("paths: a gradient splits into the paths by which it came, and they add up") {
  const Tensor x = leaf({2, -3}, {2});
  const Capture capture("*");
  const Tensor seen = probe("x", x);
  const Tensor squares = probe("squares", seen * seen), cubes = probe("cubes", squares * seen);
  const Tensor y = sum(cubes + squares * 10.0);
  const std::vector<GradientPath> found = gradient_paths(y, {}, capture.place("x"), places_of(capture));
  REQUIRE(found.size() == 3);
  // y = x^3 + 10 x^2: 10 x^2 gives 20 x; x^3 = s x gives s = x^2 by its factor x, and 2 x x by its factor s
  CHECK(found[0].steps == Names{"cubes"});
  CHECK(found[0].gradient.to_vector() == std::vector<double>{4, 9});
  CHECK(found[1].steps == Names{"squares"});
  CHECK(found[1].gradient.to_vector() == std::vector<double>{40, -60});
  CHECK(found[2].steps == Names{"cubes", "squares"});
  CHECK(found[2].gradient.to_vector() == std::vector<double>{8, 18});
  CHECK(distance(sum_of(found), grad(y, {}, {x})[0]) == 0);
  CHECK(gradient_paths(y, {}, {"elsewhere", {}}, {}).empty());
}

TEST_CASE("zeros: each cause, where it is known by hand") {
  const auto of = [](const std::vector<double>& numbers) {
    return Tensor::of(numbers, {static_cast<index_t>(numbers.size())}, DType::f64);
  };
  CHECK(causes([](const Tensor& x) { return sum(relu(x)); }, of({1, -1})) == Names{"lives", "dead unit"});
  CHECK(causes([](const Tensor& x) { return sum(leaky_relu(x)); }, of({1, -1})) == Names{"lives", "leaking"});
  CHECK(causes([](const Tensor& x) { return sum(clamp_max(x, 2)); }, of({1, 3})) == Names{"lives", "clamped"});
  CHECK(causes([](const Tensor& x) { return sum(sigmoid(x)); }, of({0, 20, 800})) ==
        Names{"lives", "saturated", "saturated"});
  const Tensor mask = Tensor::of({1, 0}, {2}, DType::boolean);
  CHECK(causes([&](const Tensor& x) { return sum(masked(x, mask)); }, of({1, 1})) == Names{"lives", "masked"});
  // Softmax ignores a shift of a whole row. The cause continues through tensors that depend on such entries alone.
  const Tensor weights = of({1, -2, 0.5});
  CHECK(causes([&](const Tensor& x) { return sum(softmax(expand(x, {3})) * weights); }, of({0.7})) == Names{"cancels"});
  CHECK(causes([&](const Tensor& x) { return sum(softmax(x) * weights); }, of({0, 900, 0})) ==
        Names{"rounded weight", "rounded weight", "rounded weight"});
  CHECK(causes([](const Tensor& x) { return sum(relu(x * 3.0 - 6.0)); }, of({1, 4})) == Names{"dead unit", "lives"});
  const Tensor last = of({0, 0, 1});
  CHECK(causes([&](const Tensor& x) { return sum(reverse_cumulative_sum(x, 0) * last); }, of({1, 2, 3})) ==
        Names{"zero derivative", "zero derivative", "lives"});
}

TEST_CASE("zeros: what no gradient reaches is not blamed on what would have stopped it") {
  const Tensor target = Tensor::of({0, -1}, {2}, DType::i64);
  CHECK(causes([&](const Tensor& x) { return cross_entropy(relu(x), target); },
            Tensor::of({1, -1, 1, -1}, {2, 2}, DType::f64)) == Names{"lives", "dead unit", "no target", "no target"});
}

TEST_CASE("zeros: interpolation at whole positions, at the end of the table, between equal rows, in rows not read") {
  const Tensor table = Tensor::of({5, 1, 1, 4}, {1, 4}, DType::f64);
  const Tensor positions = Tensor::of({0.5, 1, 1.5, 3}, {1, 4}, DType::f64);
  CHECK(causes([&](const Tensor& p) { return sum(lerp_at(table, p)); }, positions) ==
        Names{"lives", "whole position", "table flat", "clamped"});
  const Tensor flat = Tensor::zeros({1, 4}, DType::f64), two = Tensor::of({0.5, 3}, {1, 2}, DType::f64);
  CHECK(causes([&](const Tensor& p) { return sum(lerp_at(flat, p)); }, positions) == Names(4, "table flat"));
  CHECK(causes([&](const Tensor& t) { return sum(lerp_at(t, two)); }, table) ==
        Names{"lives", "lives", "row not read", "lives"});
  const Tensor index = Tensor::of({2, 0}, {2}, DType::i64);
  CHECK(causes([&](const Tensor& t) { return sum(take_rows(t, index)); }, normal({3, 1}, 1)) ==
        Names{"lives", "row not read", "lives"});
  const Tensor target = Tensor::of({1, -1}, {2}, DType::i64);
  CHECK(causes([&](const Tensor& x) { return cross_entropy(x, target); }, normal({2, 2}, 1)) ==
        Names{"lives", "lives", "no target", "no target"});
}

TEST_CASE("explained: a number from what its op read, a gradient from the next places") {
  const Tensor q = normal_leaf({2, 3}, 1), k = normal_leaf({4, 3}, 2), w = normal_leaf({2, 4}, 3);
  const Tape tape;
  const Capture capture("*");
  const Tensor scores = probe("scores", matmul(probe("q", q), transpose(probe("k", k)), 0.5));
  const Tensor p = probe("positions", clamp_max(reverse_cumulative_sum(probe("gates", sigmoid(scores))), 1.5));
  const Tensor y = sum(p * w + scores);
  const std::vector<Place> places = places_of(capture);

  const Contribution score = explain_value(tape, capture.place("scores"), {1, 2}, places);
  CHECK(score.op == "matmul");
  REQUIRE(score.from.size() == 3);  // each factor of a product, times the other
  double total = 0;
  for (const Contribution& operand : score.from) {
    CHECK(operand.name == "q");
    CHECK(operand.derivative == 0.5 * k.at({2, operand.at[1]}));
    total += operand.derivative * operand.value;
  }
  CHECK(std::abs(total - score.value) < 1e-14);
  const Tensor shifted = probe("shifted", scores + Tensor::full({1, 4}, 3, DType::f64));  // a constant counts too
  const Contribution sum = explain_value(tape, capture.place("shifted"), {1, 2}, places);
  REQUIRE(sum.from.size() == 2);
  CHECK(std::abs(sum.from[0].value + sum.from[1].value - sum.value) < 1e-14);

  const Contribution position = explain_value(tape, capture.place("positions"), {0, 2}, places);
  CHECK(position.op == "reverse_cumulative_sum");  // the clamp only moves the number, and is left out
  REQUIRE(position.from.size() == 2);              // gates 2 and 3
  CHECK(position.from[0].name == "gates");

  const Tensor dscores = capture["scores"].gradient();
  backward(y, {}, {.keep_graph = true});
  for (index_t i = 0; i < 2; ++i) {
    for (index_t j = 0; j < 4; ++j) {
      const ExplainedGradient found = explain_gradient(tape, y, capture.place("gates"), {i, j}, places);
      CHECK(found.gradient == capture["gates"].gradient().at({i, j}));
      CHECK(std::abs(found.sum - found.gradient) < 1e-14);
      for (const GradientTerm& term : found.terms) CHECK(term.name == "positions");
    }
  }
  const ExplainedGradient both = explain_gradient(tape, y, capture.place("scores"), {0, 0}, places);
  CHECK(both.terms.size() == 2);  // the gate, and the loss itself
  CHECK(std::abs(both.sum - both.gradient) < 1e-14);
  const auto outside = [&] { (void)explain_value(tape, capture.place("scores"), {2, 0}, places); };
  CHECK(has(error_text(outside), "[2,4]; a position"));
}

TEST_CASE("explained: what adds up to a number by accident leaves no operand out") {
  // For x / sqrt(mean x^2) times a weight, the terms of the weight alone add up to the result.
  const Tensor x = normal_leaf({1, 3}, 1), weight = normal_leaf({3}, 2);
  const Tape tape;
  const Capture capture("*");
  const Tensor y = probe("y", rms_norm(probe("x", x), probe("weight", weight)));
  const Contribution found = explain_value(tape, capture.place("y"), {0, 1}, places_of(capture));
  REQUIRE(found.from.size() == 4);
  std::map<std::string, int> operands;
  for (const Contribution& each : found.from) ++operands[each.name];
  CHECK(operands == std::map<std::string, int>{{"weight", 1}, {"x", 3}});
}

TEST_CASE("passages: the graph between named places, and how much came by each") {
  const Tensor x = leaf({2, -3}, {2}), w = leaf({4, 5}, {2});
  const Capture capture("*");
  const Tensor seen = probe("x", x);
  const Tensor squares = probe("squares", seen * seen);
  const Tensor y = sum(squares * w + seen);
  std::vector<Place> places = places_of(capture);
  places.push_back(place_of("w", w));
  std::vector<std::string> found;
  for (const Passage& passage : passages(y, {}, places))
    found.push_back(to_text(passage.from, " > ", passage.to, " ", passage.norm * passage.norm));
  // dy/dx = 1 directly, and 2 x w by the squares: 16 and -30; dy/ds = w, dy/dw = x^2
  CHECK(found == std::vector<std::string>{" > squares 41", " > x 2", "squares > x 1156", " > w 97"});
}

TEST_CASE("zeros: a table as long as the row is no row by itself") {
  const Tensor positions = Tensor::of({0.5, 0.5, 2, 2}, {1, 4}, DType::f64),
               mask = Tensor::of({1, 1, 1, 0}, {4}, DType::boolean);
  CHECK(causes([&](const Tensor& t) { return sum(masked(lerp_at(t, positions), mask)); },
            Tensor::of({1, 2, 3, 4}, {1, 4}, DType::f64)) == Names{"lives", "lives", "lives", "row not read"});
}

TEST_CASE("zeros: at most 255 causes are distinguished") {
  std::vector<Cause> causes(1);
  for (int line = 0; line < 300; ++line)
    CHECK(number_of({line % 2 ? Stop::dead : Stop::clamped, "op", std::to_string(line)}, causes) > 0);
  CHECK(causes.size() == 256);
  CHECK(causes[number_of({Stop::dead, "op", "elsewhere"}, causes)].stop == Stop::dead);
  CHECK(number_of({Stop::whole}, causes) == 255);
}

TEST_CASE("inspection of a graph does not change a capture") {
  const Tensor x = normal_leaf({2, 3}, 1);
  const Tape tape;
  Capture capture("*");
  const Tensor y = sum(square(probe("hidden", tanh(x))));
  backward(y, {}, {.keep_graph = true});
  const Tensor before = raw::copy(capture["hidden"].gradient());
  const std::vector<Place> places = places_of(capture);
  (void)gradient_paths(y, {}, place_of("x", x), places);
  (void)passages(y, {}, places);
  (void)why_zero(y, {}, places);
  (void)explain_gradient(tape, y, capture.place("hidden"), {0, 0}, {});
  CHECK(same_bits(capture["hidden"].gradient(), before));
  const Capture inner("inner");
  capture.stop();  // in any order
  (void)probe("inner", x);
  CHECK(inner.contains("inner"));
  CHECK_FALSE(capture.contains("inner"));
}
