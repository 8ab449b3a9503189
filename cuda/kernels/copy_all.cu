// Several tensors in one launch: the weights of what is multiplied at once, and its heads on their way together.
#include <algorithm>

#include "cuda/kernels/kernels.h"
#include "cuda/vocabulary/launch_kernel.h"
#include "cuda/vocabulary/packs.h"
#include "tensor/strided_index.h"

namespace whence::gpu {
namespace {

// Rows of each part are contiguous on both sides; parts may differ in everything else.
template <class T, int pack> struct MoveAllRows {
  static constexpr const char* name = "copy of several, rows in packs";
  static constexpr int threads = 256, most = 8;
  struct Part {
    StridedIndex<2> index;  // of packs
    Global<const T> from;
    Global<T> to;
    index_t first_block;
  };
  Part part[most];
  int used;

  WHENCE_HD void operator()(Thread& t) const {
    int mine = 0;
    for (int k = 1; k < used; ++k) mine = part[k].first_block <= t.block() ? k : mine;
    const Part& p = part[mine];
    const index_t i = (t.block() - p.first_block) * threads + t.index();
    if (i >= p.index.count()) return;
    const auto at = p.index(i);
    store_pack<pack>(p.to, at[1], load_pack<pack>(p.from, at[0]));
  }
};

// False, with nothing written, where a part has no packs.
template <class T> bool move_all(std::span<const Tensor> from, std::span<const Tensor> to) {
  constexpr int pack = pack_size<T>;
  using Body = MoveAllRows<T, pack>;
  if (from.size() > Body::most) return false;
  const StridedIndex<2> none({}, {{}, {}});
  const typename Body::Part unused{none, {}, {}, 0};
  Body body{{unused, unused, unused, unused, unused, unused, unused, unused}, 0};
  index_t blocks = 0;
  for (std::size_t k = 0; k < from.size(); ++k) {
    if (from[k].numel() == 0) continue;
    const StridedIndex<2> index(to[k].shape(), {from[k].strides(), to[k].strides()});
    const bool fits = index.has_packs(pack) && index.inner_step(0) == 1 && index.inner_step(1) == 1 &&
                      begins_with_pack(from[k], pack) && begins_with_pack(to[k], pack);
    if (!fits) return false;
    body.part[body.used] = {index.in_packs(pack), global<const T>(from[k]), global<T>(to[k]), blocks};
    blocks += blocks_for(body.part[body.used++].index.count(), Body::threads);
  }
  launch_kernel(body, {.blocks = blocks});
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
  if (!done) Kernels::copy_all(from, to);
}

}  // namespace whence
