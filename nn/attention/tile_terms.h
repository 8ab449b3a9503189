// TileTerms: what schemes give to the tile programs, tensors of O(i + j) numbers made by ordinary ops, so that
// gradients reach parameters as usual. Only the programs compute pairs (nn/attention/executor_tiled.cpp).
#pragma once

#include <array>
#include <memory>
#include <string>

#include "nn/attention/distances.h"
#include "tensor/tiled_operands.h"

namespace whence {

// Settings of a head mix (DAPE, CDAPE); its operands are tensors.
struct HeadMix {
  bool adds_pieces = true;      // false: only the mix reads the pieces; they are not added to the logits
  index_t left = 0, right = 0;  // taps on either side
  index_t behind = 0;           // columns of the hidden map after the last key, if the run continues
  bool remask = false;          // the hidden map is 0 where row i does not see the column
};

// The terms of one attention. Each function adds one term, or refuses; refusal() then checks all of them together.
class TileTerms {
 public:
  virtual ~TileTerms() = default;

  std::array<Tensor, TiledOperands::operand_count> operands;  // [b h i d], [b h j d] and so on
  bool has(TiledOperands::Operand which) const { return operands[which].defined(); }
  // Sets the distances at which tables are read: those of a context (whole_distances). Returns null if this call is
  // refused, before or now: there are no distances, or others are already read.
  virtual const Distances* read(const std::optional<Distances>& distances) = 0;
  virtual const std::optional<Distances>& distances_read() const = 0;

  // Tables by distance, [h n] for the current distances, are summed, and so are columns, [b h j]. (A number for each
  // query would have no effect, because softmax ignores it.) Any other operand is given once. `scale` multiplies the
  // product with a relative query, a gate query or position keys.
  virtual void add(TiledOperands::Operand which, const Tensor& x, double scale = 1) = 0;
  // bins[m]: the bin, of `count`, for a distance of m steps, i64 [n]; values [count d]
  virtual void add_bins(const Tensor& bins, const Tensor& values) = 0;
  virtual void mix_heads(const HeadMix& told) = 0;
  virtual void break_stick(bool rest_to_self) = 0;
  // Multiplies all logits of query i by factor[i], [b h i 1]. Then no term may be added to the scores.
  virtual void scale_queries(const Tensor& factor) = 0;

  // Returns new terms for a bias that a head mix reads.
  [[nodiscard]] virtual std::unique_ptr<TileTerms> of_base(const AttendContext& context) const = 0;

  // Says that this call cannot run in tiles, and why: "what is given; what is required". The first reason counts.
  virtual void refuse(std::string reason) = 0;
  // Returns why these terms do not run in tiles; empty if they do.
  [[nodiscard]] virtual std::string refusal() const = 0;
};

// A scheme whose stages can also run as tile programs. `context` has rotated queries and keys, but no scores.
struct RunsInTiles {
  virtual ~RunsInTiles() = default;
  // Adds its terms, or refuses if this call needs the composed form.
  virtual void add_to_tiles(TileTerms& terms, const AttendContext& context) const = 0;
  // Returns which of its terms have programs on the CPU alone (tensor/tiles/gpu_programs.h), so that they are not made
  // on a GPU; empty if there are none.
  [[nodiscard]] virtual std::string only_on_cpu() const { return {}; }
};

}  // namespace whence
