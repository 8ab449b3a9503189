// Convolution of rows along their keys on the CPU, in tiles that stay in cache and registers.
#include <algorithm>
#include <vector>

#include "tensor/convolution.h"
#include "tensor/kernels.h"
#include "tensor/kernels/rows.h"
#include "tensor/parallel.h"
#include "tensor/raw.h"

namespace whence {
namespace {

#pragma omp declare reduction(+ : Dual : omp_out += omp_in)

constexpr index_t outputs_at_once = 4;  // outputs that share each read of x
constexpr index_t taps_at_once = 4;     // 4 outputs by 4 taps: 16 numbers of the kernel stay in registers
constexpr index_t tile = 256;           // keys at once

// A convolution cut into units: each is one row's tile of keys, for all channels. Channels of a row are `plane` apart.
struct Units : Convolution {
  explicit Units(const Convolution& at) : Convolution(at) {}
  index_t tiles = (keys_out + tile - 1) / tile, count = batch * rows * tiles;
  // At most 64 chunks: their number depends on the shape alone.
  index_t each =
      std::max((count + 63) / 64, std::max<index_t>(1, 65536 / std::max<index_t>(outputs * terms() * tile, 1)));
  index_t width = tile + taps - 1, plane = rows * keys, plane_out = rows * keys_out;  // width: of x, for a tile

  index_t first_key(index_t unit) const { return unit % tiles * tile; }
  index_t keys_of(index_t unit) const { return std::min(tile, keys_out - first_key(unit)); }
  index_t row_of_x(index_t unit) const { return unit / tiles / rows * channels * plane + unit / tiles % rows * keys; }
  index_t row_of_y(index_t unit) const {
    return unit / tiles / rows * outputs * plane_out + unit / tiles % rows * keys_out;
  }
};

index_t output_blocks(const Convolution& at) { return (at.outputs + outputs_at_once - 1) / outputs_at_once; }

// The kernel as [output blocks, c, t, 4] in compute type, with zeros after the last output.
template <class T> std::vector<compute_t<T>> packed_kernel(const Convolution& at, const T* weight, bool adjoint) {
  std::vector<compute_t<T>> packed(static_cast<std::size_t>(output_blocks(at) * at.terms() * outputs_at_once));
  for (index_t o = 0; o < at.outputs; ++o)
    for (index_t term = 0; term < at.terms(); ++term) {
      const index_t place = (o / outputs_at_once * at.terms() + term) * outputs_at_once + o % outputs_at_once;
      packed[static_cast<std::size_t>(place)] =
          compute_t<T>(weight[at.in_kernel(o, term / at.taps, term % at.taps, adjoint)]);
    }
  return packed;
}

// Adds to out[u][j] the sum over s of weights[s][u] rows[s][j], for four outputs u.
template <index_t taps, class C> void add_taps(const C* const* rows, const C* weights, C* out, index_t count) {
  C w[taps * outputs_at_once];
  const C* from[taps];
  std::copy_n(weights, taps * outputs_at_once, w);
  std::copy_n(rows, taps, from);
  C *out0 = out, *out1 = out + tile, *out2 = out + 2 * tile, *out3 = out + 3 * tile;
#pragma omp simd
  for (index_t j = 0; j < count; ++j) {
    C sum0 = out0[j], sum1 = out1[j], sum2 = out2[j], sum3 = out3[j];
    for (index_t s = 0; s < taps; ++s) {
      const C value = from[s][j];
      sum0 += w[4 * s] * value, sum1 += w[4 * s + 1] * value, sum2 += w[4 * s + 2] * value,
          sum3 += w[4 * s + 3] * value;
    }
    out0[j] = sum0, out1[j] = sum1, out2[j] = sum2, out3[j] = sum3;
  }
}

// Adds to into[u][s] the sum over j of g[u][j] x[s][j], for four outputs u and four terms s.
template <class C> void add_products(const C* const* g, const C* const* x, index_t count, C* into) {
  const C *g0 = g[0], *g1 = g[1], *g2 = g[2], *g3 = g[3], *x0 = x[0], *x1 = x[1], *x2 = x[2], *x3 = x[3];
  C a0 = 0, a1 = 0, a2 = 0, a3 = 0, b0 = 0, b1 = 0, b2 = 0, b3 = 0, c0 = 0, c1 = 0, c2 = 0, c3 = 0, d0 = 0, d1 = 0,
    d2 = 0, d3 = 0;
#pragma omp simd reduction(+ : a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3)
  for (index_t j = 0; j < count; ++j) {
    a0 += g0[j] * x0[j], a1 += g0[j] * x1[j], a2 += g0[j] * x2[j], a3 += g0[j] * x3[j];
    b0 += g1[j] * x0[j], b1 += g1[j] * x1[j], b2 += g1[j] * x2[j], b3 += g1[j] * x3[j];
    c0 += g2[j] * x0[j], c1 += g2[j] * x1[j], c2 += g2[j] * x2[j], c3 += g2[j] * x3[j];
    d0 += g3[j] * x0[j], d1 += g3[j] * x1[j], d2 += g3[j] * x2[j], d3 += g3[j] * x3[j];
  }
  const C sums[] = {a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3};
  for (int k = 0; k < 16; ++k) into[k] += sums[k];
}

// Loads a tile of every channel of one row, contiguous in compute type, zeros outside: to[c][s] = x[c][begin + s].
template <class T, class C>
void load_tile(
    const T* x, index_t channels, index_t channel_stride, index_t keys, index_t begin, index_t width, C* to) {
  const index_t low = std::clamp<index_t>(-begin, 0, width), high = std::clamp<index_t>(keys - begin, low, width);
  for (index_t c = 0; c < channels; ++c, to += width) {
    std::fill(to, to + low, C(0));
    if (high > low) load_block(x + c * channel_stride + begin + low, 1, high - low, to + low);
    std::fill(to + high, to + width, C(0));
  }
}

// Returns where a tile holds each term (c, t) of the sum.
template <class C> std::vector<const C*> rows_of_terms(const Convolution& at, const C* buffer, index_t width) {
  std::vector<const C*> rows;
  for (index_t c = 0; c < at.channels; ++c)
    for (index_t t = 0; t < at.taps; ++t) rows.push_back(buffer + c * width + t);
  return rows;
}

template <class C> void sum_terms(const std::vector<const C*>& rows, const C* weights, C* out, index_t count) {
  const index_t terms = static_cast<index_t>(rows.size());
  index_t term = 0;
  for (; term + taps_at_once <= terms; term += taps_at_once)
    add_taps<taps_at_once>(&rows[static_cast<std::size_t>(term)], weights + term * outputs_at_once, out, count);
  for (; term < terms; ++term)
    add_taps<1>(&rows[static_cast<std::size_t>(term)], weights + term * outputs_at_once, out, count);
}

template <class T> void convolve_tiles(const Units& at, const T* x, const compute_t<T>* packed, const T* bias, T* y) {
  using C = compute_t<T>;
  parallel_for(at.count, at.each, [&](index_t begin, index_t end) {
    std::vector<C> buffer(static_cast<std::size_t>(at.channels * at.width)),
        out(static_cast<std::size_t>(outputs_at_once * tile));
    const std::vector<const C*> rows = rows_of_terms(at, buffer.data(), at.width);
    for (index_t unit = begin; unit < end; ++unit) {
      const index_t first = at.first_key(unit), count = at.keys_of(unit);
      load_tile(x + at.row_of_x(unit), at.channels, at.plane, at.keys, first - at.left, at.width, buffer.data());
      T* row = y + at.row_of_y(unit) + first;
      for (index_t o = 0; o < at.outputs; o += outputs_at_once) {
        const index_t valid = std::min(outputs_at_once, at.outputs - o);
        for (index_t u = 0; u < valid; ++u) std::fill_n(out.data() + u * tile, count, bias ? C(bias[o + u]) : C(0));
        sum_terms(rows, packed + o * at.terms(), out.data(), count);
        for (index_t u = 0; u < valid; ++u) store_block(out.data() + u * tile, count, row + (o + u) * at.plane_out, 1);
      }
    }
  });
}

// The kernel's gradient from the rows of each chunk: [chunks, output blocks * blocks of 4 terms * 4 outputs * 4 terms].
template <class T> Tensor kernel_gradient_tiles(const Units& at, const T* x, const T* dy) {
  using C = compute_t<T>;
  const index_t term_blocks = (at.terms() + 3) / 4, size = output_blocks(at) * term_blocks * 16;
  const Tensor partial = Tensor::zeros({(at.count + at.each - 1) / at.each, size}, dtype_of<C>);
  C* sums = partial.data<C>();
  parallel_for(at.count, at.each, [&](index_t begin, index_t end) {
    std::vector<C> buffer(static_cast<std::size_t>(at.channels * at.width)),
        given(static_cast<std::size_t>(at.outputs * tile));
    std::vector<const C*> rows = rows_of_terms(at, buffer.data(), at.width), outputs;
    for (index_t o = 0; o < at.outputs; ++o) outputs.push_back(given.data() + o * tile);
    // Blocks of four are padded by repeating the last one; those sums are not read.
    rows.resize(static_cast<std::size_t>(term_blocks * 4), rows.back());
    outputs.resize(static_cast<std::size_t>(output_blocks(at) * 4), outputs.back());
    C* into = sums + begin / at.each * size;
    for (index_t unit = begin; unit < end; ++unit) {
      const index_t first = at.first_key(unit);
      load_tile(x + at.row_of_x(unit), at.channels, at.plane, at.keys, first - at.left, at.width, buffer.data());
      load_tile(dy + at.row_of_y(unit), at.outputs, at.plane_out, at.keys_out, first, tile, given.data());
      for (index_t k = 0; k < size / 16; ++k)
        add_products(&outputs[static_cast<std::size_t>(k / term_blocks * 4)],
            &rows[static_cast<std::size_t>(k % term_blocks * 4)], at.keys_of(unit), into + k * 16);
    }
  });
  return partial;
}

// Padded blocks of 4 x 4 -> [o, c t].
Tensor in_order(const Convolution& at, const Tensor& partial) {
  const index_t outputs = output_blocks(at), terms = (at.terms() + 3) / 4;
  const Tensor blocks = raw::reshape(raw::reduce(Reduction::sum, partial, {0}, false), {outputs, terms, 4, 4});
  const Tensor filled_up = raw::reshape(raw::permute(blocks, {0, 2, 1, 3}), {outputs * 4, terms * 4});
  return raw::slice(raw::slice(filled_up, 0, 0, at.outputs), 1, 0, at.terms());
}

}  // namespace

void Kernels::convolve_keys(
    const Convolution& at, const Tensor& x, const Tensor& weight, bool adjoint, const Tensor& bias, const Tensor& y) {
  visit_floating("convolve_keys", x.dtype(), [&]<class T>(Type<T>) {
    const T* added = bias.defined() ? bias.data<T>() : nullptr;
    convolve_tiles<T>(Units(at), x.data<T>(), packed_kernel(at, weight.data<T>(), adjoint).data(), added, y.data<T>());
  });
}

void Kernels::convolve_keys_weight(const Convolution& at, const Tensor& x, const Tensor& dy, const Tensor& dweight) {
  visit_floating("convolve_keys", x.dtype(), [&]<class T>(Type<T>) {
    const Tensor sums = in_order(at, kernel_gradient_tiles<T>(Units(at), x.data<T>(), dy.data<T>()));
    copy(raw::reshape(sums, dweight.shape()), dweight);
  });
}

}  // namespace whence
