#include "tests/support/tensors.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace whence::test {

std::string name_of(Layout layout) {
  const char* names[] = {"contiguous", "permuted", "sliced", "broadcast"};
  return names[static_cast<int>(layout)];
}

std::vector<std::vector<index_t>> positions(const Shape& shape) {
  std::vector<std::vector<index_t>> result;
  for_each_position(shape, [&](const std::vector<index_t>& position) { result.push_back(position); });
  return result;
}

std::vector<double> read(const Tensor& x, bool tangents) {
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

Tensor random_contiguous(const Shape& shape, DType dtype, std::uint64_t seed) {
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

Tensor random_tensor(const Shape& shape, DType dtype, std::uint64_t seed, Layout layout) {
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

void expect_close(
    const std::vector<double>& got, const std::vector<double>& expected, DType dtype, index_t terms, double cancelled) {
  REQUIRE(got.size() == expected.size());
  double squares = 0;
  for (const double v : expected) squares += std::isfinite(v) ? v * v : 0;
  const double factor = 4 * epsilon_of(dtype) * std::sqrt(static_cast<double>(terms > 0 ? terms : 1)),
               typical = std::max(cancelled, std::sqrt(squares / std::max(1.0, static_cast<double>(expected.size()))));
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

double nearest_in_16_bits(double value, int mantissa) {
  if (!std::isfinite(value) || value == 0) return value;
  const int bias = (1 << (14 - mantissa)) - 1;
  const int exponent = std::max(std::ilogb(value), 1 - bias), step = exponent - mantissa;
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, -step)), step),
               largest = std::ldexp(2.0, bias) * (1 - std::ldexp(1.0, -mantissa - 1));
  return std::fabs(rounded) > largest ? std::copysign(INFINITY, value) : rounded;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (std::size_t n = 0; n < a.size(); ++n)
    most = std::max(most, std::isnan(a[n]) != std::isnan(b[n]) ? INFINITY : std::fabs(a[n] - b[n]));
  return most;
}

std::string above(Site at) {
  const std::string place = to_string(at);
  return to_text(place.substr(0, place.find(':') + 1), at.line() - 1);
}

Tensor leaf(const std::vector<double>& values, const Shape& shape) {
  return requires_grad(Tensor::of(values, shape, DType::f64));
}

Tensor normal(const Shape& shape, std::uint64_t seed, DType dtype) {
  return Tensor::normal(shape, 0, 1, Stream(seed, "tests"), dtype);
}

Tensor normal_leaf(const Shape& shape, std::uint64_t seed, DType dtype) {
  return requires_grad(normal(shape, seed, dtype));
}

void randomise(Module& module, DType dtype, double deviation) {
  module.to(dtype);
  for (const Module::Parameter& parameter : module.parameters()) {
    const Tensor drawn = Tensor::normal(parameter.tensor.shape(), 0, deviation, Stream(5, parameter.path), DType::f64);
    raw::copy_into(raw::cast(drawn, dtype), parameter.tensor);
    parameter.put_inside_bounds();
  }
}

std::vector<std::string> paths_of(const Module& module) {
  std::vector<std::string> paths;
  for (const Module::Parameter& each : module.parameters()) paths.push_back(each.path);
  return paths;
}

std::vector<Tensor> parameters_of(const Module& module) {
  std::vector<Tensor> tensors;
  for (const Module::Parameter& each : module.parameters()) tensors.push_back(each.tensor);
  return tensors;
}

std::vector<double> numbers_of(const Module& module) {
  std::vector<double> numbers;
  for (const Tensor& x : parameters_of(module)) std::ranges::copy(x.to_vector(), std::back_inserter(numbers));
  return numbers;
}

Tensor parameter(const Module& module, const std::string& path) {
  for (const Module::Parameter& each : module.parameters())
    if (each.path == path) return each.tensor;
  fail("parameter", to_text("'", path, "' given; no such path"));
}

}  // namespace whence::test
