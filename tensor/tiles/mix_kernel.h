// The head mix of DAPE and CDAPE in tiles: the scores of one head enter the logits of all. As attention_kernel.h, with
//   A_hij       = S_hij + B_hij + table[h, i-j] + sum_{d,t} W2[h d t] hidden_d[i, j + t - left]
//   hidden_d[i, c] = leaky_relu(u[e, d, i-c] + sum_{x,t} W1[d x t] X_x[i, c + t - left])
// Operands: mix_input W1 [d x t], mix_table u [e d n], mix_output W2 [h d t], t < left + 1 + right. u holds b1, and W1
// applied to the part of the base's bias that is a table by distance:
//   e = min(c - first key that is present, left) columns are on the left of c       (arXiv:2405.14722 and 2410.04798)
// B is the piecewise part (FIRE), with the same operands as in attention_kernel.h. It adds a channel for each head
// after those of the scores: X = [S, B] where i sees j, else 0. Without pieces X = S, and B = 0.
#pragma once

#include "tensor/tiles/attention_kernel.h"

namespace whence {

struct TiledMix : TiledFacts {
  index_t left = 0, right = 0;               // taps on either side
  index_t table_lowest = 0;                  // the step that u's row 0 holds
  index_t behind = 0;                        // columns of hidden after the last key, if the run continues
  bool remask = false;                       // hidden is 0 where row i does not see the column
  bool adds_pieces = true;                   // false: the mix alone reads B, which is not added to A
  double slope = 0.01;                       // of leaky_relu
  index_t scratch_bytes = index_t(1) << 30;  // the limit for pairs on a GPU (tensor/tiles/gpu_programs.h)

  // As in TiledAttention.
  void forward(const Operands& x, const Tensor& output, const Tensor& norms) const;
  void backward(
      const Operands& x, const Tensor& output, const Tensor& norms, const Tensor& d_output, const Operands& d) const;
};

}  // namespace whence
