// The common part of rotary schemes: the speed of each pair of dims, and the rotation of queries and keys.  (RoPE, Su
// et al. 2021, section 3.2.2)
#pragma once

#include <algorithm>
#include <vector>

#include "autograd/observer.h"
#include "autograd/ops.h"
#include "nn/attention/heads.h"
#include "nn/positional/waves.h"
#include "nn/scheme.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence {

struct Rotation {
  index_t width = 0;         // rotated dims; even
  bool interleaved = false;  // pairs (2m, 2m + 1) instead of (m, m + width/2)
};

// theta_m = base^(-2m/width), m = 0 ... width/2 - 1
[[nodiscard]] inline std::vector<double> rotation_frequencies(index_t width, double base) {
  std::vector<double> theta;
  for (index_t m = 0; m < width / 2; ++m) theta.push_back(wave_frequency(m, width, base));
  return theta;
}

// t theta_m in f64, so that far positions stay distinct in any dtype of the model.
//   positions [t] or [b t];  theta [m], or [1|b 1 1 m] if sequences differ   ->   [t m] or [1|b 1 t m]
[[nodiscard]] inline Tensor rotation_angles(const Tensor& positions, const Tensor& theta, Site site = Site::current()) {
  const index_t tokens = positions.size(-1);
  const Shape column = positions.rank() == 1 ? Shape{tokens, 1} : Shape{positions.size(0), 1, tokens, 1};
  return multiply(reshape(positions, column, site), theta, site);
}

// Returns the angles [b h i m] of the queries, from those of all tokens for each key head, [b g j m].
[[nodiscard]] inline Tensor angles_of_queries(
    const Tensor& angles, const Tensor& query, const AttendContext& context, Site site = Site::current()) {
  return of_query_heads(of_queries(angles, 2, context, site), query.size(1), site);
}

// Schemes of the rotation stage declare properties by inheritance. DoublesDims: queries and keys get twice their dims.
struct DoublesDims {
  virtual ~DoublesDims() = default;
};
// KeepsAngles: queries and keys are not rotated.
struct KeepsAngles {
  virtual ~KeepsAngles() = default;
};
// CancelsInProduct: factors of queries and of keys cancel in q.k alone.
struct CancelsInProduct {
  virtual ~CancelsInProduct() = default;
};

// The speed of each pair, and the factor of rotated dims.
struct PairSpeeds {
  std::vector<double> theta;
  double magnitude = 1;
};

// Returns the number of schemes that rotate.
[[nodiscard]] inline index_t rotations(const Stages& stages) {
  const auto rotates = [](const auto& stage) { return !dynamic_cast<const KeepsAngles*>(stage.scheme); };
  return std::ranges::count_if(stages.rotates, rotates);
}

// Throws InputError for two rotations: one after the other they are one rotation by the sum of the angles.
inline void require_one_rotation(const char* scheme, const Stages& stages) {
  if (rotations(stages) < 2) return;
  throw InputError(scheme, ": given with another scheme that rotates; their angles only add up; leave one of them out");
}

// Returns d/2. Throws InputError if heads have an odd number of dims.
[[nodiscard]] inline index_t pairs_of_head(const char* scheme, const SchemeArguments& arguments) {
  const index_t head_dim = arguments.sizes().head_dim();
  if (head_dim % 2) throw InputError(scheme, ": heads of ", head_dim, " dims given; an even number required");
  return head_dim / 2;
}

// The options that select the rotated dims and their pairs; InputError for a width that is odd or above a head's.
inline std::vector<SchemeOption> rotation_options(double least_base = 1) {
  return {option::number(
              "base", 10000, {least_base, 1e12}, "the slowest pair makes one rotation in about 2 pi base positions"),
      option::words("layout", {"half", "interleaved"}, "which dims make a pair"),
      option::integer("width", 0, {0, 65536}, "dims that rotate, an even number; 0: all of a head")};
}

[[nodiscard]] inline Rotation rotation_of(const SchemeArguments& arguments) {
  const index_t head_dim = arguments.sizes().head_dim(), given = arguments.integer("width"),
                width = given ? given : head_dim;
  if (width % 2 || width > head_dim) {
    throw InputError(arguments.spec().info().name, ": width ", width, " for heads of ", head_dim,
        " dims; an even width of at most ", head_dim, " required");
  }
  return {width, arguments.word("layout") == "interleaved"};
}

// Rotates pair m of token t by t theta_m. theta is fixed, or depends on the number of tokens of the run, whatever their
// positions. In the second case rows change while the run grows.
class Rotating : public PositionalScheme, public RotatesQueryKey {
 public:
  Claims claims() const override {
    return {.shift_invariant = true, .prefix_consistent = !follows_run_, .changes_rows = changes_rows_};
  }
  void check_company(const Stages& stages) const override { require_one_rotation(name_, stages); }
  void rotate(Tensor& query, Tensor& key, const AttendContext& context) const override;

  // Returns the probes of all rotary schemes; `more`: appended to R q in the equation.
  static std::vector<ProbeInfo> probes(const std::string& more);

 protected:
  // Speeds change when a run reaches one of these lengths.
  Rotating(const SchemeArguments& arguments, const Lengths& change)
      : name_(arguments.spec().info().name.c_str()),
        follows_run_(change.first <= change.last),
        changes_rows_(change),
        rotation_(rotation_of(arguments)) {}

  index_t width() const { return rotation_.width; }
  index_t pairs() const { return rotation_.width / 2; }

 private:
  // Returns the speeds for a sequence of this many tokens.
  [[nodiscard]] virtual PairSpeeds speeds_for(double tokens) const = 0;

  const char* name_;
  bool follows_run_;
  Lengths changes_rows_;
  Rotation rotation_;
};

}  // namespace whence
