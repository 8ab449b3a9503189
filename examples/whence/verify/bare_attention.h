// Attention on bare queries, keys and values with the schemes of a text and no model around it: for other people's
// numbers, and for checks.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autograd/check/gradcheck.h"
#include "nn/attention/executors.h"
#include "nn/scheme.h"

namespace whence {

// Draws each parameter of a module around the middle of its Init, by its path: none at a zero that would hide others.
void draw_parameters(const Module& module, std::uint64_t seed);

// All schemes of one text with their parameters, those that a model has once and those that each layer has.
class BareAttention {
 public:
  // Throws InputError when the text is wrong, or when sizes or schemes do not fit.
  BareAttention(const std::string& text, const SchemeSizes& sizes);

  const std::string& text() const { return text_; }  // canonical
  const SchemeSizes& sizes() const { return sizes_; }
  const Stages& stages() const { return stages_; }
  Module& root() const { return *root_; }  // parameters: "table", or "cope.table" in a sum
  Claims claims() const;                   // what holds for all of the schemes together

  bool embeds() const { return !stages_.embeds.empty(); }  // adds to x before attention
  bool attends() const;  // takes part in attention; of a scheme that does not, x + P is the output
  bool reads_x() const;  // found out by a run on a few tokens
  std::vector<std::string> probe_names() const;  // likewise
  std::vector<std::string> draw_names() const;   // of the probes through which positions pass that are drawn

  struct Result {
    Tensor output;    // [b h t d]; [b t c] where nothing attends
    Tensor embedded;  // [b t c], where something embeds
    Tensor logits;    // [b h t t] with history, 0 where masked; undefined unless the reference executor ran
    Tensor pattern;   // likewise
  };
  // Operands that the schemes do not read may be undefined. Scores are where the operands are.
  [[nodiscard]] Result run(AttendInputs inputs, const Executor& executor) const;

 private:
  std::string text_;
  SchemeSizes sizes_;
  std::vector<std::unique_ptr<PositionalScheme>> schemes_;
  std::unique_ptr<Module> sum_;  // of several schemes
  Module* root_ = nullptr;
  Stages stages_;
};

// A causal run of normal operands drawn by `seed`. x only where the schemes read it, q k v only where they attend.
[[nodiscard]] AttendInputs random_inputs(
    const BareAttention& scheme, index_t batch, index_t length, std::uint64_t seed, DType dtype = DType::f64);
// Of the output's shape, likewise.
[[nodiscard]] Tensor random_cotangent(const AttendInputs& inputs, std::uint64_t seed);

// Returns where tokens are of two sequences, bool [2 tokens]: the second one is padded, on both sides.
[[nodiscard]] Tensor present_but(index_t tokens, index_t left, index_t right);

// "q", "k", "v", "x"
[[nodiscard]] std::array<std::pair<const char*, Tensor*>, 4> named_operands(AttendInputs& inputs);
// What is differentiated by: the operands that are there, made leaves, then parameters that are not frozen.
[[nodiscard]] std::vector<Named> leaves_of(const BareAttention& scheme, AttendInputs inputs);
// By each leaf, under the name "gradient.q": zeros where y does not depend on it. No cotangent: of a scalar.
[[nodiscard]] std::vector<Named> gradients_of(
    const Tensor& y, const Tensor& cotangent, const std::vector<Named>& leaves);
// "output", then these.
[[nodiscard]] std::vector<Named> output_and_gradients(
    const BareAttention& scheme, const AttendInputs& inputs, const Executor& executor, const Tensor& cotangent);

}  // namespace whence
