// Tensors to test with, and what they are judged by: readers and loops that use none of the code under test, distances, texts
// of errors, parameters at random.
#pragma once

#include <doctest/doctest.h>
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
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
#include "tests/support/with.h"

namespace whence::test {

inline const std::vector<DType> floating_dtypes{DType::f16, DType::bf16, DType::f32, DType::f64, DType::dual};

enum class Layout { contiguous, permuted, sliced, broadcast };
inline const std::vector<Layout> layouts{Layout::contiguous, Layout::permuted, Layout::sliced, Layout::broadcast};
inline std::string name_of(Layout layout) {
  const char* names[] = {"contiguous", "permuted", "sliced", "broadcast"};
  return names[static_cast<int>(layout)];
}

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
inline std::vector<std::vector<index_t>> positions(const Shape& shape) {
  std::vector<std::vector<index_t>> result;
  for_each_position(shape, [&](const std::vector<index_t>& position) { result.push_back(position); });
  return result;
}

// The elements in row-major order, found by index times stride, one by one.
inline std::vector<double> read(const Tensor& x, bool tangents = false) {
  std::vector<double> values;
  visit(x.dtype(), [&]<class T>(Type<T>) {
    const T* data = x.data<T>();
    for_each_position(x.shape(), [&](const std::vector<index_t>& position) {
      index_t offset = 0;
      for (int axis = 0; axis < x.rank(); ++axis)
        offset += position[static_cast<std::size_t>(axis)] * x.strides()[axis];
      if constexpr (std::is_same_v<T, Dual>)
        values.push_back(tangents ? data[offset].tangent : data[offset].value);
      else
        values.push_back(static_cast<double>(static_cast<compute_t<T>>(data[offset])));
    });
  });
  return values;
}

// Normal numbers, rounded to the dtype; a dual gets a tangent as well.
inline Tensor random_contiguous(const Shape& shape, DType dtype, std::uint64_t seed) {
  const Stream stream(seed, "test values");
  const Tensor x = Tensor::empty(shape, dtype);
  visit(dtype, [&]<class T>(Type<T>) {
    T* to = x.data<T>();
    for (index_t i = 0; i < x.numel(); ++i) {
      const double value = stream.normal(static_cast<std::uint64_t>(i));
      if constexpr (std::is_same_v<T, Dual>)
        to[i] = Dual(value, stream.normal(static_cast<std::uint64_t>(i) + 1000000));
      else
        to[i] = static_cast<T>(static_cast<compute_t<T>>(value));
    }
  });
  return x;
}

// `shape` in a layout: axes in reverse order in memory; every second element of a larger tensor, not from its start;
// first axis of extent above 1 stretched.
inline Tensor random_tensor(const Shape& shape, DType dtype, std::uint64_t seed, Layout layout = Layout::contiguous) {
  const int rank = shape.rank();
  if (layout == Layout::permuted) {
    Shape reversed;
    for (int axis = rank - 1; axis >= 0; --axis) reversed.push_back(shape[axis]);
    const Tensor base = random_contiguous(reversed, dtype, seed);
    Strides strides;
    for (int axis = rank - 1; axis >= 0; --axis) strides.push_back(base.strides()[axis]);
    return base.view(shape, strides);
  }
  if (layout == Layout::sliced && rank > 0) {
    Shape larger = shape;
    larger[-1] = 2 * shape[-1] + 1;
    const Tensor base = random_contiguous(larger, dtype, seed);
    Strides strides = base.strides();
    strides[-1] = 2;
    return base.view(shape, strides, numel(shape) > 0 ? 1 : 0);
  }
  if (layout == Layout::broadcast) {
    Shape smaller = shape;
    int axis = 0;
    while (axis < rank && shape[axis] <= 1) ++axis;
    if (axis == rank) return random_contiguous(shape, dtype, seed);
    smaller[axis] = 1;
    const Tensor base = random_contiguous(smaller, dtype, seed);
    Strides strides = base.strides();
    strides[axis] = 0;
    return base.view(shape, strides);
  }
  return random_contiguous(shape, dtype, seed);
}

// A row-major copy made element by element.
inline Tensor plain_copy(const Tensor& x) {
  const Tensor result = Tensor::empty(x.shape(), x.dtype());
  const std::vector<double> values = read(x), tangents = read(x, true);
  visit(x.dtype(), [&]<class T>(Type<T>) {
    for (std::size_t i = 0; i < values.size(); ++i)
      if constexpr (std::is_same_v<T, Dual>)
        result.data<T>()[i] = Dual(values[i], tangents[i]);
      else
        result.data<T>()[i] = static_cast<T>(static_cast<compute_t<T>>(values[i]));
  });
  return result;
}

// tol = k eps(dtype) sqrt(terms in a sum) size, where k is 4 and size the larger of the number's own and the root of the
// mean square of the finite ones.
// One comparison for all elements, so that a failing test says where and does not print a million lines.
inline void expect_close(
    const std::vector<double>& got, const std::vector<double>& expected, DType dtype, index_t terms = 1) {
  REQUIRE(got.size() == expected.size());
  double squares = 0;
  for (const double v : expected) squares += std::isfinite(v) ? v * v : 0;
  const double factor = 4 * epsilon_of(dtype) * std::sqrt(static_cast<double>(terms > 0 ? terms : 1)),
               typical = std::sqrt(squares / std::max(1.0, static_cast<double>(expected.size())));
  const double smallest = dtype == DType::f16 ? 0x1p-24 : 0;  // subnormal halves have an absolute error
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double allowed = factor * std::max(typical, std::fabs(expected[i])) + smallest;
    const bool same = got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i])) ||
                      std::fabs(got[i] - expected[i]) <= allowed;
    if (!same) {
      FAIL_CHECK("element " << i << " of " << got.size() << ": got " << got[i] << ", expected " << expected[i]
                            << " within " << allowed);
      return;
    }
  }
}

// Also of views, and where both are undefined.
inline bool same_bits(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (!(a.shape() == b.shape()) || a.dtype() != b.dtype()) return false;
  const Tensor x = raw::contiguous(a), y = raw::contiguous(b);
  return std::equal(x.bytes(), x.bytes() + static_cast<std::size_t>(x.numel()) * size_of(x.dtype()), y.bytes());
}
inline bool same_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  return std::ranges::equal(a, b, [](const Tensor& x, const Tensor& y) { return same_bits(x, y); });
}

// f() gives the same bits on 1, 2 and 3 threads.
inline void expect_thread_independent(const std::string& name, const std::function<Tensor()>& f) {
  const auto on = [&](int count) {
    const WithThreads chosen(count);
    return f();
  };
  const Tensor first = on(1);
  for (const int count : {2, 3})
    CHECK_MESSAGE(same_bits(first, on(count)), name << " on " << count << " threads differs from 1 thread");
}

// The text of the Error that f throws, which must be of this kind; "" when it throws none.
template <class Kind = Error, class F> std::string error_text(const F& f) {
  try {
    f();
  } catch (const Kind& error) { return error.what(); }
  return "";
}

// Sentinels around every tensor made while this is alive.
struct Guards {
  Guards() { Storage::set_guards(true); }
  ~Guards() { Storage::set_guards(false); }
  Guards(const Guards&) = delete;
  Guards& operator=(const Guards&) = delete;
};

// The largest |a_i - b_i|; infinite where shapes differ or one of the two is not a number.
inline double distance(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined() || !(a.shape() == b.shape())) return std::numeric_limits<double>::infinity();
  const std::vector<double> x = a.to_vector(), y = b.to_vector();
  double largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] == y[i]) continue;  // also equal infinities
    const double apart = std::fabs(x[i] - y[i]);
    largest = std::isnan(apart) ? std::numeric_limits<double>::infinity() : std::max(largest, apart);
  }
  return largest;
}

// The largest number by its size.
inline double largest(const Tensor& x) { return distance(x, Tensor::zeros(x.shape(), DType::f64)); }

// The same without the "file.cpp:12: " in front.
template <class Kind = Error, class F> std::string message(const F& f) {
  const std::string text = error_text<Kind>(f);
  const std::size_t end = text.find(": "), colon = text.find_last_not_of("0123456789", end - 1);
  return end < text.size() && colon + 1 < end && text[colon] == ':' ? text.substr(end + 2) : text;
}

// "file.cpp:11" for a call on line 12: the place of the statement above.
inline std::string above(Site at = Site::current()) {
  const std::string place = to_string(at);
  return to_text(place.substr(0, place.find(':') + 1), at.line() - 1);
}

inline Tensor leaf(const std::vector<double>& values, const Shape& shape) {
  return requires_grad(Tensor::of(values, shape, DType::f64));
}
inline Tensor normal(const Shape& shape, std::uint64_t seed, DType dtype = DType::f64) {
  return Tensor::normal(shape, 0, 1, Stream(seed, "tests"), dtype);
}
inline Tensor normal_leaf(const Shape& shape, std::uint64_t seed, DType dtype = DType::f64) {
  return requires_grad(normal(shape, seed, dtype));
}

// Random numbers in every parameter, so that none is zero by its initialisation. They depend on the path alone.
inline void randomise(Module& module, DType dtype = DType::f64, double deviation = 0.4) {
  module.to(dtype);
  for (const Module::Parameter& parameter : module.parameters()) {
    const Tensor drawn = Tensor::normal(parameter.tensor.shape(), 0, deviation, Stream(5, parameter.path), DType::f64);
    raw::copy_into(raw::cast(drawn, dtype), parameter.tensor);
    parameter.put_inside_bounds();
  }
}

inline std::vector<std::string> paths_of(const Module& module) {
  std::vector<std::string> paths;
  for (const Module::Parameter& each : module.parameters()) paths.push_back(each.path);
  return paths;
}
inline std::vector<Tensor> parameters_of(const Module& module) {
  std::vector<Tensor> tensors;
  for (const Module::Parameter& each : module.parameters()) tensors.push_back(each.tensor);
  return tensors;
}
inline Tensor parameter(const Module& module, const std::string& path) {
  for (const Module::Parameter& each : module.parameters())
    if (each.path == path) return each.tensor;
  fail("parameter", to_text("'", path, "' given; no such path"));
}

}  // namespace whence::test
