// Attribution says where a logit came from; the lens says what the model would have answered earlier. The residual
// stream is a sum of the embedding, of each head and each MLP of each layer, and of biases. With the norms behind it taken
// as fixed at this pass, a logit is a sum over the same parts.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "examples/whence/look/inspection.h"
#include "examples/whence/report/table.h"

namespace whence::look {

// One pass forward, with every number that has a name.
struct Forward {
  // REQUIRES: `subject` outlives this. InputError where it has no logits.
  explicit Forward(const Subject& subject, const Prepare& prepare = {});

  const Subject& subject;
  Tensor logits;  // [1 t answers]
  double loss;
  std::vector<Quantity> quantities;  // without gradients
};

// Which logit is meant.
struct Asked {
  index_t token, answer;
};
// `token` -1: the last one that is asked. `answer` "": the wanted one, or the likeliest where nothing is asked.
// InputError that names --token or --answer where there is no such.
[[nodiscard]] Asked asked_of(const Forward& forward, index_t token = -1, const std::string& answer = "");
// The likeliest answer but for the one that is asked.
[[nodiscard]] index_t other_answer(const Forward& forward, const Asked& asked);

struct LogitPart {
  index_t layer = -1;  // -1: before the layers, or behind them
  std::string name;    // "embedding", "position", "head 3", "attention bias", "MLP", "MLP bias", "norm bias"
};

class Attribution {
 public:
  // Of the logits at these tokens.
  Attribution(const Forward& forward, std::vector<index_t> tokens);

  [[nodiscard]] const std::vector<LogitPart>& parts() const { return parts_; }
  // What each part adds to that logit. InputError where they do not add up to it, as where an edit of the pass wrote
  // over the residual stream.
  [[nodiscard]] std::vector<double> of(const Asked& asked) const;

 private:
  using Numbers = std::vector<double>;  // a row for each token
  struct FixedNorm {
    Numbers weight, bias;  // no bias in an RMS norm
    Numbers inverse;       // of the deviation, for each token
  };
  // What is added to the residual stream, or a norm of all that was added before.
  struct Step {
    Numbers added;
    FixedNorm norm;
    bool is_norm = false;
    std::size_t part;  // in parts_; none of a norm without bias
  };
  static constexpr std::size_t no_part = std::numeric_limits<std::size_t>::max();

  [[nodiscard]] Numbers rows_of(const Tensor& x) const;  // of [t ...], the chosen tokens'
  [[nodiscard]] Numbers product(const Numbers& rows, const Tensor& weight) const;
  Numbers add_part(index_t layer, const std::string& name, Numbers added);
  Numbers add_bias(index_t layer, const std::string& name, const std::string& parameter);
  Numbers add_norm(index_t layer, const std::string& name, const Norm& norm, const Numbers& of);
  Numbers add_attention(index_t layer);
  Numbers add_mlp(index_t layer);
  [[nodiscard]] Tensor parameter(const std::string& path) const;  // undefined where the model has none
  [[nodiscard]] Tensor seen(const std::string& path) const;       // without the batch

  const Forward& forward_;
  std::vector<index_t> tokens_;
  index_t dim_;
  std::vector<LogitPart> parts_;
  std::vector<Step> steps_;  // in the order of the pass
};

// The logits that the residual stream gives where the layers behind it are left out: the last norm and the output alone.
struct LensLayer {
  index_t layer;  // -1: before the first
  Tensor logits;  // [1 t answers]
};
[[nodiscard]] std::vector<LensLayer> lens_of(const Forward& forward);

// What a part adds to the logit of what is asked, and to that of the likeliest other answer.
struct AttributedPart {
  LogitPart part;
  double logit, other;
};
[[nodiscard]] std::vector<AttributedPart> attribution_of(const Forward& forward, const Asked& asked);
// After a layer: logit and probability of what is asked, and the likeliest answer.
struct LensAnswer {
  index_t layer;
  double logit, probability;
  std::string likeliest;
  double its_probability;
};
[[nodiscard]] std::vector<LensAnswer> lens_answers(const Forward& forward, const Asked& asked);

// The sum stands in the last row.
[[nodiscard]] Table attribution_table(const std::vector<AttributedPart>& parts);
[[nodiscard]] Table lens_table(const std::vector<LensAnswer>& answers);
// What the two tables are of, as sentences.
[[nodiscard]] std::string attribution_words(const Forward& forward, const Asked& asked);
[[nodiscard]] std::string lens_words(const Forward& forward, const Asked& asked);

}  // namespace whence::look
