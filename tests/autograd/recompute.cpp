// recompute(): the same values and gradients from less memory.
#include "autograd/recompute.h"

#include "autograd/check/gradcheck.h"
#include "autograd/inspect/graph_text.h"
#include "nn/layers/layers.h"
#include "tensor/device/allocator.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

namespace {

Tensor body(const std::vector<Tensor>& in) { return tanh(matmul(tanh(matmul(in[0], in[1])), in[1])) * in[0]; }

}  // namespace

TEST_CASE("backward reaches the leaves through a recomputed function, once and with keep_graph twice") {
  const Tensor x = normal_leaf({4, 4}, 1), w = normal_leaf({4, 4}, 2);
  const Tensor plain = body({x, w}), y = recompute(body, {x, w});
  const std::string made = above();
  const auto expected = grad(sum(plain * plain), {}, {x, w});
  const Tensor loss = sum(y * y);
  backward(loss, {}, {.keep_graph = true});
  CHECK(same_bits({gradient(x), gradient(w)}, expected));
  backward(loss);
  CHECK(distance(gradient(w), raw::add(expected[1], expected[1])) == 0);
  CHECK(message([&] { backward(y, y.detach()); }).find(made + " has released") != std::string::npos);
  CHECK(memory_report(y).total == 0);  // a report on a released graph is allowed
}

TEST_CASE("recompute() takes an undefined input") {
  const Tensor x = normal_leaf({4, 3}, 1), w = normal_leaf({2, 3}, 2);
  const auto f = [](const std::vector<Tensor>& in) { return linear(in[0], in[1], in[2]); };
  backward(sum(recompute(f, {x, w, Tensor()})));
  CHECK(same_bits({gradient(x), gradient(w)}, grad(sum(f({x, w, Tensor()})), {}, {x, w})));
}

TEST_CASE("recompute() keeps its inputs and nothing else") {
  const Tensor x = normal_leaf({32, 32}, 1), w = normal_leaf({32, 32}, 2);
  const MemoryReport plain = memory_report(body({x, w})), recomputed = memory_report(recompute(body, {x, w}));
  CHECK(recomputed.total == 2 * 32 * 32 * sizeof(double));
  CHECK(plain.total > 2 * recomputed.total - 1);
  REQUIRE(recomputed.rows.size() == 1);
  CHECK(recomputed.rows[0].op == "recompute");
}

TEST_CASE("a function that reaches a module's parameters by its own handles") {
  Linear layer(5, 5);
  randomise(layer);
  const Tensor x = normal_leaf({3, 5}, 4), weight = layer.weight(), bias = layer.bias();
  const auto by_handles = [&layer](const std::vector<Tensor>& in) { return tanh(layer(tanh(layer(in[0])))); };
  const auto expected = grad(sum(square(by_handles({x}))), {}, {x, weight, bias});
  const auto found = grad(sum(square(recompute(by_handles, {x, weight, bias}))), {}, {x, weight, bias});
  CHECK(same_bits(expected, found));
}

TEST_CASE("parts of f without history get none, and inputs that f ignores get zeros") {
  const Tensor x = normal_leaf({4}, 1), w = normal_leaf({4}, 2);
  const auto partly = [](const std::vector<Tensor>& in) {
    const NoGrad values_only;
    const Tensor weight = sigmoid(in[0]);
    const RecordingScope again(true);
    return weight * in[0];
  };
  const Tensor found = grad(sum(recompute(partly, {x})), {}, {x})[0];
  CHECK(distance(found, sigmoid(x.detach())) == 0);
  CHECK(found.shape() == x.shape());
  const auto ignored =
      grad(sum(recompute([](const std::vector<Tensor>& in) { return square(in[0]); }, {x, w})), {}, {x, w});
  CHECK(largest(ignored[1]) == 0);
  const auto constant = [](const std::vector<Tensor>&) { return Tensor::ones({4}, DType::f64); };
  CHECK(largest(grad(sum(recompute(constant, {x})), {}, {x})[0]) == 0);
  const NoGrad values_only;
  CHECK_FALSE(tracked(recompute(body, {normal_leaf({2, 2}, 1), normal_leaf({2, 2}, 2)})));
}

TEST_CASE("recompute() can be differentiated twice: leaves, intermediate inputs, and one that is given twice") {
  const Tensor x = normal_leaf({3, 3}, 1), w = normal_leaf({3, 3}, 2);
  const std::vector<Named> named{{"x", x}, {"w", w}};
  const auto both = [](const Tensor& a, const Tensor& b) { return std::vector<Tensor>{a, b}; };
  for (const auto& inputs :
      std::vector<std::function<std::vector<Tensor>()>>{[&] { return both(x, w); }, [&] { return both(sigmoid(x), w); },
          [&] { return both(sigmoid(x) * w, sigmoid(x)); }, [&] { return both(x, x); }}) {
    const GradcheckReport report = gradgradcheck([&] { return recompute(body, inputs()) * w; }, named);
    CHECK_MESSAGE(report.ok(), report.text());
  }
  const std::size_t before = Allocator::cpu().statistics().live;
  (void)grad(sum(recompute(body, {x * 0.5, w})), {}, {x}, {.create_graph = true});
  CHECK(Allocator::cpu().statistics().live == before);
}

TEST_CASE("recompute() refuses overwritten inputs") {
  const Tensor x = normal_leaf({4, 4}, 1), w = normal_leaf({4, 4}, 2);
  const Tensor y = recompute(body, {x, w});
  const std::string made = above();
  raw::copy_into(w.detach(), x);
  CHECK(message([&] { backward(sum(y)); }).find(made + " saved a f64 [4,4]") != std::string::npos);
}
