// Tensors and their parts: dtypes, shapes, storages.
#include "tensor/tensor.h"

#include <algorithm>
#include <cstring>
#include <ostream>
#include <utility>

#include "tensor/backend.h"
#include "tensor/convert.h"
#include "tensor/error.h"
#include "tensor/kernels.h"
#include "tensor/random.h"
#include "tensor/raw.h"

namespace whence {

// ---- DType

const char* to_string(DType dtype) {
  switch (dtype) {
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
    case DType::f32: return "f32";
    case DType::f64: return "f64";
    case DType::i32: return "i32";
    case DType::i64: return "i64";
    case DType::boolean: return "bool";
    case DType::dual: return "dual";
  }
  __builtin_unreachable();
}

double epsilon_of(DType dtype) {
  switch (dtype) {
    case DType::f16: return 0x1p-10;
    case DType::bf16: return 0x1p-7;
    case DType::f32: return 0x1p-23;
    case DType::f64:
    case DType::dual: return 0x1p-52;
    case DType::i32:
    case DType::i64:
    case DType::boolean: break;
  }
  wrong_dtype("epsilon_of", dtype, "a floating dtype");
}

void wrong_dtype(const char* op, DType given, const char* required) {
  fail(op, "dtype ", given, " given; ", required, " required; convert with cast");
}

// ---- Shape

template <class Tag> void PerAxis<Tag>::too_many_axes() {
  fail("shape", "more than ", max_rank, " axes given; at most ", max_rank, " are supported; merge axes with reshape");
}
template class PerAxis<ShapeTag>;
template class PerAxis<StridesTag>;

Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  Shape result = Shape::filled(rank, 1);
  for (int axis = -1; axis >= -rank; --axis) {
    const index_t extent_a = -axis <= a.rank() ? a[axis] : 1, extent_b = -axis <= b.rank() ? b[axis] : 1;
    if (extent_a != extent_b && extent_a != 1 && extent_b != 1) {
      fail(op, "a is ", a, ", b is ", b, "; extents ", extent_a, " and ", extent_b, " of axis ", axis,
          " differ and neither is 1; reshape or expand one of them");
    }
    result[axis] = extent_a == 1 ? extent_b : extent_a;
  }
  return result;
}

index_t countable(const Shape& shape) {
  index_t product = 1;
  bool empty = false;
  for (const index_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(product, std::max<index_t>(extent, 1), &product) || product >> 59)
      return -1;
    empty = empty || extent == 0;
  }
  return empty ? 0 : product;
}

int normal_axis(const char* op, int axis, int rank) {
  if (axis < -rank || axis >= rank)
    fail(op, "axis ", axis, " given for ", rank, " axes; an axis in [", -rank, ", ", rank, ") is required");
  return axis < 0 ? axis + rank : axis;
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  out << '[';
  for (int axis = 0; axis < shape.rank(); ++axis) out << (axis ? "," : "") << shape[axis];
  return out << ']';
}

std::string to_string(const Shape& shape) { return to_text(shape); }

// ---- Storage

namespace {

constexpr std::size_t guard_bytes = 64;
constexpr unsigned char guard_pattern = 0xA5;
thread_local bool guards_on = false;
// Data of empty storages: views compute addresses from it, which null would not allow.
alignas(64) std::byte nothing[64];

}  // namespace

// Adds sentinels around the storages that this thread makes on the CPU from now on. Tests use them to see if a kernel
// wrote past its output.
void Storage::set_guards(bool on) { guards_on = on; }

Ref<Storage> Storage::create(std::size_t bytes, Device device) {
  Ref<Storage> storage(new Storage);
  storage->device_ = device;
  storage->guarded_ = guards_on && device.is_cpu();
  const std::size_t padding = storage->guarded_ ? guard_bytes : 0;
  if (bytes + padding > 0) {
    std::byte* memory = static_cast<std::byte*>(backend_of(device).memory->allocate(bytes + 2 * padding));
    if (storage->guarded_) {
      std::memset(memory, guard_pattern, guard_bytes);
      std::memset(memory + guard_bytes + bytes, guard_pattern, guard_bytes);
    }
    storage->data_ = memory + padding;
  } else {
    storage->data_ = nothing;
  }
  storage->size_ = bytes;
  return storage;
}

// Makes the storage refer to `size` bytes on the CPU that it does not own; they are read and never written. `owner` is
// released with the storage.
void Storage::borrow(std::byte* data, std::size_t size, std::shared_ptr<const void> owner) {
  if (size_ > 0 || guarded_) fail("borrow", "a storage of ", size_, " bytes given; one of none required");
  data_ = size > 0 ? data : nothing;
  size_ = size;
  owner_ = std::move(owner);
}

bool Storage::guards_intact() const {
  if (!guarded_) return true;
  const auto intact = [](const std::byte* begin) {
    return std::all_of(begin, begin + guard_bytes, [](std::byte b) { return b == std::byte{guard_pattern}; });
  };
  return intact(data_ - guard_bytes) && intact(data_ + size_);
}

void Storage::dispose() {
  const std::size_t padding = guarded_ ? guard_bytes : 0;
  if (data_ && data_ != nothing && !borrowed())
    backend_of(device_).memory->deallocate(data_ - padding, size_ + 2 * padding);
  delete this;
}

// ---- Tensor

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
