// Looks at texts whose pairs fit neither in memory nor on a page. The whole text goes forward and backward once, by the
// executor that training runs, which keeps no pairs. Any query rows of any layer are then computed again in the
// composed form, every probe live, and differentiated from what arrived at their output.
#pragma once

#include <vector>

#include "examples/whence/look/inspection.h"

namespace whence::look {

class Rows {
 public:
  // Whether the schemes of a model compute each row by itself.
  [[nodiscard]] static bool take(const Subject& subject);

  // REQUIRES: `subject` outlives this. InputError where a scheme's rows need each other.
  // `gradients`: also backward, without which rows have values alone.
  explicit Rows(const Subject& subject, bool gradients = true);

  const Subject& subject() const { return subject_; }
  double loss() const { return loss_; }
  const std::vector<std::optional<Prediction>>& predictions() const { return predictions_; }

  // What attention of `layer` passes to probes for queries [begin, end): pairs are [b h end-begin keys], with keys up
  // to `end` alone in a causal model where the schemes allow that; q, k and v are whole, their gradients those by these
  // rows. Causes stay empty. REQUIRES: 0 <= begin < end <= tokens
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
