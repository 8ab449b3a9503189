// Shared by all launches of tiled attention: operands as kernels read them, types, and gradients of shared heads.
#pragma once

#include <algorithm>

#include "cuda/kernels/kernels.h"
#include "cuda/kernels/tiles/head_rows.h"
#include "tensor/raw.h"

namespace whence::gpu {

inline int within_int(index_t n) { return static_cast<int>(std::clamp<index_t>(n, -(1 << 29), 1 << 29)); }

// Numbers that a copy of a row takes, matrix_row: 16 bytes; 64 for the emulator's f64.
inline index_t pack_of(DType dtype) {
  return dtype == DType::f64 ? matrix_row<double> : 16 / static_cast<index_t>(size_of(dtype));
}

// True if the rows of x [b h t d] are contiguous and begin at 16 bytes.
inline bool rows_in_packs(const Tensor& x) {
  const index_t pack = pack_of(x.dtype());
  bool fits = (x.size(3) == 1 || x.strides()[3] == 1) && reinterpret_cast<std::uintptr_t>(x.bytes()) % 16 == 0;
  for (int axis = 0; axis < 3; ++axis) fits = fits && (x.size(axis) == 1 || x.strides()[axis] % pack == 0);
  return fits;
}

// Returns x with rows that kernels may copy in packs of 16 bytes: itself, or a copy padded with zeros.
inline Tensor in_packs(const Tensor& x) {
  const index_t pack = pack_of(x.dtype()), d = x.size(3), padded = (d + pack - 1) / pack * pack;
  if (padded == d && rows_in_packs(x)) return x;
  const Tensor wide = Tensor::zeros({x.size(0), x.size(1), x.size(2), padded}, x.dtype(), x.device());
  raw::copy_into(x, raw::slice(wide, 3, 0, d));
  return wide;
}

// Calls f(Type<T>). f64 is for the emulator alone, which tests the kernels' code with it.
template <class F> void visit_number(DType dtype, const F& f) {
#ifndef __CUDACC__
  if (dtype == DType::f64) return f(Type<double>{});
#endif
  dtype == DType::f32 ? f(Type<float>{}) : dtype == DType::f16 ? f(Type<Float16>{}) : f(Type<BFloat16>{});
}

// A small operand or its gradient: numbers of the model's type or of sums.
template <class T> struct SmallOperand {
  using C = compute_t<T>;
  Global<T> narrow = nullptr;
  Global<C> wide = nullptr;
  static SmallOperand of(const Tensor& x) {
    if (!x.defined()) return {};
    if (x.dtype() == dtype_of<T>) return {global<T>(x), nullptr};
    return {nullptr, global<C>(x)};
  }
  WHENCE_HD explicit operator bool() const { return narrow || wide; }
  WHENCE_HD Number<C> get(index_t i) const { return narrow ? load<C>(narrow, i) : load<C>(wide, i); }
  WHENCE_HD void set(index_t i, Number<C> x) const { narrow ? store(narrow, i, x) : store(wide, i, x); }
};

template <class T> HeadRows<T> head_rows(const Tensor& x, index_t heads) {
  if (!x.defined()) return {};
  return {global<T>(x), x.strides()[0], x.strides()[1], x.strides()[2], static_cast<int>(heads / x.size(1)),
      rows_in_packs(x)};
}

// Returns the first key that is present in each sequence, and the one after the last, [b 2]; undefined without padding.
inline Tensor present_range(const Tensor& present) {
  if (!present.defined()) return {};
  const Tensor range = Tensor::empty({present.size(0), 2}, DType::i32, present.device());
  launch_kernel(PresentRange{global<const bool>(present), global<std::int32_t>(range), within_int(present.size(1))},
      {.blocks = present.size(0)});
  return range;
}

// Returns the target of sums for a gradient: the gradient itself if it has their type. put_sums then rounds others.
inline Tensor sums_for(const Tensor& gradient, DType of_sums) {
  if (!gradient.defined() || (gradient.dtype() == of_sums && gradient.is_contiguous())) return gradient;
  return Tensor::empty(gradient.shape(), of_sums, gradient.device());
}
inline void put_sums(const Tensor& sums, const Tensor& gradient) {
  if (sums.identity() != gradient.identity()) kernels(gradient).copy(sums, gradient);
}

// Gradients of key heads that query heads share, or of sums in parts: unrounded for each of these heads, and their
// sums.
class SharedHeads {
 public:
  SharedHeads(const Tensor& to, index_t heads, bool in_parts = false) : to_(to) {
    if (to.defined() && (to.size(1) < heads || in_parts))
      wide_ = Tensor::empty({to.size(0), heads, to.size(2), to.size(3)}, compute_dtype(to.dtype()), to.device());
  }
  const Tensor& wide() const { return wide_; }
  Tensor narrow() const { return wide_.defined() ? Tensor() : to_; }
  void sum() const {
    if (!wide_.defined()) return;
    Tensor total = wide_;
    if (to_.size(1) < wide_.size(1)) {
      total = Tensor::like(wide_, {to_.size(0), to_.size(1), 1, to_.size(2), to_.size(3)});
      const Tensor by_group = raw::reshape(wide_, {to_.size(0), to_.size(1), -1, to_.size(2), to_.size(3)});
      kernels(to_).reduce(Reduction::sum, by_group, total);
    }
    kernels(to_).copy(raw::reshape(total, to_.shape()), to_);
  }

 private:
  Tensor to_, wide_;
};

}  // namespace whence::gpu
