// How tensors are printed.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ostream>
#include <vector>

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

// "+2e" or "-0.5e": e is the unit whose square is 0.
std::string tangent_text(double tangent) {
  return to_text(std::signbit(tangent) ? "" : "+", number_text(tangent, DType::f64), 'e');
}

// Everything that is shown, in reading order, as text of one width.
class Printer {
 public:
  explicit Printer(const Tensor& x) : x_(raw::to_device(x.detach(), Device::cpu())) {
    collect(0, 0);
    for (const std::string& text : texts_) width_ = std::max(width_, text.size());
  }

  std::string text() {
    next_ = 0;
    return rows(0);
  }

 private:
  bool is_cut(int axis) const { return x_.shape()[axis] > longest_axis; }
  bool is_shown(int axis, index_t i) const { return !is_cut(axis) || i < edge || i >= x_.shape()[axis] - edge; }

  // Only what is shown is read, so a printed view may be larger than memory.
  void collect(int axis, index_t offset) {
    if (axis == max_rank || axis == x_.rank()) {
      const Tensor element = raw::to_device(x_.view({}, {}, offset), Device::cpu());
      std::string text = number_text(element.item(), x_.dtype());
      if (x_.dtype() == DType::dual) text += tangent_text(element.data<Dual>()->tangent);
      texts_.push_back(text);
      return;
    }
    for (index_t i = 0; i < x_.shape()[axis]; ++i)
      if (is_shown(axis, i)) collect(axis + 1, offset + i * x_.strides()[axis]);
  }

  // The nested brackets from `axis` on, taking texts in the order in which collect() left them.
  std::string rows(int axis) {
    if (axis == max_rank || axis == x_.rank()) {
      const std::string& text = texts_[next_++];
      return std::string(width_ - text.size(), ' ') + text;
    }
    const bool innermost = axis + 1 == x_.rank();
    const std::string separator =
        innermost ? ", " : to_text(",\n", std::string(static_cast<std::size_t>(axis) + 1, ' '));
    std::string result = "[";
    for (index_t i = 0; i < x_.shape()[axis]; ++i) {
      if (!is_shown(axis, i)) {
        if (i == edge) result += separator + "...";
        continue;
      }
      if (i > 0) result += separator;
      result += rows(axis + 1);
    }
    return result + "]";
  }

  Tensor x_;
  std::vector<std::string> texts_;
  std::size_t width_ = 0, next_ = 0;
};

}  // namespace

std::string to_string(const Tensor& x) {
  if (!x.defined()) return "tensor undefined";
  const std::string header = to_text("tensor ", x.dtype(), ' ', x.shape(), ' ', to_string(x.device()));
  if (x.rank() == 0) return to_text(header, ' ', Printer(x).text());
  return to_text(header, '\n', Printer(x).text());
}

std::ostream& operator<<(std::ostream& out, const Tensor& x) { return out << to_string(x); }

}  // namespace whence
