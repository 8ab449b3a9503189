// The backward pass: nodes in descending order of creation, each once, when all of its gradient has arrived.
#include "autograd/backward.h"

#include <algorithm>
#include <memory>
#include <unordered_map>

#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/pass.h"
#include "autograd/releasing.h"
#include "tensor/raw.h"

namespace whence {
namespace detail {

void Arrived::add(Tensor term, DType sum_dtype) {
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
    for (const Ref<Node>& input : found[next]->inputs())
      if (input && seen.insert(input.get()).second) found.push_back(input.get());
  }
  std::sort(found.begin(), found.end(), LowerId());
  return found;
}

PlaceNames names_of(const std::vector<Place>& places) {
  PlaceNames names;
  for (const Place& place : places)
    for (const std::uint64_t id : place.nodes) names.emplace(id, place.name);
  return names;
}

std::unordered_set<const Node*> nodes_named(const PlaceNames& names, const Node* root) {
  std::unordered_set<const Node*> found;
  for (const Node* node : nodes_behind(root))
    if (names.contains(node->id)) found.insert(node);
  return found;
}

std::unordered_set<const Node*> leading_to(const Node* root, const std::unordered_set<const Node*>& targets) {
  std::unordered_set<const Node*> leading;
  for (const Node* node : nodes_behind(root)) {
    const auto inputs = node->inputs();
    const bool leads = std::any_of(
        inputs.begin(), inputs.end(), [&](const Ref<Node>& input) { return input && leading.count(input.get()); });
    if (leads || targets.count(node)) leading.insert(node);
  }
  return leading;
}

static void check_gradient(const Node& node, const Node& input, std::size_t k, const Tensor& dx) {
  if (!dx.defined()) {
    fail("backward", node.name(), " recorded at ", to_string(node.site), " gave no gradient for input ", k,
        ", which needs one");
  }
  if (!(dx.shape() == input.shape) || dx.dtype() != input.dtype) {
    fail("backward", node.name(), " recorded at ", to_string(node.site), " gave a gradient ", dx.dtype(), " ",
        dx.shape(), " for input ", k, ", which is ", input.dtype, " ", input.shape);
  }
}

std::vector<Tensor> terms_for_inputs(Node& node, const Tensor& dy, const std::unordered_set<const Node*>* wanted,
    bool release, std::optional<std::size_t> part) {
  const auto inputs = node.inputs();
  const auto needed = std::make_unique<bool[]>(inputs.size());
  std::vector<Tensor> gradients(inputs.size());
  bool any = false;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    needed[k] = inputs[k] && (!wanted || wanted->count(inputs[k].get()));
    any = any || needed[k];
  }
  if (!any) return {};  // only where grad() ends at an intermediate result
  const CallSite place(node.site, node.name());
  {
    const Exchange running(backward_node, &node);
    const ReleasingScope forgetting(release);
    const OpTimer timer(node.name(), &node);
    if (part)
      node.backward_of_part(*part, dy, {needed.get(), inputs.size()}, gradients);
    else
      node.backward(dy, {needed.get(), inputs.size()}, gradients);
  }
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    if (!needed[k]) {
      gradients[k] = {};
      continue;
    }
    if (part && !gradients[k].defined()) continue;
    check_gradient(node, *inputs[k], k, gradients[k]);
    if (check_finite) require_finite(node.name(), "backward", gradients[k], std::array<Tensor, 1>{dy});
  }
  if (release) node.release_saved();
  return gradients;
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

}  // namespace detail

namespace {

class Pass {
 public:
  // `wanted`: only nodes in it receive gradients; null: all do.
  Pass(const std::unordered_set<const Node*>* wanted, bool release) : wanted_(wanted), release_(release) {}

  void seed(Node* root, const Tensor& gradient) { arrive(root, gradient); }

  // visit(node, gradient) sees each node with its whole gradient; true means: go no further from here.
  template <class Visit> void run(const Visit& visit) {
    while (!ready_.empty()) {
      Node* node = ready_.top();
      ready_.pop();
      const auto entry = arrived_.find(node);
      const Tensor dy = entry->second.take();
      arrived_.erase(entry);
      if (!visit(node, dy)) step(*node, dy);
    }
  }

 private:
  void arrive(Node* node, Tensor gradient) {
    const auto [entry, is_new] = arrived_.try_emplace(node);
    entry->second.add(std::move(gradient), detail::sum_dtype(*node));
    if (is_new) ready_.push(node);
  }

  void step(Node& node, const Tensor& dy) {
    std::vector<Tensor> terms = detail::terms_for_inputs(node, dy, wanted_, release_);
    for (std::size_t k = 0; k < terms.size(); ++k)
      if (terms[k].defined()) arrive(node.inputs()[k].get(), std::move(terms[k]));
  }

  const std::unordered_set<const Node*>* wanted_;
  bool release_;
  std::unordered_map<Node*, detail::Arrived> arrived_;
  detail::Ready ready_;
};

}  // namespace

std::vector<Tensor> grad(
    const Tensor& y, const Tensor& seed, const std::vector<Tensor>& inputs, GradOptions options, Site at) {
  const CallSite place(at);
  const Tensor start = detail::checked_seed("grad", y, seed);
  std::unordered_set<const Node*> targets;
  for (const Tensor& input : inputs)
    if (node_of(input)) targets.insert(node_of(input));
  const auto wanted = detail::leading_to(node_of(y), targets);
  std::unordered_map<const Node*, Tensor> found;
  {
    const RecordingScope record(options.create_graph);
    Pass pass(&wanted, false);
    if (wanted.count(node_of(y))) pass.seed(node_of(y), start);
    pass.run([&](Node* node, const Tensor& dy) {
      if (targets.count(node)) found[node] = recording() ? dy : detail::in_dtype(dy, node->dtype);
      return node->is_leaf();
    });
  }
  std::vector<Tensor> result;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const auto entry = found.find(node_of(inputs[k]));
    if (entry == found.end() && !options.allow_unused) {
      fail(
          "grad", to_text("y does not depend on input ", k, ", ", inputs[k].shape(), "; drop it, or set allow_unused"));
    }
    result.push_back(entry == found.end() ? Tensor() : entry->second);
  }
  return result;
}

void backward(const Tensor& loss, const Tensor& seed, BackwardOptions options, Site at) {
  const CallSite place(at);
  const Tensor start = detail::checked_seed("backward", loss, seed);
  const RecordingScope record(false);
  Pass pass(nullptr, !options.keep_graph);
  pass.seed(node_of(loss), start);
  pass.run([](Node* node, const Tensor& dy) {
    if (node->is_leaf()) static_cast<Leaf*>(node)->accumulate(dy);
    return node->is_leaf();
  });
}

}  // namespace whence
