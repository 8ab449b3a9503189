// The backward pass: nodes in descending order of creation, each once, when all of its gradient has arrived.
#include "autograd/backward.h"

#include <algorithm>
#include <memory>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "autograd/op.h"
#include "autograd/ops.h"
#include "tensor/raw.h"

namespace whence {
namespace {

// The gradient that has arrived at a node so far. The first term is moved in, the second makes a sum, later ones are
// added in place.
struct Slot {
  Tensor gradient;
  int terms = 0;

  void add(Tensor term, DType sum_dtype) {
    if (++terms == 1)
      gradient = std::move(term);
    else if (recording())
      gradient = whence::add(gradient, term);
    else if (terms == 2)
      gradient = raw::add(detail::in_dtype(gradient, sum_dtype), detail::in_dtype(term, sum_dtype));
    else
      raw::add_into(detail::in_dtype(term, sum_dtype), gradient);
  }
};

// Nodes from which one of `targets` can be reached.
std::unordered_set<const Node*> leading_to(const Node* root, const std::unordered_set<const Node*>& targets) {
  std::vector<const Node*> found{root}, pending{root};
  std::unordered_set<const Node*> seen{root};
  while (!pending.empty()) {
    const Node* node = pending.back();
    pending.pop_back();
    for (const Ref<Node>& input : node->inputs()) {
      if (input && seen.insert(input.get()).second) found.push_back(input.get()), pending.push_back(input.get());
    }
  }
  std::sort(found.begin(), found.end(), [](const Node* a, const Node* b) { return a->id < b->id; });
  std::unordered_set<const Node*> leading;
  for (const Node* node : found) {
    const auto inputs = node->inputs();
    const bool leads = std::any_of(
        inputs.begin(), inputs.end(), [&](const Ref<Node>& input) { return input && leading.count(input.get()); });
    if (leads || targets.count(node)) leading.insert(node);
  }
  return leading;
}

void check_gradient(const Node& node, const Node& input, std::size_t k, const Tensor& dx) {
  if (!dx.defined()) {
    fail("backward", to_text(node.name(), " recorded at ", to_string(node.site), " gave no gradient for input ", k,
                         ", which needs one"));
  }
  if (!(dx.shape() == input.shape) || dx.dtype() != input.dtype) {
    fail("backward", to_text(node.name(), " recorded at ", to_string(node.site), " gave a gradient ", dx.dtype(), " ",
                         dx.shape(), " for input ", k, ", which is ", input.dtype, " ", input.shape));
  }
}

class Pass {
 public:
  // `wanted`: only nodes in it receive gradients; null: all do.
  Pass(const std::unordered_set<const Node*>* wanted, bool release) : wanted_(wanted), release_(release) {}

  void seed(Node* root, const Tensor& gradient) { arrive(root, gradient); }

  // visit(node, gradient) sees each node with its whole gradient; true means: go no further from here.
  template <class Visit>
  void run(const Visit& visit) {
    while (!ready_.empty()) {
      Node* node = ready_.top();
      ready_.pop();
      const auto entry = slots_.find(node);
      const Tensor dy = std::move(entry->second.gradient);
      slots_.erase(entry);
      if (!visit(node, dy)) step(node, dy);
    }
  }

 private:
  struct LowerId {
    bool operator()(const Node* a, const Node* b) const { return a->id < b->id; }
  };

  void arrive(Node* node, Tensor gradient) {
    const auto [entry, is_new] = slots_.try_emplace(node);
    entry->second.add(std::move(gradient), node->is_leaf() ? detail::leaf_sum_dtype(node->dtype) : node->dtype);
    if (is_new) ready_.push(node);
  }

  void step(Node* node, const Tensor& dy) {
    const auto inputs = node->inputs();
    needed_.assign(inputs.size(), 0);
    gradients_.assign(inputs.size(), Tensor());
    bool any = false;
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      needed_[k] = inputs[k] && (!wanted_ || wanted_->count(inputs[k].get()));
      any = any || needed_[k];
    }
    if (!any) return;  // only where grad() ends at an intermediate result
    const CallSite place(node->site, node->name());
    {
      const detail::Exchange running(detail::backward_node, node);
      static_assert(sizeof(bool) == sizeof(char));
      node->backward(dy, {reinterpret_cast<const bool*>(needed_.data()), needed_.size()}, gradients_);
    }
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      if (!needed_[k]) continue;
      check_gradient(*node, *inputs[k], k, gradients_[k]);
      if (detail::check_finite)
        detail::require_finite(node->name(), "backward", gradients_[k], std::array<Tensor, 1>{dy});
      arrive(inputs[k].get(), std::move(gradients_[k]));
    }
    if (release_) node->release_saved();
  }

  const std::unordered_set<const Node*>* wanted_;
  bool release_;
  std::unordered_map<Node*, Slot> slots_;
  std::priority_queue<Node*, std::vector<Node*>, LowerId> ready_;
  std::vector<char> needed_;
  std::vector<Tensor> gradients_;
};

Tensor checked_seed(const char* op, const Tensor& y, const Tensor& seed) {
  if (!tracked(y)) {
    fail(op, to_text("y is ", y.dtype(), " ", y.shape(),
                 " without history; a result of recorded ops required; was it made under NoGrad?"));
  }
  if (!seed.defined()) {
    if (y.numel() != 1)
      fail(op, to_text("y is ", y.shape(), " and no seed given; a scalar, or a seed of y's shape, required"));
    return Tensor::ones(y.shape(), y.dtype(), y.device());
  }
  raw::require_shape(op, "seed", seed, y.shape());
  raw::require_same_dtype(op, y, seed);
  return seed;
}

}  // namespace

Tensor requires_grad(const Tensor& leaf, Site at) {
  const CallSite place(at);
  raw::require_floating("requires_grad", "leaf", leaf);
  if (node_of(leaf) && !node_of(leaf)->is_leaf()) {
    fail(
        "requires_grad", to_text("a result of ", node_of(leaf)->name(), " given; a leaf required; use detach() first"));
  }
  if (!node_of(leaf)) {
    Ref<Leaf> node(new Leaf(at));
    node->shape = leaf.shape();
    node->dtype = leaf.dtype();
    leaf.set_link(node);
  }
  return leaf;
}

bool tracked(const Tensor& tensor) { return tensor.link() != nullptr; }

namespace {
Leaf& leaf_of(const char* op, const Tensor& tensor) {
  Node* node = node_of(tensor);
  if (!node || !node->is_leaf())
    fail(op, to_text("a ", tensor.shape(), " that is no leaf given; a tensor made with requires_grad required"));
  return static_cast<Leaf&>(*node);
}
}  // namespace

Tensor gradient(const Tensor& leaf) { return leaf_of("gradient", leaf).gradient; }
void clear_gradient(const Tensor& leaf) { leaf_of("clear_gradient", leaf).gradient = {}; }

std::vector<Tensor> grad(
    const Tensor& y, const Tensor& seed, const std::vector<Tensor>& inputs, GradOptions options, Site at) {
  const CallSite place(at);
  const Tensor start = checked_seed("grad", y, seed);
  std::unordered_set<const Node*> targets;
  for (const Tensor& input : inputs) {
    if (node_of(input)) targets.insert(node_of(input));
  }
  const auto wanted = leading_to(node_of(y), targets);
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
  const Tensor start = checked_seed("backward", loss, seed);
  const RecordingScope record(false);
  Pass pass(nullptr, !options.keep_graph);
  pass.seed(node_of(loss), start);
  pass.run([](Node* node, const Tensor& dy) {
    if (node->is_leaf()) static_cast<Leaf*>(node)->accumulate(dy);
    return node->is_leaf();
  });
}

namespace {

// One op whose forward is a whole function and whose backward runs that function again, recorded this time.
class CheckpointNode final : public Node {
 public:
  using Function = std::function<Tensor(const std::vector<Tensor>&)>;
  CheckpointNode(Function function, const std::vector<Tensor>& inputs, const Site& made_at)
      : Node(made_at), function_(std::move(function)) {
    saved_ = std::make_unique<SavedTensor[]>(inputs.size());
    const detail::Exchange saving(detail::saving_node, this);
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      saved_[k] = inputs[k];
      edges_.emplace_back(node_of(inputs[k]));
      leaves_.push_back(edges_[k] && edges_[k]->is_leaf() ? inputs[k] : Tensor());
    }
  }

  const char* name() const override { return "checkpoint"; }
  std::span<const Ref<Node>> inputs() const override { return edges_; }
  void release_saved() override {
    for (std::size_t k = 0; k < edges_.size(); ++k)
      saved_[k].release();  // the array stays: first_saved() still names its elements
    leaves_.clear();
    function_ = nullptr;
    released_ = true;
  }

  void backward(const Tensor& dy, std::span<const bool> needed, std::span<Tensor> gradients) override {
    if (released_) detail::refuse_released(*this);
    if (recording()) detail::refuse_second_derivative(*this);
    std::vector<Tensor> inputs, wanted;
    for (std::size_t k = 0; k < edges_.size(); ++k) {
      const Tensor numbers = saved_[k].get().detach();  // get() refuses when overwritten
      inputs.push_back(leaves_[k].defined() ? leaves_[k] : numbers);
      if (needed[k]) wanted.push_back(requires_grad(inputs.back()));
    }
    Tensor y;
    {
      const RecordingScope record(true);
      y = function_(inputs);
    }
    std::vector<Tensor> found(wanted.size());
    if (tracked(y)) found = grad(y, dy, wanted, {.allow_unused = true});  // else f reads none of its inputs
    for (std::size_t k = 0, next = 0; k < edges_.size(); ++k) {
      if (!needed[k]) continue;
      gradients[k] =
          found[next].defined() ? found[next] : Tensor::zeros(inputs[k].shape(), inputs[k].dtype(), inputs[k].device());
      ++next;
    }
  }

 private:
  Function function_;
  std::unique_ptr<SavedTensor[]> saved_;
  std::vector<Ref<Node>> edges_;
  std::vector<Tensor>
      // leaves are passed as they are, so that f may also reach them by its own handles (a module's parameters)
      leaves_;
};

}  // namespace

Tensor checkpoint(std::function<Tensor(const std::vector<Tensor>&)> f, const std::vector<Tensor>& inputs, Site at) {
  const CallSite place(at);
  const bool record = recording() && std::any_of(inputs.begin(), inputs.end(), tracked);
  Tensor y;
  {
    const NoGrad values_only;
    y = f(inputs).detach();
  }
  if (record) {
    Ref<CheckpointNode> node(new CheckpointNode(std::move(f), inputs, at));
    node->shape = y.shape();
    node->dtype = y.dtype();
    y.set_link(node);
  }
  return y;
}

}  // namespace whence
