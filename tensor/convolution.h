// Convolution of every row of [b c i j] along its keys.  (DAPE V2, Zheng et al. 2024, arXiv:2410.04798)
//   y[b,o,i,j] = bias[o] + sum_c sum_t w(o,c,t) x[b,c,i,j+t-left]
//   dw(o,c,t)  = sum_{b,i,j} dy[b,o,i,j] x[b,c,i,j+t-left]
// All implementations on the CPU add the terms of one y in the same order, and y depends on its own row alone. So a
// strip of rows has the same bits as the whole.
#pragma once

#include <algorithm>
#include <cstddef>

#include "tensor/shape.h"

namespace whence {

struct Convolution {
  index_t batch, channels, rows, keys;    // of x
  index_t outputs, keys_out, taps, left;  // left < 0 crops

  WHENCE_HD index_t terms() const { return channels * taps; }
  // in_kernel returns the index of w(o, c, t) in [o, c, t]. With `adjoint` it indexes the kernel of the adjoint
  // convolution: channels and outputs exchanged, taps reversed.
  WHENCE_HD index_t in_kernel(index_t o, index_t c, index_t t, bool adjoint) const {
    return adjoint ? (c * outputs + o) * taps + (taps - 1 - t) : (o * channels + c) * taps + t;
  }

  // On a GPU, [c t i j'] holds what each tap reads, unless that is x itself. sequences_at_once keeps it within 64 MiB.
  bool spreads() const { return taps > 1 || left != 0 || keys != keys_out; }
  index_t sequences_at_once(std::size_t bytes_of_number) const {
    const index_t each = terms() * rows * keys_out * static_cast<index_t>(bytes_of_number);
    return std::clamp<index_t>((index_t{64} << 20) / std::max<index_t>(each, 1), 1, std::max<index_t>(batch, 1));
  }
};

}  // namespace whence
