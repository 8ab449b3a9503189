// The backward pass: how a gradient finds its way from a result to all that it was computed from.
#include "autograd/backward.h"

#include <memory>

#include "autograd/op.h"
#include "autograd/ops.h"
#include "tensor/raw.h"

namespace whence {

// The pass. A node's turn comes when all nodes made after it have had theirs, so that its results' gradients dy are
// complete. Its backward makes a term dx of each input's gradient, which is added to what has arrived there.
// take(node, dy) sees every node; null `wanted`: all inputs are wanted; `release` frees what ops saved on the way.
template <class Take>
static void send_back(
    const Tensor& y, const Tensor& start, const detail::Wanted* wanted, bool release, const Take& take) {
  detail::Walk<detail::Arrived> walk;
  if (!wanted || (*wanted)(edge_of(y))) walk.arrive(edge_of(y)).add(start, edge_of(y));
  while (!walk.done()) {
    auto [node, arrived] = walk.next();
    std::vector<Tensor> dy;
    for (detail::Arrived& each : arrived) dy.push_back(each.take());
    take(*node, dy);
    std::vector<Tensor> dx = detail::terms_for_inputs(*node, dy, wanted, release);  // node.backward(dy, ...), below
    for (std::size_t k = 0; k < dx.size(); ++k)
      if (dx[k].defined()) walk.arrive(node->inputs()[k]).add(std::move(dx[k]), node->inputs()[k]);
  }
}

void backward(const Tensor& loss, const Tensor& seed, BackwardOptions options, Site site) {
  const CallSite place(site);
  Tensor start = detail::checked_seed("backward", loss, seed);
  if (seed.defined()) start = raw::copy(start);  // leaves may keep it, and the caller may write to `seed`
  const RecordingScope record(false);
  send_back(loss, start, nullptr, !options.keep_graph, [](Node& node, const std::vector<Tensor>& dy) {
    if (node.is_leaf()) static_cast<Leaf&>(node).accumulate(dy[0]);
  });
}

// Returns the gradients of y at the results with these ids that it depends on, starting with `start` at y.
static std::unordered_map<std::uint64_t, Tensor> gradients_at(
    const Tensor& y, const Tensor& start, detail::Ids targets, bool create_graph, bool release = false) {
  const detail::Wanted wanted(node_of(y), std::move(targets));
  std::unordered_map<std::uint64_t, Tensor> found;
  const RecordingScope record(create_graph);
  send_back(y, start, &wanted, release, [&](const Node& node, const std::vector<Tensor>& dy) {
    for (std::size_t k = 0; k < dy.size(); ++k)
      if (dy[k].defined() && wanted.is_target(node.id + k))
        found[node.id + k] = create_graph ? dy[k] : detail::in_dtype(dy[k], node.result(k).dtype);
  });
  return found;
}

std::vector<Tensor> grad(
    const Tensor& y, const Tensor& seed, const std::vector<Tensor>& inputs, GradOptions options, Site site) {
  const CallSite place(site);
  const Tensor start = detail::checked_seed("grad", y, seed);
  detail::Ids targets;
  for (const Tensor& input : inputs)
    if (tracked(input)) targets.insert(edge_of(input).id());
  const auto found = gradients_at(y, start, std::move(targets), options.create_graph);
  std::vector<Tensor> result;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const auto entry = tracked(inputs[k]) ? found.find(edge_of(inputs[k]).id()) : found.end();
    if (entry == found.end() && !options.allow_unused) {
      fail(
          "grad", to_text("y does not depend on input ", k, ", ", inputs[k].shape(), "; drop it, or set allow_unused"));
    }
    result.push_back(entry == found.end() ? Tensor() : detail::own(entry->second));
  }
  return result;
}

// ---- One node's backward, and the seed

namespace detail {

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
  raw::require_alike(op, "y", y, "seed", seed);
  return seed;
}

}  // namespace detail

// ---- The gradients of a composed function, as functions themselves

namespace {

// Replaces an input while f is differentiated, so that the backward walk ends here. Afterwards it is linked to the node
// that made the input. The gradients are functions of the input and so get its history.
class StandIn final : public Node {
 public:
  StandIn() : Node(Site::current()) {}
  const char* name() const override { return "input"; }
  std::span<const Edge> inputs() const override { return {&from_, from_ ? std::size_t{1} : std::size_t{0}}; }
  void backward(std::span<const Tensor> dy, std::span<const bool>, std::span<Tensor> dx) override { dx[0] = dy[0]; }
  void release_saved() override {}
  void link_to(Edge from) { from_ = std::move(from); }

 private:
  Edge from_;
};

}  // namespace

std::vector<Tensor> gradients_of(const std::function<Tensor(const std::vector<Tensor>&)>& f,
    const std::vector<Tensor>& inputs, const Tensor& dy, bool leaves) {
  const bool record = recording();
  std::vector<Tensor> own, gradients(inputs.size());
  std::vector<Ref<StandIn>> stand_ins(inputs.size());
  detail::Ids targets;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    own.push_back(inputs[k]);
    if (!inputs[k].defined() || !tracked(inputs[k])) continue;
    if (!leaves || !edge_of(inputs[k]).node->is_leaf()) {
      own[k] = inputs[k].detach();
      stand_ins[k] = Ref<StandIn>(new StandIn);
      stand_ins[k]->made(own[k]);
    }
    targets.insert(edge_of(own[k]).id());
  }
  std::unordered_map<std::uint64_t, Tensor> found;
  {
    const RecordingScope recorded(true);
    const Tensor y = f(own);
    if (tracked(y)) found = gradients_at(y, dy, targets, record, !record);
  }
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    if (!inputs[k].defined() || !tracked(inputs[k])) continue;
    if (stand_ins[k]) stand_ins[k]->link_to(edge_of(inputs[k]));
    const auto own_gradient = found.extract(edge_of(own[k]).id());  // a leaf that is given twice has one gradient
    gradients[k] =
        own_gradient ? own_gradient.mapped() : Tensor::zeros(inputs[k].shape(), inputs[k].dtype(), inputs[k].device());
  }
  return gradients;
}

void detail::differentiate(const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& f,
    const std::vector<Tensor>& inputs, std::span<const Tensor> dy, std::span<Tensor> dx) {
  for (std::size_t k = 0; k < dy.size(); ++k) {
    if (!dy[k].defined()) continue;
    const auto result = [&](const std::vector<Tensor>& in) { return f(in)[k]; };
    const std::vector<Tensor> found = gradients_of(result, inputs, dy[k]);
    for (std::size_t i = 0; i < dx.size(); ++i)
      if (found[i].defined()) dx[i] = dx[i].defined() ? add(dx[i], found[i]) : found[i];
  }
}

}  // namespace whence
