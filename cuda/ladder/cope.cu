// CoPE's positions and the logits that a query reads at them (nn/positional/cope.cpp), from the gates g [queries, keys]
// and z [queries, entries], with p clamped to [0, entries - 1]:
//   p_ij = sum_{l >= j} g_il,   y_ij = (1 - w) z_i[floor p] + w z_i[ceil p],   w = p - floor p
// Inside attention: cope_attention.cu. whence's own kernels: kernels/scan.cu and kernels/lerp.cu.
#include "cuda/ladder/ladder.h"
#include "cuda/vocabulary/rows.h"
#include "tensor/kernels.h"
#include "tensor/lookup.h"
#include "tensor/random.h"

namespace whence::gpu::ladder {
namespace {

constexpr int warps = 4;

WHENCE_HD Number<float> interpolated(Global<const float> z, index_t first, index_t entries, Number<float> p) {
  const PlaceInTable<Number<float>> at(p, entries);
  return (1.0f - at.share) * load<float>(z, first + at.below) + at.share * load<float>(z, first + at.above());
}

// Positions to results, a thread per position: the second kernel of rungs 1 and 2.
struct Interpolate {
  static constexpr const char* name = "interpolate";
  static constexpr int threads = 256;
  Global<const float> z, p;
  Global<float> y;
  index_t count, keys, entries;
  WHENCE_HD void operator()(Thread& t) const {
    const index_t i = t.block() * threads + t.index();
    if (i < count) store(y, i, interpolated(z, i / keys * entries, entries, load<float>(p, i)));
  }
};

// 1. One thread sums one row, from its end. Neighbouring lanes read one row apart.
struct ScanByThread {
  static constexpr const char* name = "a thread per row";
  static constexpr int threads = 32 * warps, rows_per_block = threads;
  Global<const float> g;
  Global<float> p;
  index_t rows, keys;
  WHENCE_HD void operator()(Thread& t) const {
    const index_t row = t.block() * threads + t.index();
    if (row >= rows) return;
    Number<float> sum = 0.0f;
    for (index_t j = keys - 1; j >= 0; --j) {
      sum += load<float>(g, row * keys + j);
      store(p, row * keys + j, sum);
    }
  }
};

// 2. A warp sums a row, 32 gates at a time. Five shuffles make the running sum of all lanes at once (each lane adds the
// sum of the lane 1, 2, 4, 8, 16 below it), and `carry` takes the chunk's total to the next. Neighbours read
// neighbours.
struct ScanByWarp {
  static constexpr const char* name = "a warp scans a row";
  static constexpr int threads = 32 * warps, rows_per_block = warps;
  Global<const float> g;
  Global<float> p;
  index_t rows, keys;
  WHENCE_HD void operator()(Thread& t) const {
    const index_t row = t.block() * warps + t.warp();
    if (row >= rows) return;
    Number<float> carry = 0.0f;
    for (index_t begin = 0; begin < keys; begin += 32) {  // all lanes take part, even beyond the row
      const index_t j = keys - 1 - begin - t.lane();
      const Number<float> gate = j >= 0 ? load<float>(g, row * keys + j) : Number<float>(0.0f);
      const auto sum = warp_sum_before(t, gate);
      if (j >= 0) store(p, row * keys + j, carry + sum.before + gate);
      carry += sum.all;
    }
  }
};

// 3. Fused: the position is in a register when the table is read, and never goes to memory: no second kernel, and 8
// bytes less per key.
struct Fused {
  static constexpr const char* name = "scan and interpolation fused";
  static constexpr int threads = 32 * warps;
  Global<const float> g, z;
  Global<float> y;
  index_t rows, keys, entries;
  WHENCE_HD void operator()(Thread& t) const {
    const index_t row = t.block() * warps + t.warp();
    if (row >= rows) return;
    Number<float> carry = 0.0f;
    for (index_t begin = 0; begin < keys; begin += 32) {
      const index_t j = keys - 1 - begin - t.lane();
      const Number<float> gate = j >= 0 ? load<float>(g, row * keys + j) : Number<float>(0.0f);
      const auto sum = warp_sum_before(t, gate);
      if (j >= 0) store(y, row * keys + j, interpolated(z, row * entries, entries, carry + sum.before + gate));
      carry += sum.all;
    }
  }
};

template <class Scan> Rung in_two_kernels(std::optional<Count> fewer) {
  return {Scan::name, fewer, false, [](const Tensors& in, const Tensor& y) {
            const index_t rows = y.size(0), keys = y.size(1);
            const Tensor p = Tensor::empty(y.shape(), DType::f32, y.device());
            launch_kernel(Scan{global<const float>(in[0]), global<float>(p), rows, keys},
                {.blocks = blocks_for(rows, Scan::rows_per_block)});
            launch_kernel(Interpolate{global<const float>(in[1]), global<const float>(p), global<float>(y), rows * keys,
                              keys, in[1].size(1)},
                {.blocks = blocks_for(rows * keys, Interpolate::threads)});
          }};
}
void in_one_kernel(const Tensors& in, const Tensor& y) {
  const index_t rows = y.size(0), keys = y.size(1);
  launch_kernel(
      Fused{global<const float>(in[0]), global<const float>(in[1]), global<float>(y), rows, keys, in[1].size(1)},
      {.blocks = blocks_for(rows, warps)});
}

}  // namespace

Ladder cope() {
  return {"cope", "p_j = sum_{l >= j} g_l,  y_j = (1 - w) z[floor p] + w z[ceil p]   [queries, keys, entries]",
      {64, 1024, 64}, {16384, 4096, 64},
      [](const Shape& sizes) {
        return Tensors{Tensor::uniform({sizes[0], sizes[1]}, 0, 1, Stream(1, "gates")),
            Tensor::normal({sizes[0], sizes[2]}, 0, 1, Stream(1, "z"))};
      },
      [](const Tensors& in) {
        const Tensor p = Tensor::empty(in[0].shape()), y = Tensor::empty(in[0].shape());
        kernels(Device::cpu()).cumulative_sum(in[0], true, p);
        kernels(Device::cpu()).lerp_at(in[1], p, y);
        return y;
      },
      {in_two_kernels<ScanByThread>({}), in_two_kernels<ScanByWarp>(Count::sectors),
          {Fused::name, Count::bytes, false, in_one_kernel}}};
}

}  // namespace whence::gpu::ladder
