// Copies into another dtype: in packs between contiguous floating tensors, otherwise element by element. Not in
// copy.cu, as they are in tensor/kernels/copy.cpp: its kernels for pairs of dtypes compile as long as all the others there.
#include "cuda/kernels/kernels.h"
#include "cuda/vocabulary/launch_kernel.h"
#include "cuda/vocabulary/packs.h"
#include "tensor/launch.h"
#include "tensor/strided_index.h"

namespace whence {
namespace {

using gpu::Global, gpu::Pack, gpu::Thread;

template <class W> WHENCE_HD W load_as(DType dtype, const void* from, index_t i) {
  return visit(dtype, [&]<class T>(Type<T>) { return convert<W>(compute_t<T>(static_cast<const T*>(from)[i])); });
}

template <class W> WHENCE_HD void store_as(DType dtype, void* to, index_t i, W value) {
  visit(dtype, [&]<class T>(Type<T>) { static_cast<T*>(to)[i] = convert<T>(value); });
}

// Different dtypes, switched inside the kernel: one kernel per W instead of 56. W holds every value of both dtypes.
template <class W> struct Convert {
  StridedIndex<2> index;
  const void* from;
  void* to;
  DType from_dtype, to_dtype;
  WHENCE_HD void operator()(index_t i) const {
    const auto at = index(i);
    store_as(to_dtype, to, at[1], load_as<W>(from_dtype, from, at[0]));
  }
};

template <class W> void convert_all(const Tensor& from, const Tensor& to) {
  const Convert<W> body{
      {to.shape(), {from.strides(), to.strides()}}, from.bytes(), to.bytes(), from.dtype(), to.dtype()};
  launch("copy", to.device(), to.numel(), body);
}

// Both contiguous: each access has as many neighbours as the wider dtype has in 16 bytes.
// Per element: 1 number read, 1 written, 1 rounding: memory.
template <class From, class To> struct CastPacks {
  static constexpr const char* name = "cast";
  static constexpr int threads = 256, pack = std::min(gpu::pack_size<From>, gpu::pack_size<To>);
  Global<const From> from;
  Global<To> to;
  index_t count;
  WHENCE_HD void operator()(Thread& t) const {
    const index_t i = (t.block() * threads + t.index()) * pack;
    if (i + pack <= count) {
      const auto given = gpu::load_pack<pack>(from, i);
      Pack<To, pack> rounded;
      for (int k = 0; k < pack; ++k) rounded.of[k] = one(given.of[k]);
      return gpu::store_pack<pack>(to, i, rounded);
    }
    for (index_t k = i; k < count; ++k) to[k] = one(from[k]);
  }
  WHENCE_HD static To one(From value) { return convert<To>(static_cast<compute_t<From>>(value)); }
};

// Calls f(Type<T>{}) for the four floating dtypes; returns false for all others.
template <class F> bool visit_number(DType dtype, const F& f) {
  return visit(dtype, [&]<class T>(Type<T> type) {
    if constexpr (std::is_integral_v<T> || std::is_same_v<T, Dual>)
      return false;
    else
      return f(type);
  });
}

template <class From, class To> bool cast_packs(const Tensor& from, const Tensor& to) {
  using Kernel = CastPacks<From, To>;
  if (!gpu::begins_with_pack(from, Kernel::pack) || !gpu::begins_with_pack(to, Kernel::pack)) return false;
  gpu::launch_kernel(Kernel{gpu::global<const From>(from), gpu::global<To>(to), to.numel()},
      {.blocks = gpu::blocks_for(to.numel(), Kernel::threads * Kernel::pack)});
  return true;
}

bool cast_in_packs(const Tensor& from, const Tensor& to) {
  if (!from.is_contiguous() || !to.is_contiguous()) return false;
  return visit_number(from.dtype(), [&]<class From>(Type<From>) {
    return visit_number(to.dtype(), [&]<class To>(Type<To>) {
      if constexpr (std::is_same_v<From, To>)
        return false;
      else
        return cast_packs<From, To>(from, to);
    });
  });
}

}  // namespace

void CudaKernels::cast(const Tensor& from, const Tensor& to) {
  if (cast_in_packs(from, to)) return;
  if (!is_floating(from.dtype())) return convert_all<std::int64_t>(from, to);
  fits_float(from.dtype()) && fits_float(to.dtype()) ? convert_all<float>(from, to) : convert_all<double>(from, to);
}

}  // namespace whence
