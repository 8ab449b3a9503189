// Attention with DAPE's head mix (nn/positional/dape.cpp, form=concat), from q, k and v [heads, tokens, d], W1 [hidden,
// heads], u [hidden, distances], which is b1 plus W1 applied to a bias by distance, and W2 [heads, hidden]:
//   y_h = softmax(A_h) v_h,  A_hij = S_hij + sum_d W2_hd leaky(u_d[i-j] + sum_x W1_dx S_xij),  S_h = q_h k_h' / sqrt d
// A pair needs all heads, so S and A pass through memory. Rungs differ in the network alone. whence's own kernels:
// kernels/tiles/mix_walk.h.
#include "cuda/ladder/attention.h"
#include "tensor/kernels.h"
#include "tensor/random.h"
#include "tensor/raw.h"

namespace whence::gpu::ladder {
namespace {

constexpr int heads = 8, hidden = 16, block = 256;  // block: threads
struct Network {
  Global<float> s;  // [heads, queries, keys]: scores, which become logits
  Global<const float> w1, u, w2;
  index_t queries, keys, pairs;
  WHENCE_HD Number<float> term(index_t d, index_t pair) const {  // u_d[i-j]
    return load<float>(u, d * (queries + keys - 1) + pair / keys - pair % keys + keys - 1);
  }
  static WHENCE_HD Number<float> leaky(Number<float> x) { return Larger{}(x, x * 0.01f); }
};

// 1. As ops are composed: a kernel per layer, a thread per result, which reads all its inputs from memory.
template <bool to_hidden> struct Layer {
  static constexpr const char* name = to_hidden ? "hidden numbers" : "logits";
  static constexpr int threads = block, from = to_hidden ? heads : hidden, to = to_hidden ? hidden : heads;
  Network of;
  Global<float> numbers;  // [hidden, queries, keys]
  WHENCE_HD void operator()(Thread& t) const {
    const index_t i = t.block() * threads + t.index(), pair = i % of.pairs, n = i / of.pairs;
    if (n >= to) return;
    Number<float> sum = to_hidden ? of.term(n, pair) : load<float>(of.s, i);
    for (int m = 0; m < from; ++m)
      sum += load<float>(to_hidden ? of.w1 : of.w2, n * from + m) *
             load<float>(to_hidden ? of.s : numbers, m * of.pairs + pair);
    store(to_hidden ? numbers : of.s, i, to_hidden ? Network::leaky(sum) : sum);
  }
};

// 2. One kernel, a thread per pair: it reads each score once, and adds a hidden number to all logits as soon as it is
// computed.
struct InRegisters {
  static constexpr const char* name = "hidden stays in registers";
  static constexpr int threads = block, pairs = threads;
  Network of;
  WHENCE_HD void operator()(Thread& t) const {
    const index_t pair = t.block() * pairs + t.index();
    if (pair >= of.pairs) return;
    Number<float> s[heads], a[heads];
    for (int h = 0; h < heads; ++h) s[h] = a[h] = load<float>(of.s, h * of.pairs + pair);
    for (int d = 0; d < hidden; ++d) {
      Number<float> sum = of.term(d, pair);
      for (int h = 0; h < heads; ++h) sum += load<float>(of.w1, d * heads + h) * s[h];
      sum = Network::leaky(sum);
      for (int h = 0; h < heads; ++h) a[h] += load<float>(of.w2, h * hidden + d) * sum;
    }
    for (int h = 0; h < heads; ++h) store(of.s, h * of.pairs + pair, a[h]);
  }
};

// 3. Tensor cores: 16 pairs are the rows of a product, heads its depth. Its columns, hidden numbers, are the depth of
// the next product, whose columns are heads again. Sums become its left factor in place, so a lane reads the heads
// whose logits it gets. Weights stay in registers: 2 b and 2 b + 1 have those of hidden numbers from 8 b on.
struct OnTensorCores {
  static constexpr const char* name = "network on tensor cores";
  static constexpr int threads = 32 * warps, pairs = 64 * warps;
  using Tiles = TensorCores<6>;
  Network of;
  WHENCE_HD void operator()(Thread& t) const {
    Tiles::Raw to_hidden, to_logits, left;
    each<4>([&](auto r) {
      const Place at = b_place<float>(t.lane(), r % 2, 0);
      const int k = column_of_depth<float>(at.row), first = r / 2 * 8;
      to_hidden[r] = Tiles::bits_of(load<float>(of.w1, (first + at.column) * heads + k));
      to_logits[r] = Tiles::bits_of(load<float>(of.w2, at.column * hidden + first + k));
    });
    const Tiles::Halves w1 = Tiles::halves_of(to_hidden), w2 = Tiles::halves_of(to_logits);
    for (index_t first = (t.block() * warps + t.warp()) * 16; first < of.pairs; first += t.blocks() * warps * 16) {
      const auto own = [&](const auto& f) {
        each<4>([&](auto r) {
          const Place at = c_place(t.lane(), r);
          if (first + at.row < of.pairs) f(r, at.column, first + at.row);
        });
      };
      FragmentC<float> a;
      own([&](auto r, int h, index_t pair) { a[r] = load<float>(of.s, h * of.pairs + pair); });
      each<4>([&](auto r) { left[r] = Tiles::bits_of(a[Tiles::HandedOn<r>{}]); });
      const Tiles::Halves s = Tiles::halves_of(left);
      each<hidden / 8>([&](auto b) {
        FragmentC<float> sum;
        own([&](auto r, int d, index_t pair) { sum[r] = of.term(8 * b + d, pair); });
        Tiles::multiply(t, sum, s, w1, Nth<2 * b>{});
        each<4>([&](auto r) { left[r] = Tiles::bits_of(Network::leaky(sum[Tiles::HandedOn<r>{}])); });
        Tiles::multiply(t, a, Tiles::halves_of(left), w2, Nth<2 * b>{});
      });
      own([&](auto r, int h, index_t pair) { store(of.s, h * of.pairs + pair, a[r]); });
    }
  }
};

void hidden_in_memory(const Network& of) {
  const Tensor numbers = Tensor::empty({hidden, of.queries, of.keys}, DType::f32, Device::cuda(0));
  launch_kernel(Layer<true>{of, global<float>(numbers)}, {.blocks = blocks_for(hidden * of.pairs, block)});
  launch_kernel(Layer<false>{of, global<float>(numbers)}, {.blocks = blocks_for(heads * of.pairs, block)});
}
template <class Body> void in_one_kernel(const Network& of) {
  launch_kernel(Body{of}, {.blocks = blocks_for(of.pairs, Body::pairs)});
}
Rung with_network(const char* name, std::optional<Count> fewer, void (*run)(const Network&)) {
  return {name, fewer, false, [run](const Tensors& in, const Tensor& y) {
            all_pairs({in[0], in[1], in[2]}, y, [&](const Tensor& s) {
              run(Network{global<float>(s), global<const float>(in[3]), global<const float>(in[4]),
                  global<const float>(in[5]), in[0].size(1), in[1].size(1), s.numel() / heads});
            });
          }};
}

}  // namespace

Ladder mix_attention() {
  return {"mix attention", "y = softmax(A) v, A = S + W2 leaky(u[i-j] + W1 S) over 8 heads   [queries, keys, d]",
      {32, 64, 8}, {2048, 2048, 8},
      [](const Shape& n) {
        Tensors in;
        for (const Shape& shape : std::vector<Shape>{{heads, n[0], n[2]}, {heads, n[1], n[2]}, {heads, n[1], n[2]},
                 {hidden, heads}, {hidden, n[0] + n[1] - 1}, {heads, hidden}})
          in.push_back(Tensor::normal(shape, 0, 1, Stream(1 + in.size(), "mix")));
        return in;
      },
      [](const Tensors& in) {
        const double root = std::sqrt(static_cast<double>(in[0].size(2)));
        const Tensor s = raw::matmul(in[0], raw::transpose(in[1]), 1 / root), pattern = Tensor::empty(s.shape()),
                     u = in[4].view({hidden, s.size(1), s.size(2)}, {in[4].size(1), 1, -1}, s.size(2) - 1),
                     sums = raw::add(raw::matmul(in[3], raw::reshape(s, {heads, -1})), raw::reshape(u, {hidden, -1})),
                     f = raw::matmul(in[5], raw::unary(functions::LeakyRelu{}, sums, {0.01}));
        kernels(Device::cpu()).softmax(raw::add(s, raw::reshape(f, s.shape())), Tensor(), pattern);
        return raw::matmul(pattern, in[2]);
      },
      {with_network("hidden in memory", {}, hidden_in_memory),
          with_network(InRegisters::name, Count::bytes, in_one_kernel<InRegisters>),
          with_network(OnTensorCores::name, Count::arithmetic, in_one_kernel<OnTensorCores>)}};
}

}  // namespace whence::gpu::ladder
