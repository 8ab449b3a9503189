// Tiled attention: the equations that a device must compute. How it does so is its own.
//   S_ij  = scale q_i.k_j                                                            content scores
//   A_ij  = S_ij + table[h, i-j] + r_i[i-j] + piece_ij + slope_i (column_j + rest_j) + scan_ij
//   P     = softmax over the keys that row i sees = e^{A_ij - m_i} / Z_i,  m_i = max_j A_ij
//   o_i   = sum_j drop(P_ij) v_j,  bins_i[n] = sum_{j: bin(i-j) = n} drop(P_ij)
// drop(P) is 0 with probability `dropout`, else P / (1 - dropout). The softmax keeps a running maximum (Milakov and
// Gimelshein 2018; Dao et al. 2022). A row that sees no key has o = 0. A row whose logits are all -inf has NaN, as
// softmax has.
// Stick-breaking attention replaces the softmax, under a causal mask:
//   P_ij  = beta_ij prod_{j<l<i} (1 - beta_il),  beta_ij = sigmoid(S_ij) where i sees j and j < i
//   P_ii  = prod_{l<i} (1 - beta_il) where rest_to_self and i sees i, else 0
// No tensor of [i j] is made: pairs read O(i + j) numbers, and backward computes the pairs again from m and Z. Each
// term is a tile program: it adds to the tile in forward, and in backward sums the tile's gradient into its own
// operands. A program whose operand is undefined is skipped.
//
//   by distance          table [h n]: distance m steps reads row m - lowest, 0 beyond the table
//   by row and distance  r_i[m] = relative_scale p_i.r[m], p [b h i d], r [1|h n d]
//   piecewise (FIRE, Li et al. 2024)
//                        slope_h[n] a + offset_h[n], a = row_i distance[i-j] in piece n: begin[n] < a <= begin[n+1],
//                        distance [n], row [b h i], begin [s] without a gradient, slopes and offsets [h s]
//   column               [b h j]; a number for each row would have no effect, since softmax ignores it
//                        rest [b h j]: what f32 lost of a column in f64, a sum over many tokens. A row subtracts
//                        column and rest separately. slope [b h i], 1 if undefined.
//                        The gradients of column and rest together are that of the column
//   row scan (CoPE, Golovneva et al. 2024, Eq. 3 and 4)
//                        g_ij = sigmoid(S_ij), or of gate_scale gq_i.gk_j; 0 where i does not see j
//                        p_ij = sum_{l=j..i} g_il
//                        scan_ij = (1-w) z_i[floor p'] + w z_i[ceil p'], p' = min(p, n - 1), z [b h i n]
//                        or slope_h p_ij, slopes [h]
//
// A sink [h] is one more logit in every row, without key or value: e^{sink_h - m_i} is a part of Z_i.
//
// The head mix of DAPE and CDAPE (arXiv:2405.14722 and 2410.04798): the scores of one head enter the logits of all.
//   A_hij       = S_hij + piece_hij + table[h, i-j] + sum_{d,t} W2[h d t] hidden_d[i, j + t - left]
//   hidden_d[i, c] = leaky_relu(u[e, d, i-c] + sum_{x,t} W1[d x t] X_x[i, c + t - left])
// mix_input W1 [d x t], mix_table u [e d n], mix_output W2 [h d t], t < left + 1 + right. u holds b1, and W1 applied to
// the part of the base's bias that is a table by distance; e = min(c - first key that is present, left) columns are on
// the left of c. Pieces add a channel for each head after those of the scores: X = [S, piece] where i sees j, else 0.
// Without pieces X = S.
#pragma once

#include <array>

#include "tensor/random.h"
#include "tensor/tensor.h"
#include "tensor/tiled_operands.h"

namespace whence {

// A call of either op: its facts, while the operands stand beside it. A head mix refuses steps, stick and bins.
struct TiledCall : TiledOperands {
  using Operands = std::array<Tensor, operand_count>;  // one dtype: f32, f64 or dual

  double scale = 1;
  bool causal = true;
  index_t first_row = 0;  // query i is token first_row + i of the keys
  // i64 [1]: first_row, if only the device knows it; `first_row` is then its upper bound. Forward on a GPU.
  Tensor row = {};
  index_t window = 0;   // query i sees only keys closer than `window`; tiles without any are skipped; 0: no limit
  Tensor present = {};  // bool [b j], contiguous; undefined: no padding. The keys that are present must be contiguous.
  // Query i and key j are query_step[i] - key_step[j] steps apart (causal: 0 or more). Undefined: first_row + i - j.
  Tensor query_step = {}, key_step = {};
  index_t lowest = 0;  // the step that row 0 of a table by distance holds
  bool stick = false, rest_to_self = false;
  Tensor bin_of = {};  // i64 [n]: m steps are in bin bin_of[m - lowest], which is below `bins`
  index_t bins = 0;
  double relative_scale = 1, gate_scale = 1, position_scale = 1;

  // Number ((b h' + h) total_rows + first_row + i) j' + j of the stream decides if P_ij is kept; h' heads, j' keys.
  double dropout = 0;  // in [0, 1)
  Stream stream = {};
  index_t total_rows = 0;

  // The head mix alone.
  bool mixes = false;                        // this is one
  index_t left = 0, right = 0;               // taps on either side
  index_t table_lowest = 0;                  // the step that u's row 0 holds
  index_t behind = 0;                        // columns of hidden after the last key, if the run continues
  bool remask = false;                       // hidden is 0 where row i does not see the column
  bool adds_pieces = true;                   // false: the mix alone reads pieces, which are not added to A
  double slope = 0.01;                       // of leaky_relu
  index_t scratch_bytes = index_t(1) << 30;  // the limit for pairs on a GPU (tensor/tiles/gpu_programs.h)

  Ops op() const { return mixes ? mix : attention; }
  const char* name() const { return mixes ? "tiled_mix" : "tiled_attention"; }
  // Runs on the CPU, and on a GPU if gpu_refusal (tensor/tiles/gpu_programs.h) is empty; the planned CPU
  // (tensor/device/planned.cpp) takes the same memory and computes nothing. Rows are contiguous: output [b h i c],
  // bin_sums [b h i n] or undefined, norms [b h i 2]: what backward needs of each row.
  void forward(const Operands& x, const Tensor& output, const Tensor& bin_sums, const Tensor& norms) const;
  // d: where each operand's gradient is written; undefined if it is not wanted.
  void backward(const Operands& x, const Tensor& output, const Tensor& bin_sums, const Tensor& norms,
      const Tensor& d_output, const Tensor& d_bins, const Operands& d) const;
};

}  // namespace whence
