// Test tensors and tools to judge them: readers and loops without the code under test, distances, texts of errors, random
// parameters.
#pragma once

#include <doctest/doctest.h>
#include <functional>
#include <string>
#include <utility>
#include <vector>
#include "autograd/backward.h"
#include "autograd/ops.h"
#include "autograd/recording.h"
#include "nn/layers/module.h"
#include "tensor/dtype.h"
#include "tensor/error.h"
#include "tensor/parallel.h"
#include "tensor/random.h"
#include "tensor/raw.h"
#include "tensor/tensor.h"
#include "tests/support/has.h"
#include "tests/support/with.h"

namespace whence::test {

inline const std::vector<DType> floating_dtypes{DType::f16, DType::bf16, DType::f32, DType::f64, DType::dual};

enum class Layout { contiguous, permuted, sliced, broadcast };
inline const std::vector<Layout> layouts{Layout::contiguous, Layout::permuted, Layout::sliced, Layout::broadcast};
std::string name_of(Layout layout);

// f(position) for all positions of a shape in row-major order.
template <class F> void for_each_position(const Shape& shape, const F& f) {
  if (numel(shape) == 0) return;
  std::vector<index_t> position(static_cast<std::size_t>(shape.rank()), 0);
  while (true) {
    f(std::as_const(position));
    int axis = shape.rank() - 1;
    while (axis >= 0 && ++position[static_cast<std::size_t>(axis)] == shape[axis])
      position[static_cast<std::size_t>(axis--)] = 0;
    if (axis < 0) return;
  }
}
std::vector<std::vector<index_t>> positions(const Shape& shape);

// The elements in row-major order, found by index times stride, one by one.
std::vector<double> read(const Tensor& x, bool tangents = false);

// Normal numbers, rounded to the dtype; a dual gets a tangent as well.
Tensor random_contiguous(const Shape& shape, DType dtype, std::uint64_t seed);

// `shape` in a layout: axes in reverse order in memory; every second element of a larger tensor, not from its start;
// first axis of extent above 1 stretched.
Tensor random_tensor(const Shape& shape, DType dtype, std::uint64_t seed, Layout layout = Layout::contiguous);

// tol = k eps(dtype) sqrt(terms in a sum) size, where k is 4 and size the largest of the number's own, the root of the
// mean square of the finite ones, and `cancelled`: the size of terms that nearly cancel in some of them.
// One comparison for all elements, so that a failing test says where and does not print a million lines.
void expect_close(const std::vector<double>& got, const std::vector<double>& expected, DType dtype, index_t terms = 1,
    double cancelled = 0);

// The nearest number of 16 bits with so many mantissa bits, ties to even, by scaling to an integer and nearbyint.
double nearest_in_16_bits(double value, int mantissa);

// The text of the Error that f throws, which must be of this kind; "" when it throws none.
template <class Kind = Error, class F> std::string error_text(const F& f) {
  try {
    f();
  } catch (const Kind& error) { return error.what(); }
  return "";
}

using whence::same_bits, whence::Guards;
inline double distance(const Tensor& a, const Tensor& b) { return largest_difference(a, b); }
double distance(const std::vector<double>& a, const std::vector<double>& b);  // infinite if a number of one is NaN
inline double largest(const Tensor& x) { return largest_size(x); }

// The same as error_text without the "file.cpp:12: " in front.
template <class Kind = Error, class F> std::string message(const F& f) {
  const std::string text = error_text<Kind>(f);
  const std::size_t end = text.find(": "), colon = text.find_last_not_of("0123456789", end - 1);
  return end < text.size() && colon + 1 < end && text[colon] == ':' ? text.substr(end + 2) : text;
}

// "file.cpp:11" for a call on line 12: the place of the statement above.
std::string above(Site at = Site::current());

Tensor leaf(const std::vector<double>& values, const Shape& shape);
Tensor normal(const Shape& shape, std::uint64_t seed, DType dtype = DType::f64);
Tensor normal_leaf(const Shape& shape, std::uint64_t seed, DType dtype = DType::f64);

// Random numbers in every parameter, so that none is zero by its initialisation. They depend on the path alone.
void randomise(Module& module, DType dtype = DType::f64, double deviation = 0.4);

std::vector<std::string> paths_of(const Module& module);
std::vector<Tensor> parameters_of(const Module& module);
std::vector<double> numbers_of(const Module& module);  // of all parameters
Tensor parameter(const Module& module, const std::string& path);

}  // namespace whence::test
