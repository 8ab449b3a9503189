#include "tensor/tensor.h"

#include "tensor/convert.h"
#include "tensor/kernels.h"
#include "tensor/random.h"
#include "tensor/raw.h"

namespace whence {

void Tensor::undefined() {
  fail("tensor", "an undefined tensor given; a tensor with a value required; was it moved from, or never assigned?");
}

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  const index_t count = countable(shape);
  if (count < 0) fail("empty", "shape ", shape, " given; extents of 0 or more, below 2^59 elements, required");
  Tensor result;
  result.body_ = Ref<Body>(new Body);
  result.body_->shape = shape;
  result.body_->strides = contiguous_strides(shape);
  result.body_->dtype = dtype;
  result.body_->storage = Storage::create(static_cast<std::size_t>(count) * size_of(dtype), device);
  return result;
}

Tensor Tensor::full(const Shape& shape, double value, DType dtype, Device device) {
  Tensor result = empty(shape, dtype, device);
  kernels(device).fill(result, value);
  return result;
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, Device device) { return full(shape, 0, dtype, device); }
Tensor Tensor::ones(const Shape& shape, DType dtype, Device device) { return full(shape, 1, dtype, device); }
Tensor Tensor::scalar(double value, DType dtype, Device device) { return full({}, value, dtype, device); }

Tensor Tensor::of(const std::vector<double>& values, const Shape& shape, DType dtype) {
  Tensor result = empty(shape, dtype);
  if (static_cast<index_t>(values.size()) != result.numel())
    fail("of", values.size(), " values given for shape ", shape, "; ", result.numel(), " required");
  visit(dtype, [&]<class T>(Type<T>) {
    T* out = result.data<T>();
    for (std::size_t i = 0; i < values.size(); ++i) out[i] = convert<T>(values[i]);
  });
  return result;
}

Tensor Tensor::arange(index_t count, DType dtype) {
  Tensor result = empty({count}, dtype);
  visit(dtype, [&]<class T>(Type<T>) {
    T* out = result.data<T>();
    for (index_t i = 0; i < count; ++i) out[i] = convert<T>(i);
  });
  return result;
}

Tensor Tensor::uniform(const Shape& shape, double low, double high, const Stream& stream, DType dtype) {
  Tensor result = empty(shape, dtype);
  kernels(result).random_uniform(result, stream, low, high);
  return result;
}

Tensor Tensor::normal(const Shape& shape, double mean, double deviation, const Stream& stream, DType dtype) {
  Tensor result = empty(shape, dtype);
  kernels(result).random_normal(result, stream, mean, deviation);
  return result;
}

index_t Tensor::size(int axis) const { return shape()[normal_axis("size", axis, rank())]; }

double Tensor::item() const {
  if (numel() != 1) fail("item", "shape ", shape(), " given; exactly one element required; use at or to_vector");
  return to_vector()[0];
}

double Tensor::at(std::initializer_list<index_t> position) const {
  const Shape where(position);
  bool inside = where.rank() == rank();
  index_t offset = 0;
  for (int axis = 0; inside && axis < rank(); ++axis) {
    inside = where[axis] >= 0 && where[axis] < shape()[axis];
    offset += where[axis] * strides()[axis];
  }
  if (!inside) fail("at", "position ", where, " given for shape ", shape());
  return view({}, {}, offset).item();
}

std::vector<double> Tensor::to_vector() const {
  const Tensor flat = raw::to_device(raw::contiguous(detach()), Device::cpu());
  std::vector<double> values(static_cast<std::size_t>(flat.numel()));
  visit(dtype(), [&]<class T>(Type<T>) {
    const T* in = flat.data<T>();
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = convert<double>(static_cast<compute_t<T>>(in[i]));
  });
  return values;
}

Tensor Tensor::detach() const { return view(shape(), strides()); }

Tensor Tensor::view(const Shape& shape, const Strides& strides, index_t offset) const {
  const Body& from = body();
  Tensor result;
  result.body_ = Ref<Body>(new Body);
  result.body_->shape = shape;
  result.body_->strides = strides;
  result.body_->offset = from.offset + offset;
  result.body_->storage = from.storage;
  result.body_->dtype = from.dtype;
  return result;
}

void Tensor::replace(const Tensor& value) const {
  if (!(shape() == value.shape())) fail("replace", "shape ", value.shape(), " given; ", shape(), " required");
  body_->strides = value.strides();
  body_->offset = value.body_->offset;
  body_->storage = value.body_->storage;
  body_->dtype = value.dtype();
}

}  // namespace whence
