// The gates of CoPE and its variants; their sums are contextual positions.                   Golovneva et al. 2024
//   g_ij = sigmoid(q_i.kappa_j / sqrt(d)), 0 where masked       kappa: key, value, or a separate key            (Eq. 3)
//   p_ij = sum_{l=j..i} g_il                                    number of open gates from j up to i             (Eq. 4)
// Backward: dg_il = sum_{j<=l} dp_ij, a running sum over keys, times the sigmoid's derivative, which is 0 at saturated
// gates.
#pragma once

#include <memory>

#include "nn/attention/tile_terms.h"
#include "nn/layers/layers.h"
#include "nn/scheme.h"

namespace whence {

// The logits of all gates as a product: scale query_i.key_j, [b h i j]. Ops on pairs and tiles compute it.
struct GateLogits {
  Tensor query, key;  // [b h i d], [b g j d]
  double scale;
};

class Contextual : public PositionalScheme, public TransformsScores {
 public:
  static SchemeOption gates_option();  // an option of every variant
  // Returns the probes of every variant, followed by its `own`. `equation`: of the positions; `mark`: as in ProbeInfo.
  static std::vector<ProbeInfo> probes(std::string equation, std::string mark, std::vector<ProbeInfo> own);

 protected:
  explicit Contextual(const SchemeArguments& arguments);

  // Returns the factors of q_i.kappa_j / sqrt(d). A derived scheme may multiply one of them: a gate temperature of each
  // head is a factor of the query (cope.h).
  [[nodiscard]] virtual GateLogits gate_logits(const AttendContext& context) const;
  // True if the gates have keys of their own, one for each key head.
  bool makes_keys() const { return gate_key_ != nullptr; }
  // Returns the gates before the sigmoid, [b h i j].
  [[nodiscard]] Tensor gate_scores(const AttendContext& context) const;
  // Returns sum_{l=j..i} g_il, [b h i j] (cope.cpp); in f32 for 16-bit models, because 16 bits are too coarse to count with.
  [[nodiscard]] Tensor sums_of_gates(const AttendContext& context) const;
  // Adds the operands from which the tile programs compute the same gates.
  void add_gates(TileTerms& terms, const AttendContext& context) const;

 private:
  std::string from_;  // keys, values, separate_keys
  index_t key_heads_;
  std::unique_ptr<Linear> gate_key_;
};

// The query of a position, q_i in q_i.e[n], and the scale of that product.
struct PositionQuery {
  static SchemeOption scale_option();  // z_scale
  static SchemeOption from_option();   // z_from
  explicit PositionQuery(const SchemeArguments& arguments);
  const Tensor& of(const AttendContext& context) const {
    return rotated ? context.query : context.unrotated_query;
  }  // [b h i d]
  double scale(const AttendContext& context) const { return scaled ? context.scale : 1; }
  // Throws InputError if the rotated query is required but nothing rotates.
  void check_company(const char* scheme, const Stages& stages) const;

  bool scaled;   // q.e is divided by sqrt(d), as in the authors' repository (nn/errata.md, A2)
  bool rotated;  // uses the rotated query, if another scheme rotates (nn/errata.md, A13)
};

}  // namespace whence
