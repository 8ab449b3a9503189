// PositionalScheme: the stages of attention that a scheme takes part in, and the data that it sees there.
//
// Attention runs, in this order (schemes in list order within a stage). Letters: h heads of queries, g heads of keys and
// values (nn/attention/heads.h).
//   1 embed      tokens, once before block 0                [b t c]
//   2 rotate     queries and keys                           [b h t d], [b g t d]
//   3 score      replaces q.k / sqrt(d)                     [b h i j]
//   4 bias       added to the scores                        [1|b h i j]
//   5 transform  scores of one row of one head (CoPE)       [b h i j]
//   6 map        scores across heads and keys (DAPE)        [b h i j]
//   7 pattern    replaces the softmax                       [b h i j]
//   8 mix        added to pattern times values (Shaw)       [b h i d]
//   9 output     the output of each head                    [b h i d]
// A class takes part in the stages that it inherits. Masked scores are unspecified: a stage that sums over keys masks
// them first, and the softmax masks them again.
#pragma once

#include <algorithm>
#include <limits>

#include "nn/attention/sequence.h"
#include "nn/layers/module.h"

namespace whence {

// The data of one attention that schemes see.
struct AttendContext : Sequence {
  // [b j c], the layer's input; undefined if attention runs on bare queries, keys and values, and in decoding if no
  // scheme claims to read it
  Tensor x;
  Tensor query, key, value;  // [b h i d], [b g j d], [b g j d]; query and key rotated if a scheme rotates
  Tensor unrotated_query;    // [b h i d]
  Tensor content_scores;     // [b h i j], scale q.k, or the result of stage 3: the papers' S, before biases
  Tensor bias;               // [1|b h i j], the sum of stage 4; undefined if no scheme gives one
  double scale = 1;          // 1 / sqrt(d)

  // Returns the dtype of terms added to the scores: that of the scores or, before they exist, of the tiles' sums.
  DType dtype() const { return content_scores.defined() ? content_scores.dtype() : compute_dtype(query.dtype()); }
};

// A range of run lengths in tokens, first to last; empty if last < first.
struct Lengths {
  index_t first = 1, last = 0;

  // True if a run that grows from `before` tokens to `after` reaches a length of the range.
  bool reached(index_t before, index_t after) const { return std::max(first, before + 1) <= std::min(last, after); }
  // Returns the smallest range that contains both.
  Lengths joined(const Lengths& more) const {
    if (last < first) return more;
    return more.last < more.first ? *this : Lengths{std::min(first, more.first), std::max(last, more.last)};
  }
};

// The promises of a scheme; the conformance tests check them.
struct Claims {
  static constexpr index_t any_length = std::numeric_limits<index_t>::max();
  enum class Drawn : unsigned char { positions, distances };

  bool causal_only = false;        // meaningless without a causal mask
  bool shift_invariant = false;    // shifting all positions by one constant changes nothing
  index_t longest = any_length;    // the longest run that it accepts, in tokens
  bool row_local = true;           // row i needs no other query row
  bool prefix_consistent = true;   // a row does not depend on how long the run becomes
  Lengths changes_rows = {};       // at these lengths, rows of earlier tokens change
  bool sees_no_future = true;      // row i depends only on tokens up to i, under a causal mask
  bool whole_positions = false;    // has a table row for each position or distance: stretched ones are refused
  bool mask_per_head = true;       // takes a mask that differs from head to head
  bool uses_positions = true;      // reads `positions`: changing their differences changes the result
  bool reads_x = false;            // reads the layer's input in attention; else a cache need not keep it
  bool by_key_head = false;        // its parameters by head belong to key heads; else to query heads
  bool drawn_each_step = false;    // its positions are drawn anew at each step
  bool exact_gradient = true;      // false: backward is deliberately not the derivative of forward (hard attention)
  Drawn drawn = Drawn::positions;  // what `randomised` draws: positions, or distances if only those are read
};

struct Stages;  // nn/attention/stages.h

class PositionalScheme : public Module {
 public:
  [[nodiscard]] virtual Claims claims() const = 0;
  // Enters the stages that it takes part in. A scheme made of others enters their stages.
  virtual void join(Stages& stages) const;
  // Throws InputError if an option has no effect with the schemes of these stages, or if the sum makes no sense.
  virtual void check_company(const Stages&) const {}
};

struct EmbedsTokens {
  virtual ~EmbedsTokens() = default;
  [[nodiscard]] virtual Tensor embed(const Tensor& x, const Positions& positions) const = 0;  // [b t c] -> [b t c]
};
struct RotatesQueryKey {
  virtual ~RotatesQueryKey() = default;
  // [b h i d], [b g j d]: replaces both by the rotated ones. `context` has positions, x if claimed, and no scores.
  virtual void rotate(Tensor& query, Tensor& key, const AttendContext& context) const = 0;
};
struct ScoresPairs {  // replaces q.k / sqrt(d)
  virtual ~ScoresPairs() = default;
  [[nodiscard]] virtual Tensor scores(const AttendContext& context) const = 0;  // [b h i j]
};
struct BiasesScores {
  virtual ~BiasesScores() = default;
  [[nodiscard]] virtual Tensor bias(const AttendContext& context) const = 0;  // [1|b h i j]
};
struct TransformsScores {  // [b h i j] -> [b h i j]; a row depends only on its own row of its own head
  virtual ~TransformsScores() = default;
  [[nodiscard]] virtual Tensor transform_scores(const Tensor& scores, const AttendContext& context) const = 0;
};
struct MapsScores {  // [b h i j] -> [b h i j]; may mix heads and neighbouring keys
  virtual ~MapsScores() = default;
  [[nodiscard]] virtual Tensor map_scores(const Tensor& scores, const AttendContext& context) const = 0;
};
struct MakesPattern {  // replaces the softmax
  virtual ~MakesPattern() = default;
  // [b h i j], 0 where masked
  [[nodiscard]] virtual Tensor pattern(const Tensor& logits, const AttendContext& context) const = 0;
};
struct MixesValues {
  virtual ~MixesValues() = default;
  // [b h i d], added to pattern v
  [[nodiscard]] virtual Tensor mix(const Tensor& pattern, const AttendContext& context) const = 0;
};
struct MapsOutput {
  virtual ~MapsOutput() = default;
  [[nodiscard]] virtual Tensor map_output(const Tensor& output, const AttendContext& context) const = 0;  // [b h i d]
};

// Gives a scheme other positions for its tokens (nn/positional/moved.cpp).
struct MovesPositions {
  virtual ~MovesPositions() = default;
  [[nodiscard]] virtual Positions move(const Positions& positions) const = 0;
};

}  // namespace whence
