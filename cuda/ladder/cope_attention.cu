// Attention with CoPE's positions (nn/positional/cope.cpp), from q, k, v and z = q e' [queries, entries]:
//   y = softmax(A) v,  A_ij = S_ij + (1 - w) z_i[floor p] + w z_i[ceil p],  w = p - floor p
//   p_ij = min(sum_{l >= j} g_il, entries - 1),  g = 1 / (1 + e^-S),  S = q k' / sqrt d
// Its tiles are those of attention.h, from the last key down. whence's own kernels: kernels/tiles/.
#include "cuda/ladder/attention.h"
#include "tensor/kernels.h"
#include "tensor/random.h"
#include "tensor/raw.h"

namespace whence::gpu::ladder {
namespace {

// 1. Scores, gates, positions' logits and their sum are kernels, and all pairs pass through memory between them. From
// gates to logits it is the last rung of cope.cu.
struct Gates {
  static constexpr const char* name = "gates";
  static constexpr int threads = 256;
  Global<const float> s;
  Global<float> g;
  index_t count;
  WHENCE_HD void operator()(Thread& t) const {
    const index_t i = t.block() * threads + t.index();
    if (i < count) store(g, i, math::sigmoid(load<float>(s, i)));
  }
};
struct AddLogits {
  static constexpr const char* name = "logits";
  static constexpr int threads = 256;
  Global<float> s;
  Global<const float> of_positions;
  index_t count;
  WHENCE_HD void operator()(Thread& t) const {
    const index_t i = t.block() * threads + t.index();
    if (i < count) store(s, i, load<float>(s, i) + load<float>(of_positions, i));
  }
};
void pairs_in_memory(const Tensors& in, const Tensor& y) {
  all_pairs(in, y, [&](const Tensor& s) {
    const Tensor g = Tensor::empty(s.shape(), DType::f32, s.device()),
                 of_positions = Tensor::empty(s.shape(), DType::f32, s.device());
    const Grid grid{.blocks = blocks_for(s.numel(), Gates::threads)};
    launch_kernel(Gates{global<const float>(s), global<float>(g), s.numel()}, grid);
    cope().rungs.back().run({g, in[3]}, of_positions);
    launch_kernel(AddLogits{global<float>(s), global<const float>(of_positions), s.numel()}, grid);
  });
}

// Turns a tile's scores into logits, in place in registers. A lane has 8 of a row's 32 keys.
// 2. own = 2: columns are keys in their order, so that a lane has 2 neighbouring keys and a quad 8: four times in a
// tile two shuffles bring the sums of the lanes after it.
// 3. own = 8: in the lane's order (fragments.h) a lane has 8 neighbouring keys and a quad all of the tile: two shuffles
// do.
// 4. `stops`: once all rows of a warp are at the table's end, they stay there, and need no more gates.
template <int own, bool stops = false> class Positions {
 public:
  static constexpr const char* name = stops     ? "stops when full"
                                      : own > 2 ? "neighbours in one lane"
                                                : "scan in the tile";
  static constexpr bool lanes_order = own > 2;
  static std::size_t shared_bytes(const Arguments& of) {
    return shared_bytes_for<float>(static_cast<std::size_t>(tile_queries * (of.entries + 1)));
  }

  WHENCE_HD Positions(Thread& t, const Arguments& of)
      : pitch_(static_cast<int>(of.entries) + 1), last_(static_cast<float>(of.entries - 1)) {
    z_ = t.shared<float>(tile_queries * pitch_);
    for (int i = t.index(); i < tile_queries * pitch_; i += 32 * warps) {  // the last entry twice: it has one above it
      const index_t row = t.block() * tile_queries + i / pitch_,
                    entry = i % pitch_ < of.entries ? i % pitch_ : of.entries - 1;
      store(z_, i, row < of.queries ? load<float>(of.z, row * of.entries + entry) : Number<float>(0.0f));
    }
  }
  // REQUIRES: a barrier after the constructor
  template <class Scores> WHENCE_HD void add(Thread& t, Scores& scores) {
    each<2>([&](auto half) {
      const Shared<float> z = z_ + (t.warp() * 16 + c_place(t.lane(), 2 * half).row) * pitch_;
      each<8 / own>([&](auto group) {  // from the last one down
        const auto score = [&](auto n) -> Number<float>& {
          constexpr int k = 8 - (group + 1) * own + n;
          return scores[Nth<k / 2>{}][Nth<2 * half + k % 2>{}];
        };
        if (stops && full_) return each<own>([&](auto n) { score(n) += at(z, last_); });
        Registers<Number<float>, own> sum;
        Number<float> all = 0.0f, behind = sums_[half];
        each<own>([&](auto n) {
          constexpr Nth<own - 1 - n> k;
          sum[k] = all += math::sigmoid(score(k));
        });
        for (int mask = 1; mask <= 2; mask *= 2) {
          const Number<float> other = t.shuffle_xor(all, mask);
          if ((t.lane() & mask) == 0) behind += other;
          all += other;
        }
        sums_[half] += all;
        each<own>([&](auto n) { score(n) += at(z, behind + sum[n]); });
      });
    });
    if (stops && !full_) {
      Number<float> missing = Larger{}(last_ - sums_[Nth<0>{}], last_ - sums_[Nth<1>{}]);
      for (int mask = 4; mask <= 16; mask *= 2) missing = Larger{}(missing, t.shuffle_xor(missing, mask));
      full_ = missing <= 0.0f;
    }
  }

 private:
  WHENCE_HD Number<float> at(Shared<const float> z, Number<float> sum) const {
    const Number<float> p = sum < last_ ? sum : Number<float>(last_);
    const Whole below = whole_below(p);
    const Number<float> low = load<float>(z, below.index);
    return low + (p - below.value) * (load<float>(z, below.index + 1) - low);
  }

  Shared<float> z_;
  int pitch_;
  float last_;
  Registers<Number<float>, 2> sums_;  // of the lane's two rows, so far
  bool full_ = false;                 // all rows of the warp
};

}  // namespace

Ladder cope_attention() {
  return {"cope attention",
      "y = softmax(A) v, A = S + z at min(sum_{l >= j} g_l, entries - 1)   [queries, keys, d, entries]",
      {64, 128, 64, 8}, {4096, 4096, 64, 64},
      [](const Shape& sizes) {
        Tensors in = attention().inputs({sizes[0], sizes[1], sizes[2]});
        in.push_back(Tensor::normal({sizes[0], sizes[3]}, 0, 1, Stream(1, "z")));
        return in;
      },
      [](const Tensors& in) {
        const double scale = 1 / std::sqrt(static_cast<double>(in[0].size(1)));
        const Tensor s = raw::matmul(in[0], raw::transpose(in[1]), scale), pattern = Tensor::empty(s.shape());
        const Tensor of_positions = cope().on_cpu({raw::unary(functions::Sigmoid{}, s), in[3]});
        kernels(Device::cpu()).softmax(raw::binary("add", functions::Add{}, s, of_positions), Tensor(), pattern);
        return raw::matmul(pattern, in[2]);
      },
      {{"all pairs in memory", {}, false, pairs_in_memory}, rung<TensorCores<6, Positions<2>>>(Count::bytes, true),
          rung<TensorCores<6, Positions<8>>>(Count::shuffles, true),
          rung<TensorCores<6, Positions<8, true>>>(Count::special, true)}};
}

}  // namespace whence::gpu::ladder
