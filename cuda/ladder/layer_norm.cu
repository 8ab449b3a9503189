// Layer norm: y_j = (x_j - mean) / sqrt(var + epsilon) w_j + b_j. whence's own kernel: kernels/norm.cu.
#include "cuda/ladder/ladder.h"
#include "cuda/vocabulary/rows.h"
#include "tensor/kernels.h"
#include "tensor/math.h"
#include "tensor/random.h"

namespace whence::gpu::ladder {
namespace {

constexpr int warps = 4;
constexpr float epsilon = 1e-5f;

struct Arguments {
  Global<const float> x, weight, bias;
  Global<float> y;
  index_t rows, width;
  float share;  // 1 / width
};

// 1. One thread does one row: the mean, the squares of differences from it, the results. Neighbouring lanes read one
// row apart.
struct ThreadPerRow {
  static constexpr const char* name = "a thread per row";
  static constexpr int threads = 32 * warps;
  static constexpr std::size_t shared_bytes = 0;
  Arguments of;
  WHENCE_HD void operator()(Thread& t) const {
    const index_t row = t.block() * threads + t.index(), begin = row * of.width;
    if (row >= of.rows) return;
    Number<float> mean = 0.0f, spread = 0.0f;
    for (index_t j = 0; j < of.width; ++j) mean += load<float>(of.x, begin + j) * of.share;
    for (index_t j = 0; j < of.width; ++j) {
      const Number<float> d = load<float>(of.x, begin + j) - mean;
      spread += d * d;
    }
    const Number<float> scale = 1.0f / math::sqrt(spread * of.share + epsilon);
    for (index_t j = 0; j < of.width; ++j)
      store(of.y, begin + j,
          (load<float>(of.x, begin + j) - mean) * scale * load<float>(of.weight, j) + load<float>(of.bias, j));
  }
};

// 2. A block does a row: neighbours read neighbours. Its four warps meet twice, at a barrier each, in block_reduce.
struct BlockPerRow {
  static constexpr const char* name = "a block per row";
  static constexpr int threads = 32 * warps;
  static constexpr std::size_t shared_bytes = 2 * block_reduce_bytes<threads, Number<float>>;
  Arguments of;
  WHENCE_HD void operator()(Thread& t) const {
    const index_t begin = t.block() * of.width;
    Number<float> total = 0.0f, spread = 0.0f;
    for (index_t j = t.index(); j < of.width; j += threads) total += load<float>(of.x, begin + j);
    const Number<float> mean = block_reduce<threads>(t, total, Plus{}) * of.share;
    for (index_t j = t.index(); j < of.width; j += threads) {
      const Number<float> d = load<float>(of.x, begin + j) - mean;
      spread += d * d;
    }
    const Number<float> scale = 1.0f / math::sqrt(block_reduce<threads>(t, spread, Plus{}) * of.share + epsilon);
    for (index_t j = t.index(); j < of.width; j += threads)
      store(of.y, begin + j,
          (load<float>(of.x, begin + j) - mean) * scale * load<float>(of.weight, j) + load<float>(of.bias, j));
  }
};

// 3. A warp does a row: no barrier, and the block works on four rows instead of one.
struct WarpPerRow {
  static constexpr const char* name = "a warp per row";
  static constexpr int threads = 32 * warps;
  static constexpr std::size_t shared_bytes = 0;
  Arguments of;
  WHENCE_HD void operator()(Thread& t) const {
    const index_t row = t.block() * warps + t.warp(), begin = row * of.width;
    if (row >= of.rows) return;
    Number<float> total = 0.0f, spread = 0.0f;
    for (index_t j = t.lane(); j < of.width; j += 32) total += load<float>(of.x, begin + j);
    const Number<float> mean = warp_reduce(t, total, Plus{}) * of.share;
    for (index_t j = t.lane(); j < of.width; j += 32) {
      const Number<float> d = load<float>(of.x, begin + j) - mean;
      spread += d * d;
    }
    const Number<float> scale = 1.0f / math::sqrt(warp_reduce(t, spread, Plus{}) * of.share + epsilon);
    for (index_t j = t.lane(); j < of.width; j += 32)
      store(of.y, begin + j,
          (load<float>(of.x, begin + j) - mean) * scale * load<float>(of.weight, j) + load<float>(of.bias, j));
  }
};

// 4. Held in registers, in packs of 4: the row is read once instead of three times, in a quarter of the requests.
struct Held {
  static constexpr const char* name = "held, in packs of 4";
  static constexpr int threads = 32 * warps, packs = 8;
  static constexpr std::size_t shared_bytes = 0;
  Arguments of;  // REQUIRES: width <= 1024
  WHENCE_HD void operator()(Thread& t) const {
    const index_t row = t.block() * warps + t.warp(), begin = row * of.width, first = 4 * t.lane();
    if (row >= of.rows) return;
    Numbers<float, 4> held[packs];
    Number<float> total = 0.0f, spread = 0.0f;
    for (int p = 0; p < packs; ++p) {
      if (first + 128 * p >= of.width) continue;
      held[p] = load_numbers<float, 4>(of.x, begin + first + 128 * p);
      for (int k = 0; k < 4; ++k) total += held[p].of[k];
    }
    const Number<float> mean = warp_reduce(t, total, Plus{}) * of.share;
    for (int p = 0; p < packs; ++p) {
      if (first + 128 * p >= of.width) continue;
      for (int k = 0; k < 4; ++k) held[p].of[k] = held[p].of[k] - mean, spread += held[p].of[k] * held[p].of[k];
    }
    const Number<float> scale = 1.0f / math::sqrt(warp_reduce(t, spread, Plus{}) * of.share + epsilon);
    for (int p = 0; p < packs; ++p) {
      const index_t j = first + 128 * p;
      if (j >= of.width) continue;
      const auto gain = load_numbers<float, 4>(of.weight, j), shift = load_numbers<float, 4>(of.bias, j);
      for (int k = 0; k < 4; ++k) held[p].of[k] = held[p].of[k] * scale * gain.of[k] + shift.of[k];
      store_numbers(of.y, begin + j, held[p]);
    }
  }
};

template <class Body> Rung rung(std::optional<Count> fewer, index_t rows_per_block, bool packs = false) {
  return {Body::name, fewer, packs, [rows_per_block](const Tensors& in, const Tensor& y) {
            const index_t rows = y.size(0), width = y.size(1);
            launch_kernel(Body{{global<const float>(in[0]), global<const float>(in[1]), global<const float>(in[2]),
                              global<float>(y), rows, width, 1.0f / static_cast<float>(width)}},
                {.blocks = blocks_for(rows, rows_per_block), .shared_bytes = Body::shared_bytes});
          }};
}

}  // namespace

Ladder layer_norm() {
  return {"layer norm", "y_j = (x_j - mean) / sqrt(var + epsilon) w_j + b_j   [rows, width]", {64, 768}, {32768, 768},
      [](const Shape& sizes) {
        return Tensors{Tensor::normal(sizes, 0, 1, Stream(1, "x")),
            Tensor::normal({sizes[1]}, 0, 1, Stream(1, "weight")), Tensor::normal({sizes[1]}, 0, 1, Stream(1, "bias"))};
      },
      [](const Tensors& in) {
        const Tensor y = Tensor::empty(in[0].shape()), mean = Tensor::empty({in[0].size(0)}),
                     rstd = Tensor::empty({in[0].size(0)});
        kernels(Device::cpu()).norm(in[0], {}, in[1], in[2], static_cast<double>(epsilon), {}, y, mean, rstd);
        return y;
      },
      {rung<ThreadPerRow>({}, 32 * warps), rung<BlockPerRow>(Count::sectors, 1),
          rung<WarpPerRow>(Count::barriers, warps), rung<Held>(Count::bytes, warps, true)}};
}

}  // namespace whence::gpu::ladder
