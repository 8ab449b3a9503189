// What a positional scheme is: in which of attention's stages it takes part, and what it sees there.
//
// Attention runs, in this order (schemes in list order within a stage):
//   1 embed      tokens, once before block 0                [b t c]
//   2 rotate     queries and keys                           [b h t d]
//   3 bias       added to the scores                        [1|b h i j]
//   4 transform  scores of one row of one head (CoPE)       [b h i j]
//   5 map        scores across heads and keys (DAPE)        [b h i j]
//   6 pattern    what stands for the softmax                [b h i j]
//   7 mix        what the pattern adds to the values (Shaw) [b h i d]
// A class takes part in the stages that it inherits. Masked scores are unspecified: a stage that sums over keys masks
// first, and the softmax masks again.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/inspect/probe.h"
#include "nn/layers/module.h"
#include "tensor/pairs.h"

namespace whence {

// Where queries and keys stand. Positions are data: shifted, drawn or stretched ones are other numbers, not other code.
// They stay on the CPU, whatever device the model is on: they are few, and schemes read them.
struct Positions {
  Tensor query;           // [i] or [b i], f64
  Tensor key;             // [j] or [b j], f64
  Tensor distances = {};  // [n] f64, ascending from 0: what a distance of m steps counts as; undefined: m
  // Interpolation divides distances, (i - j) / divisor, so that equal ones stay equal. Positions divided one by one
  // would differ by rounding. Distances are taken between these; undefined: query and key.
  Tensor undivided_query = {}, undivided_key = {};
  double divisor = 1;
  // How many tokens each sequence of the batch has, padding not counted; empty: as many as there are keys.
  std::vector<index_t> tokens = {};
  index_t length = 0;      // of the whole run, tokens yet to be decoded included: what positions are drawn for
  std::uint64_t seed = 0;  // of the pass, for positions that are drawn
  std::uint64_t step = 0;  // of the pass
  static Positions range(index_t length);  // 0, 1, ..., length - 1 for both
};

struct KeptOfSequence;  // what was made of a sequence at first use (nn/sequence.h)

// What attention has to know about a sequence besides its numbers: facts. Tensors of pairs are made of them when
// somebody asks. The tensors here stay on the CPU, as positions do.
struct Sequence {
  Sequence();

  index_t rows = 0, keys = 0;  // how many queries and keys there are
  bool causal = true;          // query i sees keys up to first_row + i
  index_t first_row = 0;       // query i is token first_row + i of the keys
  Tensor present = {};  // bool [1|b 1 1 j]: false where key j is padding, which no query sees; undefined: nowhere
  // bool, broadcasts to [b h i j]: false where query i must not see key j, causality and padding apart; undefined:
  // nowhere
  Tensor given_mask = {};
  index_t keys_behind = 0;  // how many more keys the run has behind the last one here, all masked (decoding, strips)
  Positions positions = {};
  Device device = {};  // where the scores are

  static Sequence run(index_t length, bool causal = true);
  // `present` bool [b t]: false for padding, on the left or on the right. Positions count from the first real token.
  static Sequence padded(const Tensor& present, bool causal = true);
  // Decoding a causal sequence: `rows` queries after the first `first_row` of its tokens. `present` is bool [b
  // first_row+rows], or undefined; `capacity` is the length that the run may reach.
  static Sequence continued(index_t first_row, index_t rows, index_t capacity, const Tensor& present = {});
  // The same where the scores are on `device`.
  Sequence on(Device where) const;

  // bool on the scores' device, broadcasts to [b h i j]: true where query i may see key j, by all facts together;
  // undefined where none of them hides anything. Made at the first call and kept for all copies of this sequence: what
  // copes without does not pay for it.
  [[nodiscard]] Tensor mask() const;
  // What is made from now on is kept for this one and its copies alone: a part of a run must not outlive its turn.
  void keep_apart();

  std::shared_ptr<KeptOfSequence> kept;
};

// What attention shows to a scheme.
struct AttendContext : Sequence {
  Tensor x;  // [b j c], the layer's input; undefined where attention is run on bare queries, keys and values
  Tensor query, key, value;  // [b h i d], [b h j d], [b h j d]; query and key rotated if a scheme rotates
  Tensor unrotated_query;    // [b h i d]
  Tensor content_scores;     // [b h i j], scale q.k: the papers' S, before biases
  Tensor bias;               // [1|b h i j], the sum of stage 3; undefined when no scheme gives one
  double scale = 1;          // 1 / sqrt(d)

  // Of the scores, whether they have been made or not.
  DType dtype() const { return content_scores.defined() ? content_scores.dtype() : query.dtype(); }

  // t where the mask is true, `otherwise` elsewhere
  [[nodiscard]] Tensor masked(const Tensor& t, double otherwise = 0, Site at = Site::current()) const;
  // [1|b 1 i j] f64: how far key j lies behind query i, as positions count it; in causal runs 0 above the diagonal. On
  // the CPU, to be read, or beside the scores.
  [[nodiscard]] Tensor distance_on_cpu() const;
  [[nodiscard]] Tensor distance() const;
  // A constant that a scheme worked out, on the device of the scores. Gradients do not pass between devices.
  [[nodiscard]] Tensor here(const Tensor& constant) const;
};

// Distances without pairs. Query i and key j are query[i] - key[j] whole steps apart, and m steps count as
// values[m - lowest]. In causal runs steps below 0 count as 0.
struct DistanceSteps {
  Tensor query, key;   // i64 [1|b i], [1|b j], on the CPU
  index_t lowest = 0;  // 0 in causal runs, else the least step of any pair
  Tensor values;       // [n] f64, on the CPU: steps lowest ... lowest + n - 1, whether a pair has them or not
  // query[i] - key[j] == first_row + i - j wherever both tokens are present: the values lie along diagonals
  bool plain = false;
};
// In O(i + j + n). Nothing where a position is not a whole number, or where n would exceed 2^24.
std::optional<DistanceSteps> distance_steps(const AttendContext& at);

// The distances of a context in one row, and which of them belongs to a pair: a table or a network is read at these.
struct PairDistances {
  Tensor values;                   // [n] f64, ascending, on the CPU
  std::optional<PairSteps> steps;  // beside the scores: pair (i, j) has values[steps - lowest]
  Tensor index;                    // where a position is not whole: i64 [1|b 1 i j], beside the scores

  // table [h n], beside the scores, of any dtype where positions are whole -> [1|b h i j]
  [[nodiscard]] Tensor read(const Tensor& table, Site here = Site::current()) const;
  [[nodiscard]] Tensor index_of_pairs() const;  // i64 [1|b 1 i j]
};
// Schemes and layers of one pass share the steps. Positions that are not whole cost the host O(i j).
PairDistances pair_distances(const AttendContext& at);

// What a scheme promises; the conformance tests check it.
struct Claims {
  static constexpr index_t any_length = std::numeric_limits<index_t>::max();
  enum class Drawn : unsigned char { positions, distances };

  bool causal_only = false;        // meaningless without a causal mask
  bool shift_invariant = false;    // moving all positions by one constant changes nothing
  index_t longest = any_length;    // the longest run that it accepts, in tokens
  bool row_local = true;           // row i needs no other query row
  bool prefix_consistent = true;   // a row does not depend on how long the run becomes
  bool sees_no_future = true;      // row i depends on tokens up to i alone, under a causal mask
  bool whole_positions = false;    // has a row of a table for each position or distance: stretched ones are refused
  bool mask_per_head = true;       // takes a mask that differs from head to head
  bool uses_positions = true;      // reads `positions`: moving them one against another changes something
  bool drawn_each_step = false;    // its positions are drawn anew at each step
  bool exact_gradient = true;      // false: backward is not the derivative of forward, on purpose (hard attention)
  Drawn drawn = Drawn::positions;  // what `randomised` draws anew: positions, or distances where nothing else is read
};

struct Stages;
struct RunsInTiles;  // nn/attention/tiles.h

class PositionalScheme : public Module {
 public:
  [[nodiscard]] virtual Claims claims() const = 0;
  // Enters the stages that it takes part in. A scheme made of others enters theirs.
  virtual void join(Stages& stages) const;
  // Throws InputError when an option has no effect beside the schemes of these stages, or when the sum means nothing.
  virtual void check_company(const Stages&) const {}
};

struct EmbedsTokens {
  virtual ~EmbedsTokens() = default;
  [[nodiscard]] virtual Tensor embed(const Tensor& x, const Positions& positions) const = 0;  // [b t c] -> [b t c]
};
struct RotatesQueryKey {
  virtual ~RotatesQueryKey() = default;
  // [b h t d]: puts the rotated ones in place of the handles
  virtual void rotate(Tensor& query, Tensor& key, const Positions& positions) const = 0;
};
struct BiasesScores {
  virtual ~BiasesScores() = default;
  [[nodiscard]] virtual Tensor bias(const AttendContext& at) const = 0;  // [1|b h i j]
};
struct TransformsScores {  // a row sees its own row of its own head
  virtual ~TransformsScores() = default;
  [[nodiscard]] virtual Tensor transform_scores(const Tensor& scores, const AttendContext& at) const = 0;
};
struct MapsScores {  // may mix heads and neighbouring keys
  virtual ~MapsScores() = default;
  [[nodiscard]] virtual Tensor map_scores(const Tensor& scores, const AttendContext& at) const = 0;
};
struct MakesPattern {  // in place of the softmax
  virtual ~MakesPattern() = default;
  // [b h i j], 0 where masked
  [[nodiscard]] virtual Tensor pattern(const Tensor& logits, const AttendContext& at) const = 0;
};
struct MixesValues {
  virtual ~MixesValues() = default;
  // [b h i d], added to pattern v
  [[nodiscard]] virtual Tensor mix(const Tensor& pattern, const AttendContext& at) const = 0;
};

// Tells a scheme that its tokens stand elsewhere (nn/positional/moved.cpp).
struct MovesPositions {
  virtual ~MovesPositions() = default;
  [[nodiscard]] virtual Positions move(const Positions& positions) const = 0;
};

// A scheme's part in one stage, the path under which its probes appear, and the schemes that move
// its positions, outermost first.
template <class Interface> struct StageOf {
  const Interface* scheme;
  const std::string* path;
  std::vector<const MovesPositions*> movers = {};

  Positions moved(Positions positions) const {
    for (const MovesPositions* mover : movers) positions = mover->move(positions);
    return positions;
  }
  AttendContext at(AttendContext context) const {
    if (!movers.empty()) context.positions = moved(context.positions);
    return context;
  }
};

// The Scope in which a stage runs: its scheme's path. Probes of a scheme that serves all layers get the layer's path in
// front, "blocks.0.attention.shared.position.bias": else all layers would be seen as one.
class StageScope {
 public:
  explicit StageScope(const std::string& path) : within_(within(path)), scope_(within_.empty() ? path : within_) {}

 private:
  static std::string within(const std::string& path);  // empty: the path says where it is

  std::string within_;
  Scope scope_;
};

// The schemes of one attention, sorted into stages once. REQUIRES: they outlive it.
struct Stages {
  std::vector<const PositionalScheme*> schemes;  // whose parameters the stages read
  std::vector<StageOf<EmbedsTokens>> embeds;     // run by the model, not by attention
  std::vector<StageOf<RotatesQueryKey>> rotates;
  std::vector<StageOf<BiasesScores>> biases;
  std::vector<StageOf<TransformsScores>> transforms;
  std::vector<StageOf<MapsScores>> maps;
  std::vector<StageOf<MakesPattern>> patterns;  // at most one
  std::vector<StageOf<MixesValues>> mixes;
  std::vector<StageOf<RunsInTiles>> tiled;  // all of stages 3 to 7 over again, as tile programs

  // All of these. Throws InputError when two of them do not go together.
  static Stages of(const std::vector<const PositionalScheme*>& schemes);
  void enter(const PositionalScheme& scheme);  // by the interfaces that the scheme's class inherits
  void enter_moved(const Stages& inner, const MovesPositions& mover);  // all of `inner`, at moved positions
};

}  // namespace whence
