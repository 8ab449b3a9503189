// Inspects texts whose pairs fit neither in memory nor on a page. The whole text goes forward and backward once, with
// training's executor, which stores no pairs. Any query rows of any layer can then be computed again in the composed
// form, with every probe, and differentiated from the gradient of their output.
#pragma once

#include <vector>

#include "examples/whence/look/inspection.h"

namespace whence::look {

class Rows {
 public:
  // True if the schemes of the model compute each row independently.
  [[nodiscard]] static bool take(const Subject& subject);

  // `gradients`: runs backward too; otherwise rows have values only. Throws InputError if a scheme's rows depend on each
  // other. REQUIRES: `subject` outlives this
  explicit Rows(const Subject& subject, bool gradients = true);

  const Subject& subject() const { return subject_; }
  double loss() const { return loss_; }
  const std::vector<std::optional<Prediction>>& predictions() const { return predictions_; }

  // Returns the quantities of attention in `layer` for queries [begin, end). Pairs are [b h end-begin keys]; in a causal model
  // keys stop at `end` if the schemes allow it. q, k and v are complete, with the gradients from these rows only. Causes
  // stay empty. REQUIRES: 0 <= begin < end <= tokens
  [[nodiscard]] std::vector<Quantity> of(index_t layer, index_t begin, index_t end, bool gradients = true) const;

 private:
  struct Layer {
    Tensor x, query, key, value, gradient_of_output;
  };

  const Subject& subject_;
  std::vector<SchemeSpec> specs_;
  double loss_ = 0;
  std::vector<std::optional<Prediction>> predictions_;
  std::vector<Layer> layers_;
};

}  // namespace whence::look
