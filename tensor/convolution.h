// Convolving every row of [b c i j] along its keys: its sizes, and the plain loops, one number at a time, for duals
// and for shapes that no tile fits.  (DAPE V2, Zheng et al. 2024, arXiv:2410.04798)
//   y[b,o,i,j] = bias[o] + sum_c sum_t w(o,c,t) x[b,c,i,j+t-left]
//   dw(o,c,t)  = sum_{b,i,j} dy[b,o,i,j] x[b,c,i,j+t-left]
// All ways on the CPU add the terms of one y in the same order, and y depends on its own row alone. So a strip of rows has
// the bits of the whole.
#pragma once

#include <algorithm>
#include <cstddef>

#include "tensor/convert.h"
#include "tensor/shape.h"

namespace whence {

constexpr index_t outputs_at_once = 4;  // of the convolution: a block of outputs shares what is read of x

struct Convolution {
  index_t batch, channels, rows, keys;    // of x
  index_t outputs, keys_out, taps, left;  // left < 0 crops

  WHENCE_HD index_t terms() const { return channels * taps; }
  WHENCE_HD index_t output_blocks() const { return (outputs + outputs_at_once - 1) / outputs_at_once; }
  // The kernel as PackKernel lays it out.
  index_t packed_size() const { return output_blocks() * terms() * outputs_at_once; }
  // The place of w(o, c, t) in [o, c, t]. `adjoint` reads that as the kernel of the adjoint convolution: channels and
  // outputs exchanged, taps turned round.
  WHENCE_HD index_t in_kernel(index_t o, index_t c, index_t t, bool adjoint) const {
    return adjoint ? (c * outputs + o) * taps + (taps - 1 - t) : (o * channels + c) * taps + t;
  }

  // A GPU lays out what each tap reads, [c t, i, j'], unless that is x; of so many sequences at once, within 64 MiB.
  bool spreads() const { return taps > 1 || left != 0 || keys != keys_out; }
  index_t sequences_at_once(std::size_t bytes_of_number) const {
    const index_t each = terms() * rows * keys_out * static_cast<index_t>(bytes_of_number);
    return std::clamp<index_t>((index_t{64} << 20) / std::max<index_t>(each, 1), 1, std::max<index_t>(batch, 1));
  }
};

// The kernel as [output blocks, c, t, 4] in compute type, with zeros behind the last output.
template <class T> struct PackKernel {
  Convolution at;  // that will be run
  const T* weight;
  compute_t<T>* packed;
  bool adjoint;
  WHENCE_HD void operator()(index_t i) const {
    const index_t term = i / outputs_at_once % at.terms(),
                  o = i / (outputs_at_once * at.terms()) * outputs_at_once + i % outputs_at_once;
    packed[i] = o < at.outputs ? compute_t<T>(weight[at.in_kernel(o, term / at.taps, term % at.taps, adjoint)])
                               : compute_t<T>(0);
  }
};

template <class T> struct ConvolvePlain {  // one (b, block of 4 outputs, i, j)
  using C = compute_t<T>;
  Convolution at;
  const T *x, *bias;  // bias may be null
  const C* packed;
  T* y;
  WHENCE_HD void operator()(index_t index) const {
    const index_t j = index % at.keys_out, i = index / at.keys_out % at.rows, blocks = (at.outputs + 3) / 4;
    const index_t block = index / (at.keys_out * at.rows) % blocks, b = index / (at.keys_out * at.rows * blocks);
    const index_t first = block * outputs_at_once, count = at.outputs - first < 4 ? at.outputs - first : 4;
    C sums[outputs_at_once] = {};
    for (index_t u = 0; bias && u < count; ++u) sums[u] = C(bias[first + u]);
    for (index_t term = 0; term < at.terms(); ++term) {
      const index_t key = j + term % at.taps - at.left;
      if (key < 0 || key >= at.keys) continue;
      const C value = C(x[((b * at.channels + term / at.taps) * at.rows + i) * at.keys + key]);
      for (index_t u = 0; u < outputs_at_once; ++u)
        sums[u] += packed[(block * at.terms() + term) * outputs_at_once + u] * value;
    }
    for (index_t u = 0; u < count; ++u)
      y[((b * at.outputs + first + u) * at.rows + i) * at.keys_out + j] = convert<T>(sums[u]);
  }
};

template <class T> struct KernelGradientPlain {  // one (run of rows, o, c, t)
  using C = compute_t<T>;
  Convolution at;
  const T *x, *dy;
  C* partial;  // [runs, o, c, t]
  index_t rows_per_run;
  WHENCE_HD void operator()(index_t index) const {
    const index_t size = at.outputs * at.terms(), run = index / size, o = index % size / at.terms(),
                  term = index % at.terms();
    const index_t end = (run + 1) * rows_per_run, all = at.batch * at.rows, shift = term % at.taps - at.left;
    C sum = C(0);
    for (index_t row = run * rows_per_run; row < (end < all ? end : all); ++row) {
      const index_t b = row / at.rows, i = row % at.rows;
      const T* g = dy + ((b * at.outputs + o) * at.rows + i) * at.keys_out;
      const T* from = x + ((b * at.channels + term / at.taps) * at.rows + i) * at.keys;
      const index_t begin = shift < 0 ? -shift : 0,
                    last = at.keys - shift < at.keys_out ? at.keys - shift : at.keys_out;
      for (index_t j = begin; j < last; ++j) sum += C(g[j]) * C(from[j + shift]);
    }
    partial[index] = sum;
  }
};

}  // namespace whence
