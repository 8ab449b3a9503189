// Terms by distance and their gradients, each in one launch: Kerple's table, and operands of a head mix.
#include "cuda/kernels/tiles/given.h"
#include "cuda/vocabulary/block.h"
#include "cuda/vocabulary/packs.h"
#include "tensor/math.h"

namespace whence {
namespace gpu {
namespace {

template <class T> struct KerpleTable {
  using C = compute_t<T>;
  static constexpr const char* name = "kerple's table";
  static constexpr int threads = 128;
  Global<const C> distances;
  SmallOperand<T> strength, rate;
  index_t count, numbers;
  bool power;
  SmallOperand<T> table = {};

  struct Function {
    Number<C> value, by_rate;  // f and df / drate
  };
  WHENCE_HD Function at(index_t h, index_t n) const {
    const Number<C> distance = load<C>(distances, n), r = rate.get(h), one = 1.0f;
    if (!power) return {math::log1p(r * distance), distance / (one + r * distance)};
    if (distance == 0.0f) return {0.0f, 0.0f};
    const Number<C> logarithm = math::log(distance), value = math::exp(r * logarithm);
    return {value, value * logarithm};
  }
  WHENCE_HD void operator()(Thread& t) const {
    const index_t n = t.block() * threads + t.index();
    if (n < numbers) table.set(n, -(at(n / count, n % count).value * strength.get(n / count)));
  }
};

// A block has a head.
template <class T> struct KerpleGradient {
  using C = compute_t<T>;
  using Sums = Pair<Number<C>, Number<C>>;
  static constexpr const char* name = "kerple's gradient";
  static constexpr int threads = 256;
  static constexpr std::size_t shared_bytes = block_reduce_bytes<threads, Sums>;
  KerpleTable<T> of;
  SmallOperand<T> dtable, d_strength, d_rate;
  WHENCE_HD void operator()(Thread& t) const {
    Sums sums{0.0f, 0.0f};
    for (index_t n = t.index(); n < of.count; n += threads) {
      const auto f = of.at(t.block(), n);
      const Number<C> d = dtable.get(t.block() * of.count + n);
      sums = {sums.first - d * f.value, sums.second - d * f.by_rate};
    }
    sums = block_reduce<threads>(t, sums, PlusBoth{});
    if (t.index() > 0) return;
    d_strength.set(t.block(), sums.first), d_rate.set(t.block(), sums.second * of.strength.get(t.block()));
  }
};

// Calls f(KerpleTable) for the narrower type of `table` and of parameters.
template <class F>
void visit_kerple(
    bool power, const Tensor& distances, const Tensor& strength, const Tensor& rate, const Tensor& table, const F& f) {
  const Tensor& narrow = size_of(strength.dtype()) < size_of(table.dtype()) ? strength : table;
  visit_real("kerple", narrow.dtype(), [&]<class T>(Type<T>) {
    f(KerpleTable<T>{global<const compute_t<T>>(distances), SmallOperand<T>::of(strength), SmallOperand<T>::of(rate),
        table.size(1), table.numel(), power});
  });
}

// The first layer of a head mix on a base's table, and all other operands that its parameters are.
template <class T> struct MixOperands {
  using C = compute_t<T>;
  static constexpr const char* name = "operands of the mix";
  static constexpr int threads = 128;
  MixNetwork at;
  index_t width, channels, taps, count;  // of W1; columns of the table
  SmallOperand<T> table, input;
  SmallOperand<T> bias = {}, output_bias = {}, pairs = {};
  Global<C> u = nullptr, added = nullptr;

  MixOperands(const MixNetwork& network, const Tensor& of_table, const Tensor& of_input, index_t distances)
      : at(network),
        width(of_input.size(0)),
        channels(of_input.size(1)),
        taps(of_input.size(2)),
        count(distances),
        table(SmallOperand<T>::of(of_table)),
        input(SmallOperand<T>::of(of_input)) {}
  index_t numbers() const { return (at.left + 1) * width * columns() + at.heads * count + width * at.pairs * taps; }
  WHENCE_HD index_t columns() const { return at.right + count; }  // of u
  // The channel of head h of the base; the column of the table that a tap adds to column m of u.
  WHENCE_HD index_t of_base(index_t h) const { return channels - at.heads + h; }
  WHENCE_HD index_t column_of(index_t m, index_t tap) const { return m - at.right - tap + at.left; }
  WHENCE_HD index_t weight(index_t d, index_t channel, index_t tap) const {
    return (d * channels + channel) * taps + tap;
  }
  WHENCE_HD bool has(index_t column) const { return column >= 0 && column < count; }

  WHENCE_HD void operator()(Thread& t) const {
    index_t n = t.block() * threads + t.index();
    if (n < (at.left + 1) * width * columns()) {
      const index_t m = n % columns(), d = n / columns() % width, e = n / columns() / width;
      Number<C> sum = bias.get(d);
      for (index_t tap = at.left - e; tap < taps && table; ++tap)
        for (index_t h = 0; h < at.heads && has(column_of(m, tap)); ++h)
          sum += input.get(weight(d, of_base(h), tap)) * table.get(h * count + column_of(m, tap));
      return store(u, n, sum);
    }
    n -= (at.left + 1) * width * columns();
    if (n < at.heads * count) {
      Number<C> sum = output_bias.get(n / count);
      if (table && at.adds_base) sum += table.get(n);
      return store(added, n, sum);
    }
    n -= at.heads * count;
    const index_t tap = n % taps, x = n / taps % at.pairs, d = n / taps / at.pairs;
    if (d < width) pairs.set(n, input.get(weight(d, x < at.heads ? x : of_base(x - at.heads), tap)));
  }
};

// Its gradients: a thread has a number of the table, then a warp one of the parameters.
template <class T> struct MixOperandGradients {
  using C = compute_t<T>;
  static constexpr const char* name = "gradients of the mix's operands";
  static constexpr int threads = 128;
  MixOperands<T> of;
  Global<const C> du, d_added;
  SmallOperand<T> d_pairs, d_table, d_input, d_bias, d_output_bias;

  WHENCE_HD index_t blocks_of_table() const { return d_table ? (of.at.heads * of.count + threads - 1) / threads : 0; }
  index_t blocks() const {
    const index_t warps = of.width * of.channels * of.taps + of.width + of.at.heads;
    return blocks_of_table() + blocks_for(warps, threads / 32);
  }
  WHENCE_HD void operator()(Thread& t) const {
    if (t.block() < blocks_of_table()) return number_of_table(t.block() * threads + t.index());
    index_t n = (t.block() - blocks_of_table()) * (threads / 32) + t.warp();
    const index_t weights = of.width * of.channels * of.taps;
    if (n < weights) return put_weight(t, n);
    n -= weights;
    Number<C> sum = 0.0f;
    if (n < of.width) {
      for (index_t e = 0; e <= of.at.left && du; ++e)
        sum += sum_of(t, of.columns(), [&](index_t m) { return load<C>(du, (e * of.width + n) * of.columns() + m); });
      if (t.lane() == 0 && d_bias) d_bias.set(n, sum);
    } else if (n -= of.width; n < of.at.heads) {
      if (d_added) sum = sum_of(t, of.count, [&](index_t m) { return load<C>(d_added, n * of.count + m); });
      if (t.lane() == 0 && d_output_bias) d_output_bias.set(n, sum);
    }
  }

 private:
  template <class F> static WHENCE_HD Number<C> sum_of(Thread& t, index_t count, const F& number) {
    Number<C> sum = 0.0f;
    for (index_t m = t.lane(); m < count; m += 32) sum += number(m);
    return warp_reduce(t, sum, Plus{});
  }
  WHENCE_HD void number_of_table(index_t n) const {
    if (n >= of.at.heads * of.count) return;
    const index_t h = n / of.count;
    Number<C> sum = 0.0f;
    if (of.at.adds_base && d_added) sum = load<C>(d_added, n);
    for (index_t e = 0; e <= of.at.left && du; ++e)
      for (index_t tap = of.at.left - e; tap < of.taps; ++tap) {
        const index_t m = n % of.count + of.at.right + tap - of.at.left;  // column_of(m, tap) is the thread's
        for (index_t d = 0; d < of.width && m >= 0 && m < of.columns(); ++d)
          sum += of.input.get(of.weight(d, of.of_base(h), tap)) * load<C>(du, (e * of.width + d) * of.columns() + m);
      }
    d_table.set(n, sum);
  }
  WHENCE_HD void put_weight(Thread& t, index_t n) const {
    const index_t tap = n % of.taps, x = n / of.taps % of.channels, d = n / of.taps / of.channels,
                  h = x - of.of_base(0);
    Number<C> sum = 0.0f;
    for (index_t e = of.at.left - tap > 0 ? of.at.left - tap : 0; e <= of.at.left && of.table && du && h >= 0; ++e)
      sum += sum_of(t, of.columns(), [&](index_t m) {
        const index_t column = of.column_of(m, tap);
        if (!of.has(column)) return Number<C>(0.0f);
        return load<C>(du, (e * of.width + d) * of.columns() + m) * of.table.get(h * of.count + column);
      });
    if (t.lane() > 0 || !d_input) return;
    const auto add = [&](index_t channel) {
      if (d_pairs) sum += d_pairs.get((d * of.at.pairs + channel) * of.taps + tap);
    };
    if (x < of.at.heads) add(x);
    if (of.at.pairs > of.at.heads && h >= 0) add(of.at.heads + h);
    d_input.set(n, sum);
  }
};

}  // namespace
}  // namespace gpu

void CudaKernels::kerple(
    bool power, const Tensor& distances, const Tensor& strength, const Tensor& rate, const Tensor& table) {
  gpu::visit_kerple(power, distances, strength, rate, table, [&]<class T>(gpu::KerpleTable<T> body) {
    body.table = gpu::SmallOperand<T>::of(table);
    gpu::launch_kernel(body, {.blocks = gpu::blocks_for(body.numbers, body.threads)});
  });
}

void CudaKernels::kerple_backward(bool power, const Tensor& distances, const Tensor& strength, const Tensor& rate,
    const Tensor& dtable, const Tensor& d_strength, const Tensor& d_rate) {
  gpu::visit_kerple(power, distances, strength, rate, dtable, [&]<class T>(const gpu::KerpleTable<T>& of) {
    using Body = gpu::KerpleGradient<T>;
    const auto small = [](const Tensor& x) { return gpu::SmallOperand<T>::of(x); };
    gpu::launch_kernel(Body{of, small(dtable), small(d_strength), small(d_rate)},
        {.blocks = strength.numel(), .shared_bytes = Body::shared_bytes});
  });
}

void CudaKernels::mix_terms(const MixNetwork& at, DType dtype, const Tensor& table, const Tensor& input,
    const Tensor& bias, const Tensor& output_bias, const Tensor& pairs, const Tensor& u, const Tensor& added) {
  visit_real("mix_terms", dtype, [&]<class T>(Type<T>) {
    gpu::MixOperands<T> body(at, table, input, added.size(1));
    const auto of = [](const Tensor& x) { return gpu::SmallOperand<T>::of(x); };
    body.bias = of(bias), body.output_bias = of(output_bias), body.pairs = of(pairs);
    body.u = gpu::global<compute_t<T>>(u), body.added = gpu::global<compute_t<T>>(added);
    gpu::launch_kernel(body, {.blocks = gpu::blocks_for(body.numbers(), body.threads)});
  });
}

void CudaKernels::mix_terms_backward(const MixNetwork& at, DType dtype, const Tensor& table, const Tensor& input,
    const Tensor& d_pairs, const Tensor& du, const Tensor& d_added, const Tensor& d_table, const Tensor& d_input,
    const Tensor& d_bias, const Tensor& d_output_bias) {
  visit_real("mix_terms", dtype, [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    const auto of = [](const Tensor& x) { return gpu::SmallOperand<T>::of(x); };
    const index_t count = du.defined() ? du.size(2) - at.right : d_added.defined() ? d_added.size(1) : 0;
    const gpu::MixOperandGradients<T> body{gpu::MixOperands<T>(at, table, input, count), gpu::global<const C>(du),
        gpu::global<const C>(d_added), of(d_pairs), of(d_table), of(d_input), of(d_bias), of(d_output_bias)};
    gpu::launch_kernel(body, {.blocks = body.blocks()});
  });
}

}  // namespace whence
