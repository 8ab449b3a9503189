// Tensors as text.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ostream>

#include "tensor/raw.h"
#include "tensor/tensor.h"

namespace whence {
namespace {

constexpr index_t longest_axis = 8;  // longer axes show their first and last `edge` elements
constexpr index_t edge = 3;

// Five significant digits, integers in full.
std::string number_text(double value, DType dtype) {
  if (dtype == DType::boolean) return value != 0 ? "true" : "false";
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char text[40];
  std::snprintf(text, sizeof text, is_floating(dtype) ? "%.5g" : "%.0f", value);
  return text;
}

// The text of an element, which is a tensor without axes. A dual's tangent follows, as in "1+2e" or "1-0.5e".
std::string element_text(const Tensor& x) {
  const std::string value = number_text(x.item(), x.dtype());
  if (x.dtype() != DType::dual) return value;
  const double tangent = x.data<Dual>()->tangent;
  return to_text(value, std::signbit(tangent) ? "" : "+", number_text(tangent, DType::f64), 'e');
}

// Returns the nested brackets from `axis` on, numbers padded to `width`. Sets `width` to the longest number's length: a
// first call measures, and a second one is aligned. Reads only what is shown, because a printed view may be larger than
// memory.
std::string rows(const Tensor& x, int axis, index_t offset, std::size_t& width) {
  if (axis == x.rank()) {
    const std::string text = element_text(x.view({}, {}, offset));
    width = std::max(width, text.size());
    return std::string(width - text.size(), ' ') + text;
  }
  const std::string separator =
      axis + 1 == x.rank() ? ", " : to_text(",\n", std::string(static_cast<std::size_t>(axis) + 1, ' '));
  const index_t extent = x.shape()[axis];
  std::string result = "[";
  for (index_t i = 0; i < extent; ++i) {
    if (extent > longest_axis && i == edge) result += separator + "...", i = extent - edge;
    if (i > 0) result += separator;
    result += rows(x, axis + 1, offset + i * x.strides()[axis], width);
  }
  return result + "]";
}

}  // namespace

std::string to_string(const Tensor& x) {
  if (!x.defined()) return "tensor undefined";
  const Tensor here = raw::to_device(x.detach(), Device::cpu());
  std::size_t width = 0;
  (void)rows(here, 0, 0, width);
  return to_text("tensor ", x.dtype(), ' ', x.shape(), ' ', to_string(x.device()), x.rank() == 0 ? ' ' : '\n',
      rows(here, 0, 0, width));
}

std::ostream& operator<<(std::ostream& out, const Tensor& x) { return out << to_string(x); }

}  // namespace whence
