#include "autograd/recompute.h"

#include <algorithm>
#include <memory>

#include "autograd/backward.h"
#include "autograd/op.h"
#include "autograd/pass.h"

namespace whence {
namespace {

using Function = std::function<Tensor(const std::vector<Tensor>&)>;

// Stands for an input while f is differentiated. A walk back ends here; afterwards it is led on to what made the input,
// so that the gradients, which are functions of the input, have its history.
class Threshold final : public Node {
 public:
  Threshold() : Node(Site::current()) {}
  const char* name() const override { return "input"; }
  std::span<const Edge> inputs() const override { return {&from_, from_ ? std::size_t{1} : std::size_t{0}}; }
  void backward(std::span<const Tensor> dy, std::span<const bool>, std::span<Tensor> dx) override { dx[0] = dy[0]; }
  void release_saved() override {}
  void lead_on(Edge from) { from_ = std::move(from); }

 private:
  Edge from_;
};

// `leaves`: they are passed as they are, as f may reach them by its own handles too (a module's parameters).
std::vector<Tensor> differentiated(
    const Function& f, const std::vector<Tensor>& inputs, const Tensor& dy, bool leaves) {
  const bool record = recording();
  std::vector<Tensor> own, gradients(inputs.size());
  std::vector<Ref<Threshold>> thresholds(inputs.size());
  detail::Ids targets;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    own.push_back(inputs[k]);
    if (!inputs[k].defined() || !tracked(inputs[k])) continue;
    if (!leaves || !edge_of(inputs[k]).node->is_leaf()) {
      own[k] = inputs[k].detach();
      thresholds[k] = Ref<Threshold>(new Threshold);
      thresholds[k]->made(own[k]);
    }
    targets.insert(edge_of(own[k]).id());
  }
  std::unordered_map<std::uint64_t, Tensor> found;
  {
    const RecordingScope recorded(true);
    const Tensor y = f(own);
    if (tracked(y)) found = detail::gradients_at(y, dy, targets, record, !record);
  }
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    if (!inputs[k].defined() || !tracked(inputs[k])) continue;
    if (thresholds[k]) thresholds[k]->lead_on(edge_of(inputs[k]));
    const auto own_gradient = found.extract(edge_of(own[k]).id());  // a leaf that is given twice has it once
    gradients[k] =
        own_gradient ? own_gradient.mapped() : Tensor::zeros(inputs[k].shape(), inputs[k].dtype(), inputs[k].device());
  }
  return gradients;
}

// One op whose forward is a whole function and whose backward runs that function again, recorded this time.
class RecomputedNode final : public Node {
 public:
  RecomputedNode(Function function, const std::vector<Tensor>& inputs, const Site& made_at)
      : Node(made_at), function_(std::move(function)) {
    saved_ = std::make_unique<SavedTensor[]>(inputs.size());
    const Exchange saving(detail::saving_node, this);
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      saved_[k] = inputs[k];
      edges_.push_back(edge_of(inputs[k]));
      leaves_.push_back(edges_[k] && edges_[k].node->is_leaf() ? inputs[k] : Tensor());
    }
  }

  const char* name() const override { return "recompute"; }
  std::span<const Edge> inputs() const override { return edges_; }
  void release_saved() override {
    for (std::size_t k = 0; k < edges_.size(); ++k)
      saved_[k].release();  // the array stays: first_saved() still names its elements
    leaves_.clear();
    function_ = nullptr;
    released_ = true;
  }

  void backward(std::span<const Tensor> dy, std::span<const bool> needed, std::span<Tensor> gradients) override {
    if (released_) detail::refuse_released(*this);
    std::vector<Tensor> inputs;
    for (std::size_t k = 0; k < edges_.size(); ++k) {
      const Tensor numbers = saved_[k].get();  // refuses when overwritten
      if (leaves_[k].defined())
        inputs.push_back(leaves_[k]);
      else if (recording())
        inputs.push_back(numbers);
      else
        inputs.push_back(needed[k] ? requires_grad(numbers.detach()) : numbers.detach());
    }
    const std::vector<Tensor> found = differentiated(function_, inputs, dy[0], true);
    for (std::size_t k = 0; k < edges_.size(); ++k)
      if (needed[k]) gradients[k] = found[k];
  }

 private:
  Function function_;
  std::unique_ptr<SavedTensor[]> saved_;
  std::vector<Edge> edges_;
  std::vector<Tensor> leaves_;
};

}  // namespace

std::vector<Tensor> gradients_of(const Function& f, const std::vector<Tensor>& inputs, const Tensor& dy) {
  return differentiated(f, inputs, dy, false);
}

Tensor recompute(std::function<Tensor(const std::vector<Tensor>&)> f, const std::vector<Tensor>& inputs, Site site) {
  const CallSite place(site);
  const bool record = recording() && std::any_of(inputs.begin(), inputs.end(), tracked);
  Tensor y;
  {
    const NoGrad values_only;
    y = f(inputs).detach();
  }
  if (record) {
    Ref<RecomputedNode> node(new RecomputedNode(std::move(f), inputs, site));
    node->made(y);
  }
  return y;
}

}  // namespace whence
