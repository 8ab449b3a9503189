// gradients_of(): the gradients of a composed function, as functions themselves (autograd/backward.h).
#include "autograd/backward.h"
#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/pass.h"
#include "autograd/recording.h"

namespace whence {
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
    if (tracked(y)) found = detail::gradients_at(y, dy, targets, record, !record);
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
