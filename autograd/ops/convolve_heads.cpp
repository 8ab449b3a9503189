// Convolve the scores of each head by a kernel of its own, over earlier queries and keys on both sides.  (MTA, Golovneva
// et al. 2025, arXiv:2504.00927)                    x:[b h i j]  kernel w:[h q k], k odd  ->  y:[b h i j]
//   y[i,j]  = sum_{a<q} sum_{c<k} w[a,c] x[i-q+1+a, j-k/2+c]     x is zero outside
//   dx[i,j] = sum_{a<q} sum_{c<k} w[a,c] dy[i+q-1-a, j+k/2-c]    the same with the kernel flipped: over later queries
//   dw[a,c] = sum_{b,i,j} dy[i,j] x[i-q+1+a, j-k/2+c]
// Row i has keys up to i + reach. Keys after them count as 0 in x and are 0 in y; they take no time.
// The sums are linear in each argument, and the derivatives of each are the other two. So second derivatives exist.
#include "autograd/convolve_heads.h"

#include "autograd/op.h"
#include "autograd/ops.h"
#include "tensor/launch.h"
#include "tensor/raw.h"

namespace whence {
namespace {

constexpr index_t most_taps = 63;

WHENCE_HD index_t least(index_t a, index_t b) { return a < b ? a : b; }

struct Facts {
  index_t heads, rows, keys, queries, taps, reach;
  bool flipped;

  WHENCE_HD index_t end_of(index_t row) const { return least(row + reach + 1, keys); }
  // Returns the row that row i reads with kernel row a; it is below 0 or at least `rows` if there is none.
  WHENCE_HD index_t row_read(index_t i, index_t a) const { return flipped ? i + queries - 1 - a : i - queries + 1 + a; }
  WHENCE_HD index_t place_read(index_t c) const {
    return flipped ? taps - 1 - c : c;
  }  // index of a tap, from the first one
};

Facts facts_of(const Tensor& x, const Shape& kernel, index_t reach, bool flipped) {
  return {x.size(1), x.size(2), x.size(3), kernel[1], kernel[2], reach, flipped};
}

// to[n] = x[begin + n] in compute type, 0 where the row has no such key.
template <class T, class C> WHENCE_HD void load_keys(const T* x, index_t begin, index_t count, index_t end, C* to) {
  const index_t low = begin < 0 ? least(-begin, count) : 0, last = least(end - begin, count);
  for (index_t n = 0; n < low; ++n) to[n] = C(0);
#pragma omp simd
  for (index_t n = low; n < last; ++n) to[n] = C(x[begin + n]);
  for (index_t n = last > low ? last : low; n < count; ++n) to[n] = C(0);
}

// One index is a tile of a row.
template <class T, index_t tile> struct ConvolveTile {
  const T *x, *weight;
  T* y;
  Facts at;
  index_t blocks;  // tiles of a row
  WHENCE_HD void operator()(index_t index) const {
    using C = compute_t<T>;
    const index_t line = index / blocks, plane = line / at.rows, i = line % at.rows, begin = index % blocks * tile,
                  all = least(begin + tile, at.keys), end = at.end_of(i),
                  count = least(end, all) - begin;  // number of keys that are not 0
    C sums[tile] = {}, moved[tile + most_taps - 1];
    for (index_t a = 0; a < at.queries && count > 0; ++a) {
      const index_t row = at.row_read(i, a);
      if (row < 0 || row >= at.rows) continue;
      load_keys(x + (plane * at.rows + row) * at.keys, begin - at.taps / 2, count + at.taps - 1, at.end_of(row), moved);
      const T* const w = weight + (plane % at.heads * at.queries + a) * at.taps;
      index_t c = 0;
      for (; c + 4 <= at.taps; c += 4) {
        const C w0 = w[c], w1 = w[c + 1], w2 = w[c + 2], w3 = w[c + 3];
        const C *x0 = moved + at.place_read(c), *x1 = moved + at.place_read(c + 1), *x2 = moved + at.place_read(c + 2),
                *x3 = moved + at.place_read(c + 3);
#pragma omp simd
        for (index_t n = 0; n < count; ++n) sums[n] += (w0 * x0[n] + w1 * x1[n]) + (w2 * x2[n] + w3 * x3[n]);
      }
      for (; c < at.taps; ++c)
        for (index_t n = 0; n < count; ++n) sums[n] += C(w[c]) * moved[at.place_read(c) + n];
    }
    for (index_t j = begin; j < all; ++j)
      y[line * at.keys + j] = j < end ? static_cast<T>(sums[j - begin]) : static_cast<T>(C(0));
  }
};

template <class C> WHENCE_HD C dot(const C* a, const C* b, index_t count) {
  C sum = C(0);
  if constexpr (std::is_same_v<C, Dual>) {
    for (index_t n = 0; n < count; ++n) sum += a[n] * b[n];
  } else {
#pragma omp simd reduction(+ : sum)
    for (index_t n = 0; n < count; ++n) sum += a[n] * b[n];
  }
  return sum;
}

// One index is the contribution of a row of g to a row of its head's kernel.
template <class T, index_t tile> struct KernelOfRow {
  const T *g, *x;
  compute_t<T>* sums;  // [b h i q k]
  Facts at;
  WHENCE_HD void operator()(index_t index) const {
    using C = compute_t<T>;
    const index_t line = index / at.queries, a = index % at.queries, i = line % at.rows, row = at.row_read(i, a),
                  end = at.end_of(i);
    C *const to = sums + index * at.taps, given[tile], moved[tile + most_taps - 1];
    for (index_t c = 0; c < at.taps; ++c) to[c] = C(0);
    if (row < 0 || row >= at.rows) return;
    for (index_t begin = 0; begin < end; begin += tile) {
      const index_t count = least(tile, end - begin);
      load_keys(g + line * at.keys, begin, count, end, given);
      load_keys(x + (line - i + row) * at.keys, begin - at.taps / 2, count + at.taps - 1, at.end_of(row), moved);
      for (index_t c = 0; c < at.taps; ++c) to[c] += dot<C>(given, moved + at.place_read(c), count);
    }
  }
};

// Calls f with the number of keys that an index holds at once: vectors of them on a CPU, few on a GPU.
template <class F> void with_tile(Device device, const F& f) {
  if (device.is_cpu())
    f(std::integral_constant<index_t, 256>{});
  else
    f(std::integral_constant<index_t, 16>{});
}

struct ConvolveHeads {
  static constexpr const char* name = "convolve_heads";
  static constexpr std::size_t factor = 1;
  index_t reach;
  bool flipped = false;
  struct Saved {
    SavedTensor x, weight;
  };
  Tensor forward(Saved& saved, const Tensor& x, const Tensor& weight) const {
    check(x, weight);
    saved.x = x, saved.weight = weight;
    const Tensor from = raw::contiguous(x), kernel = raw::contiguous(weight), y = Tensor::like(from, x.shape());
    const Facts at = facts_of(x, weight.shape(), reach, flipped);
    visit_floating(name, x.dtype(), [&]<class T>(Type<T>) {
      with_tile(x.device(), [&]<index_t tile>(std::integral_constant<index_t, tile>) {
        const index_t blocks = (at.keys + tile - 1) / tile;
        launch(name, x.device(), x.size(0) * at.heads * at.rows * blocks,
            ConvolveTile<T, tile>{from.data<T>(), kernel.data<T>(), y.data<T>(), at, blocks},
            least(tile, at.keys) * at.queries * at.taps);
      });
    });
    return y;
  }
  Grads<2> backward(const Saved& saved, const Tensor& dy, Needs<2> needs) const;

  void check(const Tensor& x, const Tensor& weight) const {
    raw::require_floating(name, "x", x);
    raw::require_alike(name, "x", x, "weight", weight);
    if (x.rank() != 4) fail(name, "x is ", x.shape(), "; [b, h, i, j] required");
    if (weight.rank() != 3 || weight.size(0) != x.size(1) || weight.size(1) < 1 || weight.size(2) % 2 == 0 ||
        weight.size(2) > most_taps)
      fail(name, "x is ", x.shape(), ", weight is ", weight.shape(), "; weight [", x.size(1),
          ", q, k] with k odd and at most ", most_taps, " required");
    if (reach < 0) fail(name, "reach ", reach, " given; 0 or more required");
  }
};

// dw[a,c] = sum_{b,i,j} g[i,j] x[the key that tap a, c reads]
struct HeadKernelGradient {
  static constexpr const char* name = "convolve_heads_kernel_gradient";
  static constexpr std::size_t factor = 1;
  index_t reach, queries, taps;
  bool flipped = false;
  struct Saved {
    SavedTensor g, x;
  };
  Tensor forward(Saved& saved, const Tensor& g, const Tensor& x) const {
    saved.g = g, saved.x = x;
    const Tensor given = raw::contiguous(g), from = raw::contiguous(x),
                 sums = Tensor::empty(
                     {x.size(0), x.size(1), x.size(2), queries, taps}, compute_dtype(x.dtype()), x.device());
    const Facts at = facts_of(x, {x.size(1), queries, taps}, reach, flipped);
    visit_floating(name, x.dtype(), [&]<class T>(Type<T>) {
      with_tile(x.device(), [&]<index_t tile>(std::integral_constant<index_t, tile>) {
        launch(name, x.device(), sums.numel() / taps,
            KernelOfRow<T, tile>{given.data<T>(), from.data<T>(), sums.data<compute_t<T>>(), at}, at.keys * taps);
      });
    });
    return raw::cast(raw::reduce(Reduction::sum, sums, {0, 2}, false), x.dtype());
  }
  Grads<2> backward(const Saved& saved, const Tensor& dz, Needs<2> needs) const {
    Grads<2> grads;
    if (needs[0]) grads[0] = apply(ConvolveHeads{reach, flipped}, Site::current(), saved.x.get(), dz);
    if (needs[1]) grads[1] = apply(ConvolveHeads{reach, !flipped}, Site::current(), saved.g.get(), dz);
    return grads;
  }
};

Grads<2> ConvolveHeads::backward(const Saved& saved, const Tensor& dy, Needs<2> needs) const {
  const Tensor weight = saved.weight.get();
  Grads<2> grads;
  if (needs[0]) grads[0] = apply(ConvolveHeads{reach, !flipped}, Site::current(), dy, weight);
  if (needs[1])
    grads[1] =
        apply(HeadKernelGradient{reach, weight.size(1), weight.size(2), flipped}, Site::current(), dy, saved.x.get());
  return grads;
}

}  // namespace

Tensor convolve_heads(const Tensor& x, const Tensor& weight, index_t reach, Site site) {
  return apply(ConvolveHeads{reach}, site, x, weight);
}

}  // namespace whence
