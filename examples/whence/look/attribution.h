// Attribution splits a logit into its sources. The lens shows the answer that the model would give after each layer.
// The residual stream is the sum of the embedding, of each head and each MLP, and of biases. With the later norms
// frozen at this pass, a logit is a sum over the same parts.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "examples/whence/cli/json.h"
#include "examples/whence/look/inspection.h"
#include "examples/whence/report/table.h"

namespace whence::look {

class PageNumbers;

// One forward pass, with the value of every named quantity.
struct Forward {
  // REQUIRES: `subject` outlives this. Throws InputError if it has no logits.
  explicit Forward(const Subject& subject, const Prepare& prepare = {});

  const Subject& subject;
  Tensor logits;  // [1 t answers]
  double loss;
  std::vector<Quantity> quantities;  // without gradients
};

// Selects one logit.
struct Asked {
  index_t token, answer;
};
// Returns the logit of `answer` at `token`. -1: the last token that has a target. "": the target, or the likeliest answer
// where there is no target. Throws InputError if there is no such token or answer.
[[nodiscard]] Asked asked_of(const Forward& forward, index_t token = -1, const std::string& answer = "");
[[nodiscard]] index_t other_answer(const Forward& forward, const Asked& asked);

struct LogitPart {
  index_t layer = -1;  // -1: before the first layer or after the last
  std::string name;    // "embedding", "position", "head 3", "attention bias", "MLP", "MLP bias", "norm bias"
};

class Attribution {
 public:
  // Splits the logits at these tokens.
  Attribution(const Forward& forward, std::vector<index_t> tokens);

  [[nodiscard]] const std::vector<LogitPart>& parts() const { return parts_; }
  // Returns the contribution of each part to that logit. Throws InputError if the parts do not add up to it, for example
  // because an edit replaced the residual stream.
  [[nodiscard]] std::vector<double> of(const Asked& asked) const;

 private:
  using Numbers = std::vector<double>;  // a row for each token
  struct FixedNorm {
    Numbers weight, bias;  // no bias in an RMS norm
    Numbers inverse;       // 1 / standard deviation, for each token
  };
  // A term added to the residual stream, or a norm of the sum of all terms before it.
  struct Step {
    Numbers added;
    FixedNorm norm;
    bool is_norm = false;
    std::size_t part;  // index into parts_; no_part for a norm without bias
  };
  static constexpr std::size_t no_part = std::numeric_limits<std::size_t>::max();

  [[nodiscard]] Numbers rows_of(const Tensor& x) const;  // x [t ...], restricted to tokens_
  [[nodiscard]] Numbers product(const Numbers& rows, const Tensor& weight) const;
  Numbers add_part(index_t layer, const std::string& name, Numbers added);
  Numbers add_bias(index_t layer, const std::string& name, const std::string& parameter);
  Numbers add_norm(index_t layer, const std::string& name, const Norm& norm, const Numbers& of);
  Numbers add_attention(index_t layer);
  Numbers add_mlp(index_t layer);
  [[nodiscard]] Tensor parameter(const std::string& path) const;  // undefined if the model has none
  [[nodiscard]] Tensor seen(const std::string& path) const;       // without the batch axis

  const Forward& forward_;
  std::vector<index_t> tokens_;
  index_t dim_;
  std::vector<LogitPart> parts_;
  std::vector<Step> steps_;  // in the order of the pass
};

// Logits of the residual stream when the remaining layers are skipped: only the last norm and the output are applied.
struct LensLayer {
  index_t layer;  // -1: before the first layer
  Tensor logits;  // [1 t answers]
};
[[nodiscard]] std::vector<LensLayer> lens_of(const Forward& forward);

// Contribution of a part to the logit of the chosen answer, and to that of the likeliest other answer.
struct AttributedPart {
  LogitPart part;
  double logit, other;
};
[[nodiscard]] std::vector<AttributedPart> attribution_of(const Forward& forward, const Asked& asked);
// After a layer: logit and probability of the chosen answer, and the likeliest answer.
struct LensAnswer {
  index_t layer;
  double logit, probability;
  std::string likeliest;
  double its_probability;
};
[[nodiscard]] std::vector<LensAnswer> lens_answers(const Forward& forward, const Asked& asked);

// The last row is the sum.
[[nodiscard]] Table attribution_table(const std::vector<AttributedPart>& parts);
[[nodiscard]] Table lens_table(const std::vector<LensAnswer>& answers);
// Returns the page's data: for every token that has a target, the target and the likeliest other answers. Null if there are
// no logits.
[[nodiscard]] Json logits_json(const Inspection& inspection, PageNumbers& numbers);
[[nodiscard]] std::string attribution_words(const Forward& forward, const Asked& asked);
[[nodiscard]] std::string lens_words(const Forward& forward, const Asked& asked);

}  // namespace whence::look
