// Can the checks fail? Every registered op in turn, and so every function of one number, gets faults in its backward.
// gradcheck, as in the battery, must find each of them.
#include <algorithm>
#include <set>

#include "autograd/check/gradcheck.h"
#include "autograd/graph.h"
#include "autograd/samples/samples.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

namespace {

// Returns the faulty gradient for the gradient dx of input k.
using Fault = std::function<Tensor(std::size_t k, const Tensor& dx)>;

class FaultyNode final : public Node {
 public:
  FaultyNode(Edge op, Fault fault) : Node(op.node->site), op_(std::move(op)), fault_(std::move(fault)) {}
  const char* name() const override { return op_.node->name(); }
  std::span<const Edge> inputs() const override { return op_.node->inputs(); }
  void backward(std::span<const Tensor> dy, std::span<const bool> needed, std::span<Tensor> gradients) override {
    std::vector<Tensor> of_results(op_.node->results());
    of_results[op_.result] = dy[0];
    op_.node->backward(of_results, needed, gradients);
    for (std::size_t k = 0; k < gradients.size(); ++k)
      if (gradients[k].defined()) gradients[k] = fault_(k, gradients[k]);
  }
  void release_saved() override { op_.node->release_saved(); }

 private:
  Edge op_;  // and the result that has a fault
  Fault fault_;
};

Tensor with_fault(const Tensor& y, const Fault& fault) {
  if (node_of(y)) Ref<Node>(new FaultyNode(edge_of(y), fault))->made(y);
  return y;
}

Fault scaled(double factor) {
  return [=](std::size_t, const Tensor& dx) { return raw::unary(functions::Affine{}, dx, {factor, 0}); };
}
Fault dropped(std::size_t input) {
  return [=](std::size_t k, const Tensor& dx) { return k == input ? Tensor::zeros(dx.shape(), dx.dtype()) : dx; };
}
// Moves every number by one place, the last one to the front: a wrong index, direction or axis.
Tensor shifted(const Tensor& dx) {
  std::vector<double> values = dx.to_vector();
  if (!values.empty()) std::rotate(values.begin(), values.end() - 1, values.end());
  return Tensor::of(values, dx.shape(), dx.dtype());
}
Fault moved(std::size_t input) {
  return [=](std::size_t k, const Tensor& dx) { return k == input ? shifted(dx) : dx; };
}
Tensor right(std::size_t, const Tensor& dx) { return dx; }

// The gradient is right, and its own derivative is wrong.
Fault wrong_as_a_function(const Fault& fault) {
  return [=](std::size_t, const Tensor& dx) { return recording() ? with_fault(dx * 1.0, fault) : dx; };
}

GradcheckReport check(
    const std::function<Tensor()>& f, const std::vector<Tensor>& inputs, const Fault& fault, bool twice = false) {
  std::vector<Named> floating;
  for (const Tensor& x : inputs)
    if (x.defined() && is_floating(x.dtype())) floating.push_back({to_text("input ", floating.size()), x});
  const auto faulty = [&] { return with_fault(f(), fault); };
  return twice ? gradgradcheck(faulty, floating, {.differences = false}) : gradcheck(faulty, floating);
}

bool passes(const CheckedSample& sample, const Fault& fault, bool twice = false) {
  return check([&] { return sample.run(sample.inputs); }, sample.inputs, fault, twice).ok();
}

struct Gradients {
  std::set<std::size_t> inputs, uneven;  // inputs with nonzero gradients; inputs whose gradient `moved` changes
};
Gradients gradients_of(const Samples& samples) {
  Gradients found;
  const Fault look = [&](std::size_t k, const Tensor& dx) {
    const std::vector<double> numbers = dx.to_vector();
    if (std::ranges::count(numbers, 0.0) < std::ssize(numbers)) found.inputs.insert(k);
    if (shifted(dx).to_vector() != numbers) found.uneven.insert(k);
    return dx;
  };
  for (const CheckedSample& sample : samples) {
    std::vector<Tensor> inputs = sample.inputs;
    for (Tensor& x : inputs)
      if (x.defined() && is_floating(x.dtype())) x = requires_grad(x.detach());
    const Tensor y = with_fault(sample.run(inputs), look);
    if (tracked(y)) backward(y, Tensor::normal(y.shape(), 0, 1, Stream(4, "cotangent"), y.dtype()));
  }
  return found;
}

}  // namespace

TEST_CASE("every op with a fault in its backward is caught, without one it passes") {
  for (const CheckedOp& op : checked_ops()) {
    if (!op.samples) continue;
    const Samples samples = op.samples();
    const Gradients gradients = gradients_of(samples);
    CHECK_MESSAGE(!gradients.inputs.empty(), op.name, " has no gradient in any sample");
    CHECK_MESSAGE(passes(samples[0], right), op.name, " fails without a fault");
    const auto must_fail = [&](const std::string& kind, const Fault& fault, const std::string& where = "",
                               bool twice = false) {
      const bool caught = std::any_of(
          samples.begin(), samples.end(), [&](const CheckedSample& sample) { return !passes(sample, fault, twice); });
      CHECK_MESSAGE(caught, "survived: ", op.name, ", gradient", where, " ", kind);
    };
    must_fail("negated", scaled(-1));
    must_fail("times 1.001", scaled(1.001));
    if (!op.once) {
      CHECK_MESSAGE(passes(samples[0], right, true), op.name, " fails twice without a fault");
      must_fail("'s derivative negated", wrong_as_a_function(scaled(-1)), "", true);
      must_fail("'s derivative times 1.001", wrong_as_a_function(scaled(1.001)), "", true);
    }
    for (const std::size_t k : gradients.inputs) must_fail("dropped", dropped(k), to_text(" of input ", k));
    for (const std::size_t k : gradients.uneven) must_fail("moved by one", moved(k), to_text(" of input ", k));
  }
}
