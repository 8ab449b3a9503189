// What CoPE and its variants share: gates that count, and the positions that they add up to.          (Golovneva et al.
// 2024)
//   g_ij = sigmoid(q_i.kappa_j / sqrt(d)), 0 where masked       gates; kappa: the key, the value, or a key of its own
//   (Eq. 3)
//   p_ij = sum_{l=j..i} g_il                                    positions: how many open gates from j up to i, i
//   included   (Eq. 4)
// Backward: dg_il = sum_{j<=l} dp_ij, a running sum over keys; it ends in the sigmoid, whose derivative is 0 where
// gates saturate.
#pragma once

#include <memory>

#include "nn/linear.h"
#include "nn/scheme.h"

namespace whence {

class Contextual : public PositionalScheme, public TransformsScores {
 public:
  enum class Gates : unsigned char { from_keys, from_values, from_separate_keys };

  static SchemeOption gates_option();  // as every variant offers it

 protected:
  explicit Contextual(const SchemeArguments& arguments);

  // p: [b h i j]; in f32 for 16-bit models, whose numbers are too coarse to count with.
  [[nodiscard]] Tensor positions(const AttendContext& at) const;

 private:
  Tensor gate_scores(const AttendContext& at) const;

  Gates gates_;
  index_t heads_;
  std::unique_ptr<Linear> gate_key_;
};

// The query that is compared with positions, and the factor of that product.
struct PositionQuery {
  static SchemeOption scale_option();  // z_scale
  static SchemeOption from_option();   // z_from
  explicit PositionQuery(const SchemeArguments& arguments);
  const Tensor& query(const AttendContext& at) const { return rotated ? at.query : at.unrotated_query; }
  double factor(const AttendContext& at) const { return scaled ? at.scale : 1; }
  // Throws InputError where nothing rotates and yet the rotated query is asked for.
  void check_company(const char* scheme, const Stages& stages) const;

  bool scaled;   // q.e divided by sqrt(d), as the authors' repository does (nn/README.md, A2)
  bool rotated;  // from the rotated query, where another scheme rotates (nn/README.md, A13)
};

}  // namespace whence
