#include "autograd/pass.h"

#include <algorithm>
#include <memory>

#include "autograd/backward.h"
#include "autograd/op.h"
#include "autograd/ops.h"
#include "tensor/raw.h"

namespace whence::detail {

void Arrived::add(Tensor term, const Edge& edge) {
  const DType dtype = edge.node->result(edge.result).dtype;
  const DType sum_dtype = edge.node->is_leaf() ? compute_dtype(dtype) : dtype;
  if (++terms_ == 1)
    gradient_ = std::move(term);
  else if (whence::recording())
    gradient_ = whence::add(gradient_, term);
  else if (terms_ == 2)
    gradient_ = raw::add(in_dtype(gradient_, sum_dtype), in_dtype(term, sum_dtype));
  else
    raw::add_into(in_dtype(term, sum_dtype), gradient_);
}

std::vector<const Node*> nodes_behind(const Node* root) {
  std::vector<const Node*> found{root};
  std::unordered_set<const Node*> seen{root};
  for (std::size_t next = 0; next < found.size(); ++next) {
    for (const Edge& input : found[next]->inputs())
      if (input && seen.insert(input.node.get()).second) found.push_back(input.node.get());
  }
  std::ranges::sort(found, {}, &Node::id);
  return found;
}

std::vector<const Node*> nodes_behind(const char* op, const Tensor& y) {
  if (!y.link()) fail(op, "a ", y.shape(), " without history given; a result of recorded ops required");
  return nodes_behind(node_of(y));
}

Wanted::Wanted(const Node* root, Ids targets) : targets_(std::move(targets)) {
  for (const Node* node : nodes_behind(root))
    if (std::ranges::any_of(node->inputs(), [&](const Edge& input) { return input && (*this)(input); }))
      leading_.insert(node);
}

static void check_gradient(const Node& node, const Edge& edge, std::size_t k, const Tensor& dx) {
  const Node::Result& input = edge.node->result(edge.result);
  if (!dx.defined()) {
    fail("backward", node.name(), " recorded at ", to_string(node.site), " gave no gradient for input ", k,
        ", which needs one");
  }
  if (!(dx.shape() == input.shape) || dx.dtype() != input.dtype) {
    fail("backward", node.name(), " recorded at ", to_string(node.site), " gave a gradient ", dx.dtype(), " ",
        dx.shape(), " for input ", k, ", which is ", input.dtype, " ", input.shape);
  }
}

std::vector<Tensor> terms_for_inputs(Node& node, std::span<const Tensor> dy, const Wanted* wanted, bool release) {
  const auto inputs = node.inputs();
  const auto needed = std::make_unique<bool[]>(inputs.size());
  std::vector<Tensor> dx(inputs.size());
  bool any = false;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    needed[k] = inputs[k] && (!wanted || (*wanted)(inputs[k]));
    any = any || needed[k];
  }
  if (!any) return {};  // only where grad() ends at an intermediate result
  const CallSite place(node.site, node.name());
  Watched run(node.name(), true);
  {
    const Exchange current(backward_node, &node);
    const Exchange forgetting(releasing, release);
    node.backward(dy, {needed.get(), inputs.size()}, dx);
  }
  for (std::size_t k = 0; k < inputs.size(); ++k)
    if (needed[k])
      check_gradient(node, inputs[k], k, dx[k]);
    else
      dx[k] = {};
  if (run) run.ended(&node, dy, dx);
  if (release) node.release_saved();
  return dx;
}

std::vector<Tensor> terms_for_inputs(const Edge& result, const Tensor& dy, const Wanted& wanted) {
  std::vector<Tensor> alone(result.node->results());
  alone[result.result] = dy;
  return terms_for_inputs(*result.node, alone, &wanted, false);
}

Tensor checked_seed(const char* op, const Tensor& y, const Tensor& seed) {
  if (!tracked(y)) {
    fail(op, "y is ", y.dtype(), " ", y.shape(),
        " without history; a result of recorded ops required; was it made under NoGrad?");
  }
  if (!seed.defined()) {
    if (y.numel() != 1) fail(op, "y is ", y.shape(), " and no seed given; a scalar, or a seed of y's shape, required");
    return Tensor::ones(y.shape(), y.dtype(), y.device());
  }
  raw::require_shape(op, "seed", seed, y.shape());
  raw::require_same_dtype(op, "y", y, "seed", seed);
  return seed;
}

}  // namespace whence::detail
