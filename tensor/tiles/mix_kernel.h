// The head mix of DAPE and CDAPE in tiles: the scores of one head go into the logits of all. As attention_kernel.h, with
//   A_hij       = S_hij + B_hij + table[h, i-j] + sum_{d,t} W2[h d t] hidden_d[i, j + t - left]
//   hidden_d[i, c] = leaky_relu(u[e, d, i-c] + sum_{x,t} W1[d x t] X_x[i, c + t - left])
// Operands: mix_input W1 [d x t], mix_table u [e d n], mix_output W2 [h d t], t < left + 1 + right. u holds b1 and what
// W1 makes of the part of the base's bias that a table by distance says:
//   e = min(c - first key that is present, left) columns lie on the left of c       (arXiv:2405.14722 and 2410.04798)
// B is the part that is piecewise (FIRE), of the same operands as in attention_kernel.h. It is a channel for each head
// behind those of the scores: X = [S, B] where i sees j, else 0. Without pieces X = S, and B = 0.
#pragma once

#include "tensor/tiles/attention_kernel.h"

namespace whence {

struct TiledMix : TiledFacts {
  index_t left = 0, right = 0;               // taps on either side
  index_t table_lowest = 0;                  // the steps of u's row 0
  index_t behind = 0;                        // columns of hidden behind the last key, where the run goes on
  bool remask = false;                       // hidden is 0 where row i does not see the column
  bool adds_pieces = true;                   // false: B is read by the mix alone, and not added to A
  double slope = 0.01;                       // of leaky_relu
  index_t scratch_bytes = index_t(1) << 30;  // that a GPU may take for pairs (tensor/tiles/gpu_programs.h)

  // As those of TiledAttention.
  void forward(const Operands& x, const Tensor& output, const Tensor& norms) const;
  void backward(
      const Operands& x, const Tensor& output, const Tensor& norms, const Tensor& d_output, const Operands& d) const;
};

}  // namespace whence
