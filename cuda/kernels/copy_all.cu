// Several tensors in one launch: the weights of what is multiplied at once, and its heads on their way together.
#include <algorithm>

#include "cuda/kernels/kernels.h"
#include "cuda/vocabulary/many_tensors.h"
#include "cuda/vocabulary/packs.h"
#include "tensor/strided_index.h"

namespace whence::gpu {
namespace {

template <class T> struct MovedTensor {
  StridedIndex<2> index;  // of packs
  Global<const T> from;
  Global<T> to;
  index_t count, first_chunk;  // packs; a chunk is a block's
};

// Rows of each tensor are contiguous on both sides; tensors may differ in everything else.
// Per element: 1 number read, 1 written, no operation: memory.
template <class T, int pack> struct MoveAllRows {
  static constexpr const char* name = "copy of several, rows in packs";
  static constexpr int threads = 256;
  ManyTensors<MovedTensor<T>, 8> all;

  WHENCE_HD void operator()(Thread& t) const {
    const MovedTensor<T>& mine = all.entry[all.of_chunk(t.block())];
    const index_t i = (t.block() - mine.first_chunk) * threads + t.index();
    if (i >= mine.count) return;
    const auto at = mine.index(i);
    store_pack<pack>(mine.to, at[1], load_pack<pack>(mine.from, at[0]));
  }
};

// False, with nothing written, where a tensor has no packs.
template <class T> bool move_all(std::span<const Tensor> from, std::span<const Tensor> to) {
  constexpr int pack = pack_size<T>;
  MoveAllRows<T, pack> kernel;
  for (std::size_t k = 0; k < from.size(); ++k) {
    if (from[k].numel() == 0) continue;
    const StridedIndex<2> index(to[k].shape(), {from[k].strides(), to[k].strides()});
    const bool fits = index.has_packs(pack) && index.inner_step(0) == 1 && index.inner_step(1) == 1 &&
                      begins_with_pack(from[k], pack) && begins_with_pack(to[k], pack);
    if (!fits || kernel.all.full()) return false;
    const StridedIndex<2> packs = index.in_packs(pack);
    kernel.all.add({packs, global<const T>(from[k]), global<T>(to[k]), packs.count(), 0}, kernel.threads);
  }
  launch_kernel(kernel, {.blocks = kernel.all.chunks});
  return true;
}

}  // namespace
}  // namespace whence::gpu

namespace whence {

void CudaKernels::copy_all(std::span<const Tensor> from, std::span<const Tensor> to) {
  const auto as_first = [&](const Tensor& x) { return x.dtype() == to[0].dtype(); };
  bool done = from.empty();
  if (!done && std::all_of(from.begin(), from.end(), as_first) && std::all_of(to.begin(), to.end(), as_first))
    visit(to[0].dtype(), [&]<class T>(Type<T>) { done = gpu::move_all<T>(from, to); });
  if (!done) JoinedKernels::copy_all(from, to);
}

}  // namespace whence
