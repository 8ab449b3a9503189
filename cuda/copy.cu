// fill, copy and keep: what moves numbers without computing.
#include "cuda/kernels.h"
#include "cuda/strided_index.h"
#include "tensor/convert.h"
#include "tensor/launch.h"

namespace whence {
namespace {

template <class T>
struct Fill {
  StridedIndex<1> index;
  T* out;
  T value;
  WHENCE_HD void operator()(index_t i) const { out[index(i)[0]] = value; }
};

// Equal dtypes: U is a type as wide as an element.
template <class U>
struct Move {
  StridedIndex<2> index;
  const U* from;
  U* to;
  WHENCE_HD void operator()(index_t i) const {
    const auto at = index(i);
    to[at[1]] = from[at[0]];
  }
};

template <class W>
WHENCE_HD W load_as(DType dtype, const void* from, index_t i) {
  switch (dtype) {
    case DType::f16: return convert<W>(static_cast<float>(static_cast<const Float16*>(from)[i]));
    case DType::bf16: return convert<W>(static_cast<float>(static_cast<const BFloat16*>(from)[i]));
    case DType::f32: return convert<W>(static_cast<const float*>(from)[i]);
    case DType::f64: return convert<W>(static_cast<const double*>(from)[i]);
    case DType::i32: return convert<W>(static_cast<const std::int32_t*>(from)[i]);
    case DType::i64: return convert<W>(static_cast<const std::int64_t*>(from)[i]);
    case DType::boolean: return convert<W>(static_cast<std::int32_t>(static_cast<const bool*>(from)[i]));
    default: return convert<W>(static_cast<const Dual*>(from)[i]);
  }
}

template <class W>
WHENCE_HD void store_as(DType dtype, void* to, index_t i, W value) {
  switch (dtype) {
    case DType::f16: static_cast<Float16*>(to)[i] = convert<Float16>(value); break;
    case DType::bf16: static_cast<BFloat16*>(to)[i] = convert<BFloat16>(value); break;
    case DType::f32: static_cast<float*>(to)[i] = convert<float>(value); break;
    case DType::f64: static_cast<double*>(to)[i] = convert<double>(value); break;
    case DType::i32: static_cast<std::int32_t*>(to)[i] = convert<std::int32_t>(value); break;
    case DType::i64: static_cast<std::int64_t*>(to)[i] = convert<std::int64_t>(value); break;
    case DType::boolean: static_cast<bool*>(to)[i] = convert<bool>(value); break;
    default: static_cast<Dual*>(to)[i] = convert<Dual>(value);
  }
}

// Different dtypes, switched inside the kernel: one kernel per W instead of 56. W holds every value of both dtypes.
template <class W>
struct Convert {
  StridedIndex<2> index;
  const void* from;
  void* to;
  DType from_dtype, to_dtype;
  WHENCE_HD void operator()(index_t i) const {
    const auto at = index(i);
    store_as(to_dtype, to, at[1], load_as<W>(from_dtype, from, at[0]));
  }
};

template <class T>
struct Keep {
  StridedIndex<2> index;
  const T* x;
  const bool* mask;
  T value;
  T* y;
  WHENCE_HD void operator()(index_t i) const {
    const auto at = index(i);
    y[i] = mask[at[1]] ? x[at[0]] : value;
  }
};

template <class U>
void move(const Tensor& from, const Tensor& to) {
  const Move<U> body{
      {to.shape(), {from.strides(), to.strides()}}, reinterpret_cast<const U*>(from.bytes()), reinterpret_cast<U*>(to.bytes())};
  launch("copy", to.device(), to.numel(), body);
}

template <class W>
void convert_all(const Tensor& from, const Tensor& to) {
  const Convert<W> body{{to.shape(), {from.strides(), to.strides()}}, from.bytes(), to.bytes(), from.dtype(), to.dtype()};
  launch("copy", to.device(), to.numel(), body);
}

constexpr bool fits_float(DType dtype) { return dtype <= DType::f32; }

}  // namespace

void CudaKernels::fill(const Tensor& out, double value) {
  visit(out.dtype(), [&]<class T>(Type<T>) {
    launch("fill", out.device(), out.numel(), Fill<T>{{out.shape(), {out.strides()}}, out.data<T>(), convert<T>(value)});
  });
}

void CudaKernels::copy(const Tensor& from, const Tensor& to) {
  if (from.dtype() != to.dtype()) {
    if (!is_floating(from.dtype())) return convert_all<std::int64_t>(from, to);
    return fits_float(from.dtype()) && fits_float(to.dtype()) ? convert_all<float>(from, to) : convert_all<double>(from, to);
  }
  switch (size_of(to.dtype())) {
    case 1: return move<std::uint8_t>(from, to);
    case 2: return move<std::uint16_t>(from, to);
    case 4: return move<std::uint32_t>(from, to);
    case 8: return move<std::uint64_t>(from, to);
    default: return move<Dual>(from, to);
  }
}

void CudaKernels::keep(const Tensor& x, const Tensor& mask, double value, const Tensor& y) {
  visit_floating("keep", x.dtype(), [&]<class T>(Type<T>) {
    const Keep<T> body{{y.shape(), {x.strides(), mask.strides()}}, x.data<T>(), mask.data<bool>(), convert<T>(value), y.data<T>()};
    launch("keep", y.device(), y.numel(), body);
  });
}

}  // namespace whence
