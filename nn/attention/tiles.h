// What schemes hand to the tile programs (tensor/tiled_attention.h): tensors of O(i + j) numbers, made by ordinary ops,
// so that gradients reach parameters as they always do. The pairs belong to the programs alone.
#pragma once

#include "autograd/tiled_attention.h"
#include "nn/attention/distances.h"

namespace whence {

struct PatternDropout;

// The terms of one attention. Each function adds one; it says false where there is one already that it cannot be added
// to, and the call is then computed in another way.
struct TileTerms {
  TiledAttention facts;
  TiledAttention::Operands operands;  // of [b h i d], [b h j d] and so on
  std::optional<TiledMix> mix;        // what a mix is told beside `facts`; pieces are a channel of it then
  Tensor bin_values;                  // [bins d]: what the sums by distance are multiplied by and added to the output

  explicit TileTerms(const AttendContext& context);  // queries, keys, values, and what can be seen

  Tensor& operator[](TiledAttention::Operand which) { return operands[which]; }
  bool has(TiledAttention::Operand which) const { return operands[which].defined(); }
  bool has_more_than_pieces() const;  // an operand that a mix does not know
  bool adds_to_scores() const;
  // What all that is read by distance reads; nothing: nothing is.
  const std::optional<Distances>& distances() const { return distances_; }
  // Reads these steps from now on. False where others are read already.
  [[nodiscard]] bool read_steps(const Distances& distances);

  // table [h n]: a number for each of distances.values
  [[nodiscard]] bool add_by_distance(const Distances& distances, const Tensor& table);
  // scale query.keys[., m, .] for m steps: query [b h i d], keys [1|h n d]
  [[nodiscard]] bool add_by_row_and_distance(
      const Distances& distances, const Tensor& query, const Tensor& keys, double scale);
  // slopes[h, n] a + offsets[h, n] where begins[n] < a <= begins[n + 1], a = row_i distance[m] for m steps. distance
  // [n] for distances.values, row [b h i], begins [s] ascending (the first is never asked), slopes, offsets [h s]
  [[nodiscard]] bool add_pieces(const Distances& distances, const Tensor& distance, const Tensor& row,
      const Tensor& begins, const Tensor& slopes, const Tensor& offsets);
  // A number for each key, [b h j]. One for each query would do nothing: softmax ignores it.
  [[nodiscard]] bool add_column(const Tensor& column);
  // Gates are sigmoid(scale query.key), or those of the scores where query is undefined.
  [[nodiscard]] bool add_gates(const Tensor& query, const Tensor& key, double scale);
  // bins[m]: which of `count` the distance of m steps belongs to, i64 [n]; values [count d]
  [[nodiscard]] bool add_bins(const Distances& distances, const Tensor& bins, const Tensor& values);
  // All logits of a query times a number of its own, [b h i 1]. Where something is added to the scores no program does it.
  void scale_queries(const Tensor& factor);
  // Nothing where what was added is no program's, or not something that programs do together.
  [[nodiscard]] std::optional<TiledResult> run(const std::optional<PatternDropout>& dropout);

 private:
  // The programs read all queries of one width; a rotation may have made those of the scores wider.
  bool as_wide_as_queries(const Tensor& query) const;

  std::optional<Distances> distances_;
  bool scaled_ = false;
};

// A scheme that runs in tiles too: what its stages make of all pairs, by programs. `context` has queries and keys,
// rotated, but no scores.
struct RunsInTiles {
  virtual ~RunsInTiles() = default;
  // False where this call needs the composed form; `terms` are not used then.
  [[nodiscard]] virtual bool add_to_tiles(TileTerms& terms, const AttendContext& context) const = 0;
};

}  // namespace whence
