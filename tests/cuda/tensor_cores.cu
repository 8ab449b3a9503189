#include "tests/cuda/tensor_cores.h"

#include "cuda/vocabulary/launch_kernel.h"
#include "cuda/vocabulary/tensor_cores.h"

namespace whence::gpu {
namespace {

// Returns a register of an operand from numbers in memory; place(half) selects them.
template <class T, class PlaceOf>
WHENCE_HD Register<T> register_from(Global<const compute_t<T>> x, int width, const PlaceOf& place) {
  using C = compute_t<T>;
  const Place low = place(0), high = place(per_register<T> - 1);
  if constexpr (per_register<T> == 1)
    return to_tf32(load<C>(x, low.row * width + low.column));
  else
    return pack_two<T>(load<C>(x, low.row * width + low.column), load<C>(x, high.row * width + high.column));
}
template <class T> WHENCE_HD void store_register(Global<compute_t<T>> y, index_t i, const Register<T>& from) {
  if constexpr (per_register<T> == 1) {
    store(y, i, from_tf32(from));
  } else {
    const auto both = unpack_two<T>(from);
    store(y, 2 * i, both.low), store(y, 2 * i + 1, both.high);
  }
}

template <class T> struct ProductByMaps {
  static constexpr const char* name = "product by maps";
  static constexpr int threads = 32;
  Global<const compute_t<T>> a, b, c;
  Global<compute_t<T>> d;
  WHENCE_HD void operator()(Thread& t) const {
    const int lane = t.lane();
    FragmentA<T> left;
    FragmentC<T> sums;
    Registers<Register<T>, 2> right;
    each<4>([&](auto r) {
      left[r] = register_from<T>(a, depth<T>, [&](int half) { return a_place<T>(lane, r, half); });
      sums[r] = load<compute_t<T>>(c, c_place(lane, r).row * 8 + c_place(lane, r).column);
    });
    each<2>([&](auto r) { right[r] = register_from<T>(b, 8, [&](int half) { return b_place<T>(lane, r, half); }); });
    mma<T>(t, sums, left, right[Nth<0>{}], right[Nth<1>{}]);
    each<4>([&](auto r) { store(d, c_place(lane, r).row * 8 + c_place(lane, r).column, sums[r]); });
  }
};

template <class T> struct Held {
  static constexpr const char* name = "held matrices";
  static constexpr int threads = 32;
  static constexpr std::size_t shared_bytes = shared_bytes_for<T>(32 * matrix_row<T>);
  Global<const T> x;
  Global<compute_t<T>> loaded, transposed, moved;
  Global<T> stored;
  WHENCE_HD void operator()(Thread& t) const {
    const int lane = t.lane(), row = lane * matrix_row<T>;
    const Shared<T> matrices = t.shared<T>(32 * matrix_row<T>);
    for (int i = row; i < row + matrix_row<T>; ++i) store(matrices, i, Number<compute_t<T>>(7));
    cp_async(t, matrices, row, x, row, lane % 3 != 0);
    cp_async_commit(t);
    cp_async_wait<0>(t);
    t.sync_warp();
    const auto as_they_are = ldmatrix(t, matrices, row);
    each<4>([&](auto m) { store_register<T>(loaded, m * 32 + lane, as_they_are[m]); });
    if constexpr (per_register<T> == 2) {
      const auto columns = ldmatrix_trans(t, matrices, row);
      each<4>([&](auto m) { store_register<T>(transposed, m * 32 + lane, columns[m]); });
      store_register<T>(moved, lane, movmatrix<T>(t, as_they_are[Nth<0>{}]));
      t.sync_warp();
      stmatrix_trans<T>(t, matrices, 31 * matrix_row<T> - row, columns, true);
      t.sync_warp();
      for (int i = lane; i < 32 * matrix_row<T>; i += 32) store(stored, i, load<compute_t<T>>(matrices, i));
    }
  }
};

struct FunctionsOf {
  static constexpr const char* name = "functions of numbers";
  static constexpr int threads = 128;
  Global<const float> x;
  Global<float> y;
  index_t count;
  WHENCE_HD void operator()(Thread& t) const {
    for (index_t i = t.index(); i < count; i += threads) {
      const Number<float> of = load<float>(x, i);
      store(y, i, whole_below(of).value);
      store(y, count + i, ex2_approx(of));
      store(y, 2 * count + i, rcp_approx(of));
      store(y, 3 * count + i, from_tf32(to_tf32(of)));
      store(y, 4 * count + i, unpack_two<Float16>(pack_two<Float16>(Number<float>(1.0f), of)).high);
      store(y, 5 * count + i, max_nan(of, Number<float>(1.0f)));
    }
  }
};

// Calls f(T()) for the type of an operand.
template <class F> void with_operand(DType dtype, const F& f) {
  if (dtype == DType::f16) return f(Float16());
  if (dtype == DType::bf16) return f(BFloat16());
  if (dtype == DType::f32) return f(float());
#ifndef __CUDACC__
  if (dtype == DType::f64) return f(double());
#endif
  fail("tensor_cores", to_string(dtype), " given; f16, bf16 or f32 required, or f64 where the GPU is emulated");
}

}  // namespace
}  // namespace whence::gpu

namespace whence::test {
using gpu::global, gpu::launch_kernel;

Tensor product_by_maps(DType operand, const Tensor& a, const Tensor& b, const Tensor& c) {
  const Tensor d = Tensor::empty(c.shape(), c.dtype(), c.device());
  gpu::with_operand(operand, [&]<class T>(T) {
    using C = compute_t<T>;
    launch_kernel(gpu::ProductByMaps<T>{global<const C>(a), global<const C>(b), global<const C>(c), global<C>(d)}, {});
  });
  return d;
}

Held held_matrices(const Tensor& x) {
  Held held;
  gpu::with_operand(x.dtype(), [&]<class T>(T) {
    using C = compute_t<T>;
    const auto of = [&](index_t matrices) {
      return Tensor::empty({matrices, 32, gpu::per_register<T>}, compute_dtype(x.dtype()), x.device());
    };
    held = {of(4), of(4), of(1), Tensor::like(x)};
    launch_kernel(gpu::Held<T>{global<const T>(x), global<C>(held.loaded), global<C>(held.transposed),
                      global<C>(held.moved), global<T>(held.stored)},
        {.shared_bytes = gpu::Held<T>::shared_bytes});
  });
  return held;
}

Tensor functions_of(const Tensor& x) {
  const Tensor y = Tensor::empty({6, x.numel()}, DType::f32, x.device());
  launch_kernel(gpu::FunctionsOf{global<const float>(x), global<float>(y), x.numel()}, {});
  return y;
}

}  // namespace whence::test
