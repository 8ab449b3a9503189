// What a positional scheme is: which of attention's stages it takes part in, and what it sees there.
//
// Attention runs, in this order (schemes in list order within a stage):
//   1 embed      tokens, once before block 0                [b t c]
//   2 rotate     queries and keys                           [b h t d]
//   3 bias       added to the scores                        [1|b h i j]
//   4 transform  scores of one row of one head (CoPE)       [b h i j]
//   5 map        scores across heads and keys (DAPE)        [b h i j]
//   6 mix        what the pattern adds to the values (Shaw) [b h i d]
// Masked entries enter stages 4 and 5 as 0, and the mask is applied again by the softmax. What a class inherits is what it touches.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/module.h"

namespace whence {

// Where queries and keys stand: data, so that shifted, drawn or stretched positions are other numbers, not other code.
struct Positions {
  Tensor query;                            // [i] f64
  Tensor key;                              // [j] f64
  static Positions range(index_t length);  // 0, 1, ..., length - 1 for both
};

// What attention shows to a scheme.
struct AttendContext {
  Tensor x;                  // [b t c], the layer's input; undefined where attention is run on bare queries, keys and values
  Tensor query, key, value;  // [b h i d], [b h j d], [b h j d]; query and key rotated if a scheme rotates
  Tensor unrotated_query;    // [b h i d]
  Tensor content_scores;     // [b h i j], scale q.k: the bare product, before biases. SPEC: S
  Tensor bias;               // [1|b h i j], the sum of stage 3; undefined when no scheme gives one
  Tensor mask;               // bool, broadcasts to [b h i j]: true where query i may see key j; undefined: everywhere
  Positions positions;
  double scale = 1;  // 1 / sqrt(d)
  bool causal = true;

  [[nodiscard]] Tensor keep(const Tensor& t, double otherwise = 0, Site at = Site::current()) const;  // t where the mask is true
};

// What a scheme promises; the conformance tests hold it to that.
struct Claims {
  bool causal_only = false;      // meaningless without a causal mask
  bool shift_invariant = false;  // moving all positions by one constant changes nothing
  bool extrapolates = true;      // accepts sequences longer than those trained on
  bool row_local = true;         // row i needs no other query row
};

struct Stages;

class PositionalScheme : public Module {
 public:
  [[nodiscard]] virtual Claims claims() const = 0;
  // Throws InputError when an option would have no effect beside the schemes of these stages.
  virtual void check_company(const Stages&) const {}
};

struct EmbedsTokens {
  virtual ~EmbedsTokens() = default;
  [[nodiscard]] virtual Tensor embed(const Tensor& x, const Positions& positions) const = 0;  // [b t c] -> [b t c]
};
struct RotatesQueryKey {
  virtual ~RotatesQueryKey() = default;
  virtual void rotate(Tensor& query, Tensor& key, const Positions& positions) const = 0;  // [b h t d] in place of the handles
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
struct MixesValues {
  virtual ~MixesValues() = default;
  [[nodiscard]] virtual Tensor mix(const Tensor& pattern, const AttendContext& at) const = 0;  // [b h i d], added to pattern v
};

// A scheme's part in one stage, with the path under which its probes appear.
template <class Interface>
struct StageOf {
  const Interface* scheme;
  const std::string* path;
};

// The schemes of one attention, sorted into stages once. REQUIRES: they outlive it.
struct Stages {
  std::vector<StageOf<RotatesQueryKey>> rotates;
  std::vector<StageOf<BiasesScores>> biases;
  std::vector<StageOf<TransformsScores>> transforms;
  std::vector<StageOf<MapsScores>> maps;
  std::vector<StageOf<MixesValues>> mixes;

  void add(const PositionalScheme& scheme);
};

}  // namespace whence
