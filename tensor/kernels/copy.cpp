// fill, copy and masked: these move numbers and compute nothing. Equal dtypes move as bits; others go through blocks of
// a type that holds both.
#include <algorithm>
#include <cstring>
#include <limits>

#include "tensor/kernels.h"
#include "tensor/kernels/rows.h"
#include "tensor/strided_loop.h"

namespace whence {
namespace {

struct Bits128 {
  std::uint64_t low, high;
};

// Calls f(Type<U>{}) for the plain type U as wide as one element.
template <class F> void visit_bits(DType dtype, const F& f) {
  switch (size_of(dtype)) {
    case 1: return f(Type<std::uint8_t>{});
    case 2: return f(Type<std::uint16_t>{});
    case 4: return f(Type<std::uint32_t>{});
    case 8: return f(Type<std::uint64_t>{});
    default: return f(Type<Bits128>{});
  }
}

// Returns the bits of `value` as an element of `dtype`.
template <class U> U bits_of(DType dtype, double value) {
  U bits{};
  visit(dtype, [&]<class T>(Type<T>) {
    const T element = convert<T>(value);
    if constexpr (sizeof(T) == sizeof(U)) std::memcpy(static_cast<void*>(&bits), &element, sizeof bits);
  });
  return bits;
}

// Copies and masks depend only on an element's width: five instances serve eight dtypes. copy_run copies one run. The
// common strides have loops of their own, which compilers turn into moves of whole registers.
template <class U> void copy_run(const U* from, index_t from_stride, U* to, index_t to_stride, index_t count) {
  if (from_stride == 1 && to_stride == 1)
    std::memcpy(static_cast<void*>(to), from, static_cast<std::size_t>(count) * sizeof(U));
  else if (to_stride == 1 && from_stride == 0)
    std::fill_n(to, count, *from);
  else if (to_stride == 1)
    for (index_t i = 0; i < count; ++i) to[i] = from[i * from_stride];
  else
    for (index_t i = 0; i < count; ++i) to[i * to_stride] = from[i * from_stride];
}

template <class U> void copy_bits(const U* in, const Strides& steps, const Tensor& to) {
  U* out = reinterpret_cast<U*>(to.bytes());
  const StridedLoop<2> runs(to.shape(), {steps, to.strides()});
  const index_t from_stride = runs.inner_stride(0), to_stride = runs.inner_stride(1);
  runs.parallel_run(2 * cpu_grain, [&](const std::array<index_t, 2>& at, index_t count) {
    copy_run(in + at[0], from_stride, out + at[1], to_stride, count);
  });
}

// W holds every value of both dtypes: int64 when `from` is an integer, float between 32 and 16 bits, else double.
template <class W> void convert_blocks(const Tensor& from, const Tensor& to) {
  using Load = void (*)(const void*, index_t, index_t, index_t, W*);
  using Store = void (*)(const W*, index_t, void*, index_t, index_t);
  // One loader per source and one storer per target, not a loop per pair: 8 + 8 small functions for each W.
  const Load load = visit(from.dtype(), []<class T>(Type<T>) -> Load {
    return [](const void* data, index_t offset, index_t stride, index_t count, W* block) {
      load_block(static_cast<const T*>(data) + offset, stride, count, block);
    };
  });
  const Store store = visit(to.dtype(), []<class T>(Type<T>) -> Store {
    return [](const W* block, index_t count, void* data, index_t offset, index_t stride) {
      store_block(block, count, static_cast<T*>(data) + offset, stride);
    };
  });
  const void* in = from.bytes();
  void* out = to.bytes();
  const StridedLoop<2> runs(to.shape(), {from.strides(), to.strides()});
  const index_t from_stride = runs.inner_stride(0), to_stride = runs.inner_stride(1);
  runs.parallel_run(cpu_grain, [&](const std::array<index_t, 2>& at, index_t count) {
    for (index_t begin = 0; begin < count; begin += block_length) {
      W block[block_length];
      const index_t n = std::min(block_length, count - begin);
      load(in, at[0] + begin * from_stride, from_stride, n, block);
      store(block, n, out, at[1] + begin * to_stride, to_stride);
    }
  });
}

// One run of y = mask ? x : value. In attention the mask is [1,1,i,j] and x is [b,h,i,j]: runs of i x j, all with
// stride 1.
template <class U>
void keep_run(const U* __restrict x, index_t x_stride, const unsigned char* __restrict mask, index_t mask_stride,
    U value, U* __restrict y, index_t count) {
  if (mask_stride == 0)
    *mask ? copy_run(x, x_stride, y, 1, count) : void(std::fill_n(y, count, value));
  else if (x_stride == 1 && mask_stride == 1)
    for (index_t i = 0; i < count; ++i) y[i] = choose(mask[i], x[i], value);
  else
    for (index_t i = 0; i < count; ++i) y[i] = mask[i * mask_stride] ? x[i * x_stride] : value;
}

}  // namespace

void Kernels::fill(const Tensor& out, double value) {
  visit_bits(out.dtype(), [&]<class U>(Type<U>) {
    const U bits = bits_of<U>(out.dtype(), value);
    copy_bits(&bits, Strides::filled(out.rank(), 0), out);
  });
}

void Kernels::copy(const Tensor& from, const Tensor& to) {
  if (from.dtype() == to.dtype())
    visit_bits(
        to.dtype(), [&]<class U>(Type<U>) { copy_bits(reinterpret_cast<const U*>(from.bytes()), from.strides(), to); });
  else if (!is_floating(from.dtype()))
    convert_blocks<std::int64_t>(from, to);
  else if (fits_float(from.dtype()) && fits_float(to.dtype()))
    convert_blocks<float>(from, to);
  else
    convert_blocks<double>(from, to);
}

void Kernels::masked(const Tensor& x, const Tensor& mask, double value, const Tensor& y) {
  visit_bits(x.dtype(), [&]<class U>(Type<U>) {
    const U* in = reinterpret_cast<const U*>(x.bytes());
    const auto* where = reinterpret_cast<const unsigned char*>(mask.data<bool>());
    U* out = reinterpret_cast<U*>(y.bytes());
    const U otherwise = bits_of<U>(x.dtype(), value);
    const StridedLoop<3> runs(y.shape(), {x.strides(), mask.strides(), y.strides()});
    const index_t x_stride = runs.inner_stride(0), mask_stride = runs.inner_stride(1);
    runs.parallel_run(cpu_grain, [&](const std::array<index_t, 3>& at, index_t count) {
      keep_run(in + at[0], x_stride, where + at[1], mask_stride, otherwise, out + at[2], count);
    });
  });
}

}  // namespace whence
