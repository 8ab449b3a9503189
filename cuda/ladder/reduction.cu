// The sum of each row: s = sum_j x_j, by a block of 256 threads per row. whence's own kernel: kernels/reduce.cu.
#include "cuda/ladder/ladder.h"
#include "cuda/vocabulary/rows.h"
#include "tensor/kernels.h"
#include "tensor/random.h"
#include "tensor/raw.h"

namespace whence::gpu::ladder {
namespace {

// Joins the block's 256 partial sums. The first three rungs differ in this.

// 1. A tree in shared memory that joins neighbours first: thread i adds at 2 i s, for s = 1, 2, 4, ... The threads of a
// warp then access words 2 s apart, in the same few of the 32 banks, which serve one word after another.
struct Neighbours {
  static constexpr const char* name = "a tree of neighbours";
  static constexpr std::size_t shared_bytes = shared_bytes_for<float>(256);
  static WHENCE_HD Number<float> joined(Thread& t, Number<float> sum) {
    const Shared<float> part = t.shared<float>(256);
    store(part, t.index(), sum);
    t.sync();
    for (int s = 1; s < 256; s *= 2) {
      const int i = 2 * s * t.index();
      if (i < 256) store(part, i, load<float>(part, i) + load<float>(part, i + s));
      t.sync();
    }
    return load<float>(part, 0);
  }
};

// 2. The tree that joins halves: thread i adds the number s further, for s = 128, 64, ... Neighbours access neighbours,
// each in a different bank.
struct Halves {
  static constexpr const char* name = "a tree of halves";
  static constexpr std::size_t shared_bytes = shared_bytes_for<float>(256);
  static WHENCE_HD Number<float> joined(Thread& t, Number<float> sum) {
    const Shared<float> part = t.shared<float>(256);
    store(part, t.index(), sum);
    t.sync();
    for (int s = 128; s > 0; s /= 2) {
      if (t.index() < s) store(part, t.index(), load<float>(part, t.index()) + load<float>(part, t.index() + s));
      t.sync();
    }
    return load<float>(part, 0);
  }
};

// 3. Shuffles: lanes exchange registers, without memory or barriers. Only the eight warps' results go through shared
// memory, with one barrier.
struct Shuffles {
  static constexpr const char* name = "shuffles";
  static constexpr std::size_t shared_bytes = block_reduce_bytes<256, Number<float>>;
  static WHENCE_HD Number<float> joined(Thread& t, Number<float> sum) { return block_reduce<256>(t, sum, Plus{}); }
};

// The part before the joining: each thread adds every 256th number of the row, or every 256th pack.
template <class Way, int pack> struct SumRows {
  // 4. Packs: 16 bytes per access, a quarter of the requests.
  static constexpr const char* name = pack == 1 ? Way::name : "shuffles, packs of 4";
  static constexpr int threads = 256;
  Global<const float> x;
  Global<float> sums;
  index_t width;
  WHENCE_HD void operator()(Thread& t) const {
    Number<float> sum = 0.0f;
    for (index_t j = pack * t.index(); j < width; j += pack * threads) {
      const auto numbers = load_numbers<float, pack>(x, t.block() * width + j);
      for (int k = 0; k < pack; ++k) sum += numbers.of[k];
    }
    sum = Way::joined(t, sum);
    if (t.index() == 0) store(sums, t.block(), sum);
  }
};

template <class Way, int pack> Rung rung(std::optional<Count> fewer) {
  using Body = SumRows<Way, pack>;
  return {Body::name, fewer, pack > 1, [](const Tensors& in, const Tensor& sums) {
            launch_kernel(Body{global<const float>(in[0]), global<float>(sums), in[0].size(1)},
                {.blocks = in[0].size(0), .shared_bytes = Way::shared_bytes});
          }};
}

}  // namespace

Ladder reduction() {
  return {"reduction", "s = sum_j x_j   [rows, width]", {16, 4096}, {16384, 4096},
      [](const Shape& sizes) { return Tensors{Tensor::uniform(sizes, 0, 1, Stream(1, "x"))}; },
      [](const Tensors& in) { return raw::reduce(Reduction::sum, in[0], {-1}, false); },
      {rung<Neighbours, 1>({}), rung<Halves, 1>(Count::conflicts), rung<Shuffles, 1>(Count::barriers),
          rung<Shuffles, 4>(Count::requests)}};
}

}  // namespace whence::gpu::ladder
