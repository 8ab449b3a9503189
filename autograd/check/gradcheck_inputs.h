// The inputs of a function under gradcheck. Exchanges their numbers, and always puts the old ones back.
#pragma once

#include <vector>

#include "autograd/check/gradcheck.h"
#include "autograd/node.h"

namespace whence::detail {

using Numbers = std::vector<double>;

class CheckedInputs {
 public:
  CheckedInputs(const char* op, const std::vector<Named>& named, bool any_dtype);
  ~CheckedInputs() { restore(); }
  CheckedInputs(const CheckedInputs&) = delete;
  CheckedInputs& operator=(const CheckedInputs&) = delete;

  std::size_t count() const { return entries_.size(); }
  const Numbers& values(std::size_t k) const { return entries_[k].values; }
  std::vector<Tensor> tensors() const;

  void restore();
  // Input k becomes values + h u in its own dtype; the others are as they were.
  void shift(std::size_t k, const Numbers& u, double h);
  // All inputs become duals; u is the tangent of input k, that of the others is 0.
  void make_dual(std::size_t k, const Numbers& u);
  void make_leaves();  // of the present dtype, so that nothing is added to the caller's

 private:
  struct Entry {
    Tensor handle, original;
    Ref<GraphLink> link;
    Numbers values;
  };
  std::vector<Entry> entries_;
};

}  // namespace whence::detail
