#include "autograd/recompute.h"

#include <algorithm>
#include <memory>

#include "autograd/backward.h"
#include "autograd/op.h"

namespace whence {
namespace {

using Function = std::function<Tensor(const std::vector<Tensor>&)>;

// One op whose forward is a whole function. Its backward runs that function again, recorded this time.
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
      saved_[k].release();  // the array stays, because first_saved() still points to its elements
    leaves_.clear();
    function_ = nullptr;
    released_ = true;
  }

  void backward(std::span<const Tensor> dy, std::span<const bool> needed, std::span<Tensor> gradients) override {
    if (released_) detail::refuse_released(*this);
    std::vector<Tensor> inputs;
    for (std::size_t k = 0; k < edges_.size(); ++k) {
      const Tensor numbers = saved_[k].get();  // throws if overwritten
      if (leaves_[k].defined())
        inputs.push_back(leaves_[k]);
      else if (recording() || !numbers.defined())
        inputs.push_back(numbers);
      else
        inputs.push_back(needed[k] ? requires_grad(numbers.detach()) : numbers.detach());
    }
    const std::vector<Tensor> found = gradients_of(function_, inputs, dy[0], true);
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
