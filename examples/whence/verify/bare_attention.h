// Attention on bare queries, keys and values with the schemes of a text and no model around it: for other
// people's numbers, and for checks.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/attention/executor.h"
#include "nn/scheme.h"

namespace whence {

// REQUIRES: equal batch, heads, length and head dims. Undefined where the schemes read none.
struct BareOperands {
  Tensor q, k, v;  // [b h t d]
  Tensor x;        // [b t h*d], the layer's input
};

// How the sequence lies and what may be seen of it.
struct BareSetting {
  bool causal = true;
  std::optional<double> scale = {};  // of q.k; 1 / sqrt(d) when none is given
  Tensor positions = {};             // [t] or [b t], f64; undefined: 0, 1, ... from the first token that is present
  Tensor present = {};               // bool [b t], false for padding; undefined: no padding
  Tensor mask = {};                  // bool, broadcasts to [b h t t]; applies besides the causal mask

  [[nodiscard]] Sequence sequence(index_t length) const;
};

// Draws each parameter of a module around the middle of its Init, by its path.
void draw_parameters(const Module& module, std::uint64_t seed);

// All schemes of one text with their parameters, those that a model has once and those that each layer has.
class BareAttention {
 public:
  // Throws InputError when the text is wrong, or when sizes or schemes do not fit.
  BareAttention(const std::string& text, const SchemeSizes& sizes);
  ~BareAttention();

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

  // Draws parameters around the middle of their Init, none at a zero that would hide others:
  // gradients are best checked there.
  void draw_parameters(std::uint64_t seed) const { whence::draw_parameters(root(), seed); }

  struct Result {
    Tensor output;    // [b h t d]; [b t c] where nothing attends
    Tensor embedded;  // [b t c], where something embeds
    Tensor logits;    // [b h t t] with history, 0 where masked; undefined unless the reference executor ran
    Tensor pattern;   // likewise
  };
  [[nodiscard]] Result run(const BareOperands& operands, const BareSetting& setting, const Executor& executor) const;

 private:
  class Holder;

  std::string text_;
  SchemeSizes sizes_;
  std::vector<std::unique_ptr<PositionalScheme>> schemes_;
  std::unique_ptr<Holder> holder_;  // of a sum
  Module* root_ = nullptr;
  Stages stages_;
};

// Operands drawn from the normal distribution by `seed`. x only where the schemes read
// it, q k v only where they attend.
[[nodiscard]] BareOperands random_operands(
    const BareAttention& scheme, index_t batch, index_t length, std::uint64_t seed, DType dtype = DType::f64);

}  // namespace whence
