// Kerple's table by distance and its gradient (nn/positional/kerple.cpp), each in one launch.
#include "cuda/kernels/kernels.h"
#include "cuda/vocabulary/block.h"
#include "cuda/vocabulary/packs.h"
#include "tensor/math.h"

namespace whence {
namespace gpu {
namespace {

// T: of the table, P: of parameters.
template <class T, class P> struct KerpleTable {
  using C = compute_t<T>;
  static constexpr const char* name = "kerple's table";
  static constexpr int threads = 128;
  Global<const C> distances;
  Global<const P> strength, rate;
  index_t count, numbers;
  bool power;
  Global<T> table;

  struct Function {
    Number<C> value, by_rate;  // f and df / drate
  };
  WHENCE_HD Function at(index_t h, index_t n) const {
    const Number<C> distance = load<C>(distances, n), r = load<C>(rate, h), one = 1.0f;
    if (!power) return {math::log1p(r * distance), distance / (one + r * distance)};
    if (distance == 0.0f) return {0.0f, 0.0f};
    const Number<C> logarithm = math::log(distance), value = math::exp(r * logarithm);
    return {value, value * logarithm};
  }
  WHENCE_HD void operator()(Thread& t) const {
    const index_t n = t.block() * threads + t.index();
    if (n < numbers) store(table, n, -(at(n / count, n % count).value * load<C>(strength, n / count)));
  }
};

// A block has a head.
template <class T, class P> struct KerpleGradient {
  using C = compute_t<T>;
  using Sums = Pair<Number<C>, Number<C>>;
  static constexpr const char* name = "kerple's gradient";
  static constexpr int threads = 256;
  static constexpr std::size_t shared_bytes = block_reduce_bytes<threads, Sums>;
  KerpleTable<T, P> of;
  Global<const T> dtable;
  Global<P> d_strength, d_rate;
  WHENCE_HD void operator()(Thread& t) const {
    Sums sums{0.0f, 0.0f};
    for (index_t n = t.index(); n < of.count; n += threads) {
      const auto f = of.at(t.block(), n);
      const Number<C> d = load<C>(dtable, t.block() * of.count + n);
      sums = {sums.first - d * f.value, sums.second - d * f.by_rate};
    }
    sums = block_reduce<threads>(t, sums, PlusBoth{});
    if (t.index() > 0) return;
    store(d_strength, t.block(), sums.first), store(d_rate, t.block(), sums.second * load<C>(of.strength, t.block()));
  }
};

// Calls f(KerpleTable) for the types of `table` and of parameters.
template <class F>
void visit_kerple(
    bool power, const Tensor& distances, const Tensor& strength, const Tensor& rate, const Tensor& table, const F& f) {
  visit_real("kerple", table.dtype(), [&]<class T>(Type<T>) {
    const auto of = [&]<class P>(Type<P>) {
      f(KerpleTable<T, P>{global<const compute_t<T>>(distances), global<const P>(strength), global<const P>(rate),
          table.size(1), table.numel(), power, {}});
    };
    strength.dtype() == table.dtype() ? of(Type<T>{}) : of(Type<compute_t<T>>{});
  });
}

}  // namespace
}  // namespace gpu

void CudaKernels::kerple(
    bool power, const Tensor& distances, const Tensor& strength, const Tensor& rate, const Tensor& table) {
  gpu::visit_kerple(power, distances, strength, rate, table, [&]<class T, class P>(gpu::KerpleTable<T, P> body) {
    body.table = gpu::global<T>(table);
    gpu::launch_kernel(body, {.blocks = gpu::blocks_for(body.numbers, body.threads)});
  });
}

void CudaKernels::kerple_backward(bool power, const Tensor& distances, const Tensor& strength, const Tensor& rate,
    const Tensor& dtable, const Tensor& d_strength, const Tensor& d_rate) {
  gpu::visit_kerple(power, distances, strength, rate, dtable, [&]<class T, class P>(const gpu::KerpleTable<T, P>& of) {
    using Body = gpu::KerpleGradient<T, P>;
    gpu::launch_kernel(Body{of, gpu::global<const T>(dtable), gpu::global<P>(d_strength), gpu::global<P>(d_rate)},
        {.blocks = strength.numel(), .shared_bytes = Body::shared_bytes});
  });
}

}  // namespace whence
