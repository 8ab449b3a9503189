// Terms that schemes hand to the tile programs: tensors of O(i + j) numbers, made by ordinary ops, so that gradients reach
// parameters as they always do. The pairs belong to the programs alone (nn/attention/executor_tiled.cpp).
#pragma once

#include <array>
#include <memory>
#include <string>

#include "nn/attention/distances.h"
#include "tensor/tiled_operands.h"

namespace whence {

// Settings of a head mix (DAPE, CDAPE); its operands are tensors.
struct HeadMix {
  bool adds_pieces = true;      // false: pieces are read by the mix alone, and not added to the logits
  index_t left = 0, right = 0;  // taps on either side
  index_t behind = 0;           // columns of the hidden map behind the last key, where the run goes on
  bool remask = false;          // the hidden map is 0 where row i does not see the column
};

// The terms of one attention. Functions add one each, or say why there can be none; refusal() then judges all together.
class TileTerms {
 public:
  virtual ~TileTerms() = default;

  std::array<Tensor, TiledOperands::operand_count> operands;  // of [b h i d], [b h j d] and so on
  bool has(TiledOperands::Operand which) const { return operands[which].defined(); }
  // Reads tables by these distances, those of a context (whole_distances), from now on. Null where this call is refused
  // already, or now: there are none, or others are read.
  virtual const Distances* read(const std::optional<Distances>& distances) = 0;
  virtual const std::optional<Distances>& distances_read() const = 0;

  // Tables by distance, [h n] for the distances that are read, are summed, and so are columns, [b h j]. (A number for each
  // query would do nothing: softmax ignores it.) Any other operand is given once. `scale`: of the product that a
  // relative query, a gate's query or position keys have part in.
  virtual void add(TiledOperands::Operand which, const Tensor& x, double scale = 1) = 0;
  // bins[m]: which of `count` the distance of m steps belongs to, i64 [n]; values [count d]
  virtual void add_bins(const Tensor& bins, const Tensor& values) = 0;
  virtual void mix_heads(const HeadMix& told) = 0;
  virtual void break_stick(bool rest_to_self) = 0;
  // All logits of a query times a number of its own, [b h i 1].
  virtual void scale_queries(const Tensor& factor) = 0;

  // New terms: those of a bias that a head mix reads.
  [[nodiscard]] virtual std::unique_ptr<TileTerms> of_base(const AttendContext& context) const = 0;

  // This call cannot run in tiles, and why: "what is given; what is required". The first reason counts.
  virtual void refuse(std::string reason) = 0;
  // Why these terms do not run in tiles; empty where they do.
  [[nodiscard]] virtual std::string refusal() const = 0;
};

// A scheme that runs in tiles too: what its stages make of all pairs, by programs. `context` has queries and keys,
// rotated, but no scores.
struct RunsInTiles {
  virtual ~RunsInTiles() = default;
  // Adds its terms, or refuses where this call needs the composed form.
  virtual void add_to_tiles(TileTerms& terms, const AttendContext& context) const = 0;
  // Returns which of its terms have programs on the CPU alone (tensor/tiles/gpu_programs.h), so that they are not made on a GPU;
  // empty where there are none.
  [[nodiscard]] virtual std::string only_on_cpu() const { return {}; }
};

}  // namespace whence
