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
    cp_async(t, matrices, row, x, row);
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

template <class T> struct TwoThirds {
  static constexpr const char* name = "two thirds";
  static constexpr int threads = 128;
  static constexpr std::size_t shared_bytes = shared_bytes_for<T>(threads * matrix_row<T>);
  Global<const T> x;
  Global<T> y;
  int rows;
  WHENCE_HD void operator()(Thread& t) const {
    const Shared<T> memory = t.shared<T>(threads * matrix_row<T>);
    for (int i = t.index(); i < threads * matrix_row<T>; i += threads) store(memory, i, Number<compute_t<T>>(7));
    t.sync();
    const int row = t.index();
    if (row < rows) cp_async(t, memory, row * matrix_row<T>, x, row * matrix_row<T>, row % 3 != 0);
    cp_async_commit(t);
    cp_async_wait<0>(t);
    t.sync();
    for (int i = t.index(); i < rows * matrix_row<T>; i += threads) store(y, i, load<compute_t<T>>(memory, i));
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

// One warp. Queries are the rows, keys the columns of s.
template <class T> struct HandedOn {
  static constexpr const char* name = "handed on";
  static constexpr int threads = 32, queries = 16, keys = 64, width = 64, pack = matrix_row<T>;
  static constexpr std::size_t shared_bytes = shared_bytes_for<T>((queries + 2 * keys) * width);
  Global<const T> q, k, v;
  Global<compute_t<T>> s, o;
  bool wrong_phase;

  WHENCE_HD void operator()(Thread& t) const {
    const Shared<T> of_q = t.shared<T>(queries * width), of_k = t.shared<T>(keys * width),
                    of_v = t.shared<T>(keys * width);
    const int lane = t.lane(), matrix = lane / 8, line = lane % 8;
    for (int row = 0; row < keys; ++row) {
      if (lane * pack >= width) break;
      const int at = tile_at<T>(row, lane * pack, width, key_phase<keys>(row));
      cp_async(t, of_k, at, k, row * width + lane * pack);
      cp_async(t, of_v, at, v, row * width + lane * pack);
      if (row < queries)
        cp_async(t, of_q, tile_at<T>(row, lane * pack, width, row_phase(row)), q, row * width + lane * pack);
    }
    cp_async_commit(t);
    cp_async_wait<0>(t);
    t.sync_warp();

    Registers<FragmentC<T>, keys / 8> scores;
    each<width / pack / 4>([&](auto h) {  // four packs of a row at once: two products deep
      const int row = matrix % 2 * 8 + line, first = (4 * h + matrix / 2) * pack;
      const auto q0 = ldmatrix(t, of_q, tile_at<T>(row, first, width, row_phase(row)));
      const auto q1 = ldmatrix(t, of_q, tile_at<T>(row, first + 2 * pack, width, row_phase(row)));
      each<keys / 8>([&](auto c) {
        const int key = key_of_column<keys>(8 * c + line);
        const int phase = wrong_phase ? row_phase(key) : key_phase<keys>(key);
        const int at = tile_at<T>(key, (4 * h + matrix) * pack, width, phase);
        const auto b = ldmatrix(t, of_k, at);  // line: keys
        mma<T>(t, scores[c], q0, b[Nth<0>{}], b[Nth<1>{}]);
        mma<T>(t, scores[c], q1, b[Nth<2>{}], b[Nth<3>{}]);
      });
    });
    each<keys / 8>([&](auto c) {
      each<4>([&](auto r) {
        const Place at = c_place(lane, r);
        store(s, at.row * keys + key_of_column<keys>(8 * c + at.column), scores[c][r]);
      });
    });

    Registers<FragmentC<T>, width / 8> sums;
    each<keys / depth<T>>([&](auto step) {
      const FragmentA<T> p = as_left_factor(scores, step);
      each<width / 16>([&](auto j) {
        const auto b = of_values(t, of_v, step * depth<T>, j * 16);
        mma<T>(t, sums[Nth<2 * j>{}], p, b[Nth<0>{}], b[Nth<1>{}]);
        mma<T>(t, sums[Nth<2 * j + 1>{}], p, b[Nth<2>{}], b[Nth<3>{}]);
      });
    });
    each<width / 8>([&](auto c) {
      each<4>([&](auto r) { store(o, c_place(lane, r).row * width + 8 * c + c_place(lane, r).column, sums[c][r]); });
    });
  }

  template <int step>
  static WHENCE_HD FragmentA<T> as_left_factor(const Registers<FragmentC<T>, keys / 8>& scores, Nth<step>) {
    FragmentA<T> p;
    if constexpr (per_register<T> == 1) {
      const FragmentC<T>& own = scores[Nth<step>{}];
      p[Nth<0>{}] = to_tf32(own[Nth<0>{}]), p[Nth<1>{}] = to_tf32(own[Nth<2>{}]);
      p[Nth<2>{}] = to_tf32(own[Nth<1>{}]), p[Nth<3>{}] = to_tf32(own[Nth<3>{}]);
    } else {
      const FragmentC<T>&left = scores[Nth<2 * step>{}], &right = scores[Nth<2 * step + 1>{}];
      p[Nth<0>{}] = pack_two<T>(left[Nth<0>{}], left[Nth<1>{}]);
      p[Nth<1>{}] = pack_two<T>(left[Nth<2>{}], left[Nth<3>{}]);
      p[Nth<2>{}] = pack_two<T>(right[Nth<0>{}], right[Nth<1>{}]);
      p[Nth<3>{}] = pack_two<T>(right[Nth<2>{}], right[Nth<3>{}]);
    }
    return p;
  }
  // The right factors of 16 columns: rows from `first` on, in the order of the keys of s.
  static WHENCE_HD Registers<Register<T>, 4> of_values(Thread& t, Shared<T> values, int first, int column) {
    const int lane = t.lane();
    if constexpr (per_register<T> == 1) {  // only matrices of 16 bits can be loaded transposed
      Registers<Register<T>, 4> b;
      each<4>([&](auto r) {
        const int key = key_of_column<keys>(column_of_depth<T>(first + b_place<T>(lane, r % 2, 0).row));
        b[r] =
            to_tf32(load<float>(values, tile_at<T>(key, column + r / 2 * 8 + lane / 4, width, key_phase<keys>(key))));
      });
      return b;
    } else {
      const int matrix = lane / 8, key = key_of_column<keys>(column_of_depth<T>(first + matrix % 2 * 8 + lane % 8));
      return ldmatrix_trans(t, values, tile_at<T>(key, column + matrix / 2 * 8, width, key_phase<keys>(key)));
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

Tensor two_thirds_copied(const Tensor& x) {
  const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  gpu::with_operand(x.dtype(), [&]<class T>(T) {
    launch_kernel(gpu::TwoThirds<T>{global<const T>(x), global<T>(y), static_cast<int>(x.size(0))},
        {.shared_bytes = gpu::TwoThirds<T>::shared_bytes});
  });
  return y;
}

Tensor functions_of(const Tensor& x) {
  const Tensor y = Tensor::empty({6, x.numel()}, DType::f32, x.device());
  launch_kernel(gpu::FunctionsOf{global<const float>(x), global<float>(y), x.numel()}, {});
  return y;
}

Handed handed_on(const Tensor& q, const Tensor& k, const Tensor& v, bool wrong_phase) {
  const auto of = [&] { return Tensor::empty({16, 64}, compute_dtype(q.dtype()), q.device()); };
  const Handed handed{of(), of()};
  gpu::with_operand(q.dtype(), [&]<class T>(T) {
    using C = compute_t<T>;
    launch_kernel(gpu::HandedOn<T>{global<const T>(q), global<const T>(k), global<const T>(v), global<C>(handed.s),
                      global<C>(handed.o), wrong_phase},
        {.shared_bytes = gpu::HandedOn<T>::shared_bytes});
  });
  return handed;
}

}  // namespace whence::test
