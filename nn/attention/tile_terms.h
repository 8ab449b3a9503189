// TileTerms: what schemes give to the tile programs, tensors of O(i + j) numbers made by ordinary ops, so that
// gradients reach parameters as usual. Only the programs compute pairs (nn/attention/executor_tiled.cpp).
#pragma once

#include <string>

#include "nn/attention/distances.h"
#include "nn/scheme.h"
#include "tensor/tiled_call.h"

namespace whence {

// The terms of one attention: a call of a tiled op. Each function adds one term, or refuses.
struct TileTerms {
  explicit TileTerms(const AttendContext& context);

  TiledCall at;
  TiledCall::Operands operands;        // [b h i d], [b h j d] and so on
  Tensor bin_values;                   // [bins d]: multiplied by the sums by distance and added to the output
  std::optional<Distances> distances;  // at which tables are read
  Tensor columns;                      // the sum of all columns, before it is split
  int column_count = 0;
  bool scaled = false;  // by scale_queries
  std::string refused;  // why this call cannot run in tiles, "what is given; what is required": the first reason

  bool has(TiledCall::Operand which) const { return operands[which].defined(); }
  // Sets the distances at which tables are read: those of a context (whole_distances). Returns null if this call is
  // refused, before or now: there are no distances, or others are already read.
  const Distances* read(const std::optional<Distances>& wanted);
  // Tables by distance, [h n] for the current distances, are summed, and so are columns, [b h j]. (A number for each
  // query would have no effect, because softmax ignores it.) Any other operand is given once. `scale` multiplies the
  // product with a relative query, a gate query or position keys.
  void add(TiledCall::Operand which, const Tensor& x, double scale = 1);
  // bins[m]: the bin, of `count`, for a distance of m steps, i64 [n]; values [count d]
  void add_bins(const Tensor& bins, const Tensor& values);
  // Multiplies all logits of query i by factor[i], [b h i 1]. Then no term may be added to the scores.
  void scale_queries(const Tensor& factor);
  void refuse(std::string reason);

 private:
  void add_column(const Tensor& x);
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

// Biases that depend only on the distance of a pair. A scheme defines one table, a number for each head and distance.
// All forms of attention read it: the reference by an op, tiles by their program, a GPU's fused softmax directly, and
// DAPE's networks if it is the bias that they adapt.
struct ReadsByDistance : BiasesScores, RunsInTiles {
  // Returns the table [h n] for distances [n] (f64, on the CPU), on the scores' device and in context.dtype(). Returns
  // nothing if the bias of this call does not depend on the distance alone; such a scheme overrides `bias`.
  [[nodiscard]] virtual std::optional<Tensor> table(const Tensor& distances, const AttendContext& context) const = 0;

  [[nodiscard]] Tensor bias(const AttendContext& context) const override;
  void add_to_tiles(TileTerms& terms, const AttendContext& context) const override;

  // Describes the bias in a registration.
  static ProbeInfo bias_probe(std::string equation) {
    return {"bias", "b h i j", "the distance's term of the logit", std::move(equation)};
  }
};

}  // namespace whence
