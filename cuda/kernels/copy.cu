// fill, copy and masked: what moves numbers without computing.
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/transpose.h"
#include "cuda/vocabulary/launch_kernel.h"
#include "cuda/vocabulary/packs.h"
#include "tensor/device/launch.h"
#include "tensor/strided_index.h"

namespace whence {
namespace {

using gpu::Global, gpu::Pack, gpu::Thread;

constexpr int copy_threads = 256;

template <class T> struct Fill {
  StridedIndex<1> index;
  T* out;
  T value;
  WHENCE_HD void operator()(index_t i) const { out[index(i)[0]] = value; }
};

// Per element: 1 number written, no operation: memory.
template <class T> struct FillPacks {
  static constexpr const char* name = "fill";
  static constexpr int threads = copy_threads, pack = gpu::pack_size<T>;
  Global<T> out;
  index_t count;
  T value;
  WHENCE_HD void operator()(Thread& t) const {
    const index_t i = (t.block() * threads + t.index()) * pack;
    if (i + pack <= count) {
      Pack<T, pack> all;
      for (int k = 0; k < pack; ++k) all.of[k] = value;
      return gpu::store_pack<pack>(out, i, all);
    }
    for (index_t k = i; k < count; ++k) out[k] = value;
  }
};

// Equal dtypes.
template <class T> struct Move {
  StridedIndex<2> index;
  const T* from;
  T* to;
  WHENCE_HD void operator()(index_t i) const {
    const auto at = index(i);
    to[at[1]] = from[at[0]];
  }
};

// Rows that are contiguous on both sides: the heads of [b t h d] on their way to [b h t d].
// Per element: 1 number read, 1 written, no operation: memory.
template <class T, int pack> struct MoveRows {
  static constexpr const char* name = "copy, rows in packs";
  static constexpr int threads = copy_threads;
  StridedIndex<2> index;  // of packs
  Global<const T> from;
  Global<T> to;
  WHENCE_HD void operator()(Thread& t) const {
    const index_t i = t.block() * threads + t.index();
    if (i >= index.count()) return;
    const auto at = index(i);
    gpu::store_pack<pack>(to, at[1], gpu::load_pack<pack>(from, at[0]));
  }
};

// y = mask ? x : value
template <class T> struct Masked {
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

// Per element: 1 number and 1 byte of the mask read, 1 number written, 1 choice: memory.
template <class T> struct MaskedRows {
  static constexpr const char* name = "masked";
  static constexpr int threads = copy_threads, pack = gpu::pack_size<T>;
  StridedIndex<2> index;  // of packs
  Global<const T> x;
  Global<const bool> mask;
  bool one_mask;  // along a row
  T value;
  Global<T> y;
  WHENCE_HD void operator()(Thread& t) const {
    const index_t i = t.block() * threads + t.index();
    if (i >= index.count()) return;
    const auto at = index(i);
    auto numbers = gpu::load_pack<pack>(x, at[0]);
    if (one_mask) {
      if (!mask[at[1]]) fill(numbers);
    } else {
      const auto kept = gpu::load_pack<pack>(mask, at[1]);
      for (int k = 0; k < pack; ++k) numbers.of[k] = kept.of[k] ? numbers.of[k] : value;
    }
    gpu::store_pack<pack>(y, i * pack, numbers);
  }
  WHENCE_HD void fill(Pack<T, pack>& numbers) const {
    for (int k = 0; k < pack; ++k) numbers.of[k] = value;
  }
};

template <class T, int pack> bool move_rows(const StridedIndex<2>& index, const Tensor& from, const Tensor& to) {
  const bool fit = index.has_packs(pack) && index.inner_step(0) == 1 && index.inner_step(1) == 1 &&
                   gpu::begins_with_pack(from, pack) && gpu::begins_with_pack(to, pack);
  if (!fit) return false;
  const MoveRows<T, pack> kernel{index.in_packs(pack), gpu::global<const T>(from), gpu::global<T>(to)};
  gpu::launch_kernel(kernel, {.blocks = gpu::blocks_for(kernel.index.count(), copy_threads)});
  return true;
}

// By the widest packs that fit; through a tile where the axes are turned; else one by one.
template <class T> void move(const Tensor& from, const Tensor& to) {
  const StridedIndex<2> index(to.shape(), {from.strides(), to.strides()});
  if constexpr (gpu::pack_size<T> > 1) {
    if (move_rows<T, gpu::pack_size<T>>(index, from, to)) return;
  }
  if constexpr (gpu::pack_size<T> > 4) {
    if (move_rows<T, gpu::pack_size<T> / 4>(index, from, to)) return;
  }
  if (gpu::transpose<T>(from, to)) return;
  launch("copy", to.device(), to.numel(), Move<T>{index, from.data<T>(), to.data<T>()});
}

}  // namespace

void CudaKernels::fill(const Tensor& out, double value) {
  visit(out.dtype(), [&]<class T>(Type<T>) {
    constexpr int pack = gpu::pack_size<T>;
    if (!out.is_contiguous() || !gpu::begins_with_pack(out, pack)) {
      return launch(
          "fill", out.device(), out.numel(), Fill<T>{{out.shape(), {out.strides()}}, out.data<T>(), convert<T>(value)});
    }
    gpu::launch_kernel(FillPacks<T>{gpu::global<T>(out), out.numel(), convert<T>(value)},
        {.blocks = gpu::blocks_for(out.numel(), copy_threads * pack)});
  });
}

void CudaKernels::copy(const Tensor& from, const Tensor& to) {
  if (to.numel() == 0) return;
  if (from.dtype() != to.dtype()) return cast(from, to);
  visit(to.dtype(), [&]<class T>(Type<T>) { move<T>(from, to); });
}

void CudaKernels::masked(const Tensor& x, const Tensor& mask, double value, const Tensor& y) {
  visit_floating("masked", x.dtype(), [&]<class T>(Type<T>) {
    const StridedIndex<2> index(y.shape(), {x.strides(), mask.strides()});
    constexpr int pack = gpu::pack_size<T>;
    if constexpr (pack > 1) {
      const bool one_mask = index.inner_step(1) == 0;
      if (index.has_packs(pack) && index.inner_step(0) == 1 && gpu::begins_with_pack(x, pack) &&
          gpu::begins_with_pack(y, pack) && (one_mask || gpu::begins_with_pack(mask, pack))) {
        const MaskedRows<T> kernel{index.in_packs(pack), gpu::global<const T>(x), gpu::global<const bool>(mask),
            one_mask, convert<T>(value), gpu::global<T>(y)};
        return gpu::launch_kernel(kernel, {.blocks = gpu::blocks_for(kernel.index.count(), copy_threads)});
      }
    }
    launch("masked", y.device(), y.numel(),
        Masked<T>{index, x.data<T>(), mask.data<bool>(), convert<T>(value), y.data<T>()});
  });
}

}  // namespace whence
