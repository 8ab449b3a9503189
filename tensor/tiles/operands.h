// Shapes by letters: "b h i d". A letter is one extent wherever it occurs in a call; "1|h" is h or 1.
#pragma once

#include <span>

#include "tensor/tensor.h"
#include "tensor/tiled_operands.h"

namespace whence {

// Calls f(letter, axis, may_be_1) for the axes of "b h i d" one by one.
template <class F> void each_axis(const char* axes, const F& f) {
  int axis = 0;
  for (const char* at = axes; *at; ++at) {
    if (*at == ' ' || at[1] == '|' || *at == '|') continue;
    f(*at, axis++, at != axes && at[-1] == '|');
  }
}

// The extents of letters; -1: no operand has that axis.
class Extents {
 public:
  index_t& operator[](char letter) { return of_[static_cast<std::size_t>(letter - 'a')]; }
  index_t operator[](char letter) const { return of_[static_cast<std::size_t>(letter - 'a')]; }

  // Completes the extents by the letters of x that are new. Throws Error in the name of `op` if another letter has a
  // different extent.
  void fit(const char* op, const char* name, const Tensor& x, const char* axes);

 private:
  std::array<index_t, 26> of_ = [] {
    std::array<index_t, 26> none{};
    none.fill(-1);
    return none;
  }();
};

// Fits all operands that are defined.
[[nodiscard]] Extents extents_of(
    const char* op, std::span<const OperandInfo> info, std::span<const Tensor> operands, Extents known = {});

}  // namespace whence
