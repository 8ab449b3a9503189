// Tensors as text: a line that says what it is, then the numbers, nested rows aligned, long axes cut short with "...".
#pragma once

#include <iosfwd>
#include <string>

#include "tensor/tensor.h"

namespace whence {

std::string to_string(const Tensor& x);
std::ostream& operator<<(std::ostream& out, const Tensor& x);

}  // namespace whence
