#include "examples/whence/python/arrays.h"

#include <nanobind/stl/string.h>

#include <algorithm>

#include "tensor/error.h"
#include "tensor/raw.h"

namespace nb = nanobind;

namespace whence {
namespace {

using Array = nb::ndarray<nb::ro, nb::device::cpu>;

const std::vector<std::pair<DType, nb::dlpack::dtype>>& dtypes() {
  static const std::vector<std::pair<DType, nb::dlpack::dtype>> all{{DType::f32, nb::dtype<float>()},
      {DType::f64, nb::dtype<double>()}, {DType::i32, nb::dtype<std::int32_t>()},
      {DType::i64, nb::dtype<std::int64_t>()}, {DType::boolean, nb::dtype<bool>()}};
  return all;
}

template <class Framework> nb::object handed(const Tensor& own) {
  auto* held = new Tensor(own);
  const nb::capsule owner(held, [](void* tensor) noexcept { delete static_cast<Tensor*>(tensor); });
  const auto known = std::ranges::find(dtypes(), own.dtype(), &std::pair<DType, nb::dlpack::dtype>::first);
  if (known == dtypes().end()) throw InputError("a result of ", own.dtype(), "; f32, f64, i32, i64 or bool required");
  std::vector<std::size_t> shape;
  for (const index_t extent : own.shape()) shape.push_back(static_cast<std::size_t>(extent));
  const nb::ndarray<Framework> array(
      static_cast<void*>(own.bytes()), shape.size(), shape.data(), owner, nullptr, known->second);
  return nb::cast(array);
}

}  // namespace

Tensor borrowed(const std::string& name, nb::handle given) {
  Array array;
  if (!nb::try_cast(given, array)) {
    throw InputError(name, ": ", nb::type_name(given.type()).c_str(),
        " given; a numpy array or a torch tensor on the CPU required, of f32, f64, i32, i64 or bool");
  }
  const auto known = std::ranges::find_if(dtypes(), [&](const auto& each) { return each.second == array.dtype(); });
  if (known == dtypes().end())
    throw InputError(name, ": an unsupported dtype given; f32, f64, i32, i64 or bool required");
  if (array.ndim() > max_rank)
    throw InputError(name, ": ", array.ndim(), " axes given; at most ", max_rank, " required");
  const DType dtype = known->first;
  const std::size_t size = size_of(dtype);
  if (reinterpret_cast<std::uintptr_t>(array.data()) % size != 0)
    throw InputError(name, ": numbers that are not aligned given; copy the array");
  Shape shape;
  Strides strides;
  index_t last = 0;
  bool has_none = false, goes_back = false;
  for (std::size_t axis = 0; axis < array.ndim(); ++axis) {
    shape.push_back(static_cast<index_t>(array.shape(axis)));
    strides.push_back(array.stride(axis));
    has_none = has_none || array.shape(axis) == 0;
    goes_back = goes_back || (array.stride(axis) < 0 && array.shape(axis) > 1);
    last += (static_cast<index_t>(array.shape(axis)) - 1) * array.stride(axis);
  }
  if (has_none) return Tensor::empty(shape, dtype);
  if (goes_back)
    throw InputError(
        name, ": an array with a negative stride given; make it contiguous, e.g. by numpy.ascontiguousarray");
  const std::shared_ptr<const void> owner(new Array(array), [](const void* held) {
    const nb::gil_scoped_acquire lock;  // on any thread
    delete static_cast<const Array*>(held);
  });
  const Tensor none = Tensor::empty({0}, dtype);
  auto* numbers = static_cast<std::byte*>(const_cast<void*>(static_cast<const void*>(array.data())));
  none.storage().borrow(numbers, (static_cast<std::size_t>(last) + 1) * size, owner);
  return none.view(shape, strides);
}

NamedTensors borrowed(const nb::dict& arrays) {
  NamedTensors tensors;
  for (const auto& [name, array] : arrays) {
    if (!nb::isinstance<nb::str>(name))
      throw InputError(nb::repr(name).c_str(), " given; a name that is a str required");
    tensors.emplace_back(nb::cast<std::string>(name), borrowed(nb::cast<std::string>(name), array));
  }
  return tensors;
}

nb::object Results::operator()(const Tensor& result) {
  Tensor own = raw::contiguous(result.detach());
  if (own.storage().borrowed() || !seen_.insert(own.storage().bytes()).second) own = raw::copy(own);
  return of_torch_ ? handed<nb::pytorch>(own) : handed<nb::numpy>(own);
}

}  // namespace whence
