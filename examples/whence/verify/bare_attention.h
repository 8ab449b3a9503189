// Attention with the schemes of a text on bare queries, keys and values, without a model: for other people's numbers, and
// for checks.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autograd/check/gradcheck.h"
#include "nn/attention/plan.h"
#include "nn/scheme.h"

namespace whence {

// Draws each parameter around the middle of its Init, by its path. None is zero, because a zero would hide others.
void draw_parameters(const Module& module, std::uint64_t seed);

// A claim that is true of a sum if it is `of_any` of its schemes, or else of all.
struct NamedClaim {
  const char* name;
  bool Claims::*claim;
  bool of_any = false;
};
inline constexpr NamedClaim named_claims[] = {{"causal_only", &Claims::causal_only, true},
    {"shift_invariant", &Claims::shift_invariant}, {"row_local", &Claims::row_local},
    {"prefix_consistent", &Claims::prefix_consistent}, {"sees_no_future", &Claims::sees_no_future},
    {"mask_per_head", &Claims::mask_per_head}, {"reads_x", &Claims::reads_x, true},
    {"by_key_head", &Claims::by_key_head, true}, {"uses_positions", &Claims::uses_positions, true},
    {"drawn_each_step", &Claims::drawn_each_step, true}, {"exact_gradient", &Claims::exact_gradient}};

// All schemes of one text with their parameters, both shared by all layers and per layer.
class BareAttention {
 public:
  // Throws InputError when the text is wrong, or when sizes or schemes do not fit.
  BareAttention(const std::string& text, const SchemeSizes& sizes);

  const std::string& text() const { return text_; }  // canonical
  const SchemeSizes& sizes() const { return sizes_; }
  const Stages& stages() const { return stages_; }
  Module& root() const { return *root_; }  // parameters: "table", or "cope.table" in a sum
  Claims claims() const;                   // what holds for all of the schemes together

  bool embeds() const { return !stages_.embeds.empty(); }  // some scheme adds to x before attention
  bool attends() const;  // false: no scheme takes part in attention, and x + P is the output
  // Throws InputError "OPTION: ..." if the schemes require a causal mask.
  void require_bidirectional(const std::string& option) const;
  bool reads_x() const { return embeds() || claims().reads_x; }
  std::vector<std::string> probe_names() const;  // found by a run on a few tokens
  std::vector<std::string> draw_names() const;   // probes of drawn positions

  struct Result {
    Tensor output;    // [b h t d]; [b t c] if not attends()
    Tensor embedded;  // [b t c]; undefined if not embeds()
    Tensor logits;    // [b h t t] with history, 0 where masked; undefined unless the reference executor ran
    Tensor pattern;   // likewise
  };
  // Operands that the schemes do not read may be undefined. Scores are computed on the operands' device.
  [[nodiscard]] Result run(AttendInputs inputs, const AttendPlan& plan) const;

 private:
  std::string text_;
  SchemeSizes sizes_;
  std::vector<std::unique_ptr<PositionalScheme>> schemes_;
  std::unique_ptr<Module> sum_;  // holds several schemes
  Module* root_ = nullptr;
  Stages stages_;
};

// Returns a causal run of normal operands drawn by `seed`: x if the schemes read it, q k v if they attend.
[[nodiscard]] AttendInputs random_inputs(
    const BareAttention& scheme, index_t batch, index_t length, std::uint64_t seed, DType dtype = DType::f64);
// Returns a normal cotangent of the output's shape, drawn by `seed`.
[[nodiscard]] Tensor random_cotangent(const AttendInputs& inputs, std::uint64_t seed);

// Returns bool [2 tokens], true for tokens that are not padding: the second sequence is padded on both sides.
[[nodiscard]] Tensor present_but(index_t tokens, index_t left, index_t right);

// "q", "k", "v", "x"
[[nodiscard]] std::array<std::pair<const char*, Tensor*>, 4> named_operands(AttendInputs& inputs);
// Returns the leaves of the derivative: the operands that are defined, then parameters that are not frozen.
[[nodiscard]] std::vector<Named> leaves_of(const BareAttention& scheme, AttendInputs inputs);
// Returns a gradient per leaf, named "gradient.q"; zeros if y does not depend on the leaf. A scalar y needs no cotangent.
[[nodiscard]] std::vector<Named> gradients_of(
    const Tensor& y, const Tensor& cotangent, const std::vector<Named>& leaves);
// Returns "output", then the gradients.
[[nodiscard]] std::vector<Named> output_and_gradients(
    const BareAttention& scheme, const AttendInputs& inputs, const AttendPlan& plan, const Tensor& cotangent);

}  // namespace whence
