#include "autograd/check/gradcheck_inputs.h"

#include "autograd/backward.h"
#include "tensor/raw.h"

namespace whence::detail {

// `x` with these numbers. The strides stay, unless they make two elements one.
static Tensor laid_out_like(const Tensor& x, DType dtype, const Numbers& values, const Numbers* tangents) {
  Tensor numbers = Tensor::of(values, x.shape(), dtype);
  if (dtype == DType::dual && tangents)
    for (std::size_t i = 0; i < values.size(); ++i) numbers.data<Dual>()[i].tangent = (*tangents)[i];
  numbers = raw::to_device(numbers, x.device());
  if (x.is_contiguous() || x.numel() == 0) return numbers;
  // An axis of stride 0 would tie elements together that are checked one by one: such inputs become contiguous.
  index_t span = 1;
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (x.size(axis) > 1 && x.strides()[axis] == 0) return numbers;
    span += (x.size(axis) - 1) * x.strides()[axis];
  }
  const Tensor result = Tensor::empty({span}, dtype, x.device()).view(x.shape(), x.strides());
  raw::copy_into(numbers, result);
  return result;
}

CheckedInputs::CheckedInputs(const char* op, const std::vector<Named>& named, bool any_dtype) {
  for (const Named& input : named) {
    raw::require_floating(op, input.name.c_str(), input.tensor);
    if (input.tensor.dtype() != DType::f64 && !any_dtype) {
      fail(op, input.name, " is ", input.tensor.dtype(),
          "; f64 required, because rounding would hide what is looked for; cast the ",
          "inputs and parameters to f64 first");
    }
    if (node_of(input.tensor) && !node_of(input.tensor)->is_leaf())
      fail(op, input.name, " is a result of ", node_of(input.tensor)->name(), "; a leaf required; use detach() first");
    for (const Entry& other : entries_)
      if (other.handle.identity() == input.tensor.identity())
        fail(op, input.name, " is named twice; each tensor once required");
    entries_.push_back(
        {input.tensor, input.tensor.detach(), Ref<GraphLink>(input.tensor.link()), input.tensor.to_vector()});
  }
}

std::vector<Tensor> CheckedInputs::tensors() const {
  std::vector<Tensor> result;
  for (const Entry& entry : entries_) result.push_back(entry.handle);
  return result;
}

void CheckedInputs::restore() {
  for (const Entry& entry : entries_) {
    entry.handle.replace(entry.original);
    entry.handle.set_link(entry.link);
  }
}

void CheckedInputs::shift(std::size_t k, const Numbers& u, double h) {
  restore();
  Numbers moved = entries_[k].values;
  for (std::size_t i = 0; i < moved.size(); ++i) moved[i] += h * u[i];
  entries_[k].handle.replace(laid_out_like(entries_[k].original, entries_[k].original.dtype(), moved, nullptr));
}

// Links are dropped first: a dual must not look like a leaf of the caller's dtype.
void CheckedInputs::make_dual(std::size_t k, const Numbers& u) {
  for (std::size_t other = 0; other < entries_.size(); ++other) {
    const Entry& entry = entries_[other];
    entry.handle.set_link({});
    entry.handle.replace(laid_out_like(entry.original, DType::dual, entry.values, other == k ? &u : nullptr));
  }
}

void CheckedInputs::make_leaves() {
  for (const Entry& entry : entries_) {
    entry.handle.set_link({});
    requires_grad(entry.handle);
  }
}

}  // namespace whence::detail
