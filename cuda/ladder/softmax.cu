// Softmax over rows: y_j = e^(x_j - max x) / sum_l e^(x_l - max x). whence's own kernel: kernels/softmax.cu.
#include "cuda/ladder/ladder.h"
#include "cuda/vocabulary/power.h"
#include "tensor/kernels.h"
#include "tensor/random.h"

namespace whence::gpu::ladder {
namespace {

constexpr int warps = 4;

// 1. One thread does one row, as a loop on a CPU would: the maximum, the sum, the quotients. Correct, and slow: a
// warp's 32 lanes read in 32 rows, so that 32 sectors are moved and 4 bytes of each are used.
struct ThreadPerRow {
  static constexpr const char* name = "a thread per row";
  static constexpr int threads = 32 * warps;
  Global<const float> x;
  Global<float> y;
  index_t rows, width;
  WHENCE_HD void operator()(Thread& t) const {
    const index_t row = t.block() * threads + t.index(), begin = row * width;
    if (row >= rows) return;
    Number<float> top = lowest<float>(), sum = 0.0f;
    for (index_t j = 0; j < width; ++j) top = Larger{}(top, load<float>(x, begin + j));
    for (index_t j = 0; j < width; ++j) sum += math::exp(load<float>(x, begin + j) - top);
    for (index_t j = 0; j < width; ++j) store(y, begin + j, math::exp(load<float>(x, begin + j) - top) / sum);
  }
};

// 2. A warp does a row: lane k takes numbers k, k + 32, ... Neighbours read neighbours, and 4 sectors serve a request.
// The lanes' maxima and sums are joined by shuffles: five steps each, no memory, no barrier.
struct WarpPerRow {
  static constexpr const char* name = "a warp per row";
  static constexpr int threads = 32 * warps;
  Global<const float> x;
  Global<float> y;
  index_t rows, width;
  WHENCE_HD void operator()(Thread& t) const {
    const index_t row = t.block() * warps + t.warp(), begin = row * width;
    if (row >= rows) return;
    Number<float> top = lowest<float>(), sum = 0.0f;
    for (index_t j = t.lane(); j < width; j += 32) top = Larger{}(top, load<float>(x, begin + j));
    top = warp_reduce(t, top, Larger{});
    for (index_t j = t.lane(); j < width; j += 32) sum += math::exp(load<float>(x, begin + j) - top);
    sum = warp_reduce(t, sum, Plus{});
    for (index_t j = t.lane(); j < width; j += 32)
      store(y, begin + j, math::exp(load<float>(x, begin + j) - top) / sum);
  }
};

// 3. Online: the maximum and the sum in one pass. When a larger maximum comes, the sum so far is scaled by e^(old -
// new). The row is read twice instead of three times, at the cost of more powers: memory is the bottleneck.
struct Online {
  static constexpr const char* name = "online: two passes";
  static constexpr int threads = 32 * warps;
  Global<const float> x;
  Global<float> y;
  index_t rows, width;
  WHENCE_HD void operator()(Thread& t) const {
    const index_t row = t.block() * warps + t.warp(), begin = row * width;
    if (row >= rows) return;
    PowerSum<float> sum = empty_power_sum<float>();
    for (index_t j = t.lane(); j < width; j += 32)
      sum = JoinPowerSums<float>{}(sum, {load<float>(x, begin + j), Number<float>(1.0f)});
    sum = warp_reduce(t, sum, JoinPowerSums<float>{});
    for (index_t j = t.lane(); j < width; j += 32)
      store(y, begin + j, math::exp(load<float>(x, begin + j) - sum.first) / sum.second);
  }
};

// 4. Packs: a lane reads and writes 4 neighbours at once, 16 bytes. The same bytes in a quarter of the requests, and
// the old sum is scaled once per pack.
struct Packs {
  static constexpr const char* name = "packs of 4";
  static constexpr int threads = 32 * warps;
  Global<const float> x;
  Global<float> y;
  index_t rows, width;
  WHENCE_HD void operator()(Thread& t) const {
    const index_t row = t.block() * warps + t.warp(), begin = row * width;
    if (row >= rows) return;
    PowerSum<float> sum = empty_power_sum<float>();
    for (index_t j = 4 * t.lane(); j < width; j += 128) add_pack(sum, load_numbers<float, 4>(x, begin + j), 15u);
    sum = warp_reduce(t, sum, JoinPowerSums<float>{});
    const Number<float> scale = 1.0f / sum.second;
    for (index_t j = 4 * t.lane(); j < width; j += 128) {
      auto pack = load_numbers<float, 4>(x, begin + j);
      for (int k = 0; k < 4; ++k) pack.of[k] = math::exp(pack.of[k] - sum.first) * scale;
      store_numbers(y, begin + j, pack);
    }
  }
};

// 5. Held: up to 1024 numbers of a row fit in the registers of its warp, 32 per lane. The row is read once and each
// power is computed once. Every loop has a fixed length, so that the compiler knows each number's register.
struct Held {
  static constexpr const char* name = "held in registers";
  static constexpr int threads = 32 * warps, packs = 8;
  Global<const float> x;
  Global<float> y;
  index_t rows, width;  // REQUIRES: width <= 1024
  WHENCE_HD void operator()(Thread& t) const {
    const index_t row = t.block() * warps + t.warp(), begin = row * width, first = 4 * t.lane();
    if (row >= rows) return;
    Numbers<float, 4> held[packs];
    Number<float> top = lowest<float>(), sum = 0.0f;
    for (int p = 0; p < packs; ++p) {
      if (first + 128 * p >= width) continue;
      held[p] = load_numbers<float, 4>(x, begin + first + 128 * p);
      for (int k = 0; k < 4; ++k) top = Larger{}(top, held[p].of[k]);
    }
    top = warp_reduce(t, top, Larger{});
    for (int p = 0; p < packs; ++p) {
      if (first + 128 * p >= width) continue;
      for (int k = 0; k < 4; ++k) sum += held[p].of[k] = math::exp(held[p].of[k] - top);
    }
    const Number<float> scale = 1.0f / warp_reduce(t, sum, Plus{});
    for (int p = 0; p < packs; ++p) {
      if (first + 128 * p >= width) continue;
      for (int k = 0; k < 4; ++k) held[p].of[k] = held[p].of[k] * scale;
      store_numbers(y, begin + first + 128 * p, held[p]);
    }
  }
};

template <class Body> Rung rung(std::optional<Count> fewer, index_t rows_per_block, bool packs = false) {
  return {Body::name, fewer, packs, [rows_per_block](const Tensors& in, const Tensor& y) {
            const index_t rows = y.size(0), width = y.size(1);
            launch_kernel(Body{global<const float>(in[0]), global<float>(y), rows, width},
                {.blocks = blocks_for(rows, rows_per_block)});
          }};
}

}  // namespace

Ladder softmax() {
  return {"softmax", "y_j = e^(x_j - max x) / sum_l e^(x_l - max x)   [rows, width]", {64, 1024}, {32768, 1024},
      [](const Shape& sizes) { return Tensors{Tensor::normal(sizes, 0, 1, Stream(1, "x"))}; },
      [](const Tensors& in) {
        const Tensor y = Tensor::empty(in[0].shape());
        kernels(Device::cpu()).softmax(in[0], Tensor(), y);
        return y;
      },
      {rung<ThreadPerRow>({}, 32 * warps), rung<WarpPerRow>(Count::sectors, warps), rung<Online>(Count::bytes, warps),
          rung<Packs>(Count::requests, warps, true), rung<Held>(Count::bytes, warps, true)}};
}

}  // namespace whence::gpu::ladder
