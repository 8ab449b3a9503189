// Joins parts along an axis: y = [x_0, x_1, ...]    dx_k = the slice of dy that came from x_k
#include <algorithm>

#include "autograd/backward.h"
#include "autograd/op.h"
#include "autograd/ops.h"
#include "tensor/raw.h"

namespace whence {
namespace {

// The one op with any number of inputs. So it is a node of its own instead of a struct for apply().
class ConcatNode final : public Node {
 public:
  ConcatNode(int axis, const std::vector<Tensor>& parts, const Site& made_at) : Node(made_at), axis_(axis) {
    for (const Tensor& part : parts) {
      edges_.push_back(edge_of(part));
      extents_.push_back(part.size(axis));
    }
  }
  const char* name() const override { return "concat_along"; }
  std::span<const Edge> inputs() const override { return edges_; }
  void release_saved() override { released_ = true; }
  std::vector<Tensor> rerun(const std::vector<Tensor>& parts) const override {
    return {concat_along(axis_, parts, site)};
  }
  void backward(std::span<const Tensor> dy, std::span<const bool> needed, std::span<Tensor> dx) override {
    if (released_) detail::refuse_released(*this);
    // y[begin_k ... begin_k + extent_k) = x_k: each gradient is a view of dy
    index_t begin = 0;
    for (std::size_t k = 0; k < edges_.size(); begin += extents_[k++])
      if (needed[k]) dx[k] = slice(dy[0], axis_, begin, begin + extents_[k]);
  }

 private:
  int axis_;
  std::vector<index_t> extents_;
  std::vector<Edge> edges_;
};

constexpr const char* op_name = "concat_along";

// Returns the result's shape; throws if the parts do not fit.
Shape joined_shape(int axis, const std::vector<Tensor>& parts) {
  Shape shape = parts[0].shape();
  for (std::size_t k = 1; k < parts.size(); ++k) {
    raw::require_alike(op_name, "part 0", parts[0], "another part", parts[k]);
    bool agree = parts[k].rank() == shape.rank();
    for (int other = 0; agree && other < shape.rank(); ++other)
      agree = other == axis || parts[k].size(other) == shape[other];
    if (!agree) {
      fail(op_name, "part 0 is ", parts[0].shape(), ", part ", k, " is ", parts[k].shape(),
          "; equal extents outside axis ", axis, " required");
    }
    shape[axis] += parts[k].size(axis);
    if (countable(shape) < 0) fail(op_name, "parts 0 to ", k, " given; fewer than 2^59 elements together required");
  }
  return shape;
}

Tensor join(int axis, const std::vector<Tensor>& parts) {
  const Tensor y = Tensor::like(parts[0], joined_shape(axis, parts));
  index_t begin = 0;
  for (const Tensor& part : parts) {
    raw::copy_into(part, raw::slice(y, axis, begin, begin + part.size(axis)));
    begin += part.size(axis);
  }
  return y;
}

}  // namespace

Tensor concat_along(int axis, const std::vector<Tensor>& parts, Site site) {
  const CallSite place(site);
  if (parts.empty()) fail(op_name, "no parts given; at least one required");
  const int normal = normal_axis(op_name, axis, parts[0].rank());
  std::vector<const Tensor*> each;
  for (const Tensor& part : parts) each.push_back(&part);
  if (detail::mixes_duals(each)) {
    std::vector<Tensor> duals;
    for (const Tensor& part : parts) duals.push_back(detail::beside_duals(part));
    return concat_along(normal, duals, site);
  }
  detail::Watched run(op_name, false);
  const Tensor y = join(normal, parts);
  Ref<ConcatNode> node;
  if (recording() && std::any_of(parts.begin(), parts.end(), tracked)) {
    node = Ref(new ConcatNode(normal, parts, site));
    node->made(y);
  }
  if (run) run.ended(node.get(), parts, {&y, 1});
  return y;
}

}  // namespace whence
