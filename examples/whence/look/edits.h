// Edits of numbers in the middle of a pass: the change of the loss that the gradient predicts, and the real change.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/ops.h"
#include "examples/whence/look/inspection.h"
#include "examples/whence/look/place.h"

namespace whence::look {

struct EditOutcome {
  std::string text;
  std::optional<double> predicted;  // gradient times change; empty if there is no gradient
  double real;                      // loss after the edit minus loss before
};

// A forward pass with an edit: its outcome, the model's answers, and the values of every quantity by its path.
struct EditedPass {
  EditOutcome outcome;
  std::vector<std::optional<Prediction>> predictions;
  std::map<std::string, Tensor> values;
};
// Runs the pass with an edit such as "gates layer=0 head=2 = 0": a place (place.h) and its change, applied to every unmasked
// entry. "= X" sets, "*= X" scales, "+= X" adds. Several edits with ';' between them are of one pass, and the prediction is the
// sum of theirs. Throws InputError if an edit cannot be read or its place does not exist.
[[nodiscard]] EditedPass pass_with(const Inspection& inspection, const std::string& edits);
[[nodiscard]] EditOutcome outcome_of(const Inspection& inspection, const std::string& edits);

// Runs forward and backward again with all these edits. Numbers that are set pass no gradient. REQUIRES: as for Inspection
[[nodiscard]] std::unique_ptr<Inspection> inspection_with(
    const Inspection& inspection, const std::vector<std::string>& edits);

// Splits "A; B" into its edits or patches.
[[nodiscard]] std::vector<std::string> parts_of(const std::string& text);

// Replaces the values x of a quantity at its probe by factor * x + offset; by the offset alone, even if x is NaN, where
// the factor is 0.
struct Change {
  std::string path;
  Tensor read, factor, offset;  // read: bool, true where the factor is not 0

  // `change` returns factor and offset of an unmasked entry, from its distance to the first of the place.
  Change(const Inspection& inspection, const NamedPlace& at,
      const std::function<std::pair<double, double>(const Shape& from_first)>& change);
  Tensor operator()(const Tensor& x) const { return masked(x, read) * factor + offset; }
};
// Applies `before`, and then `changes`.
[[nodiscard]] Prepare with(Prepare before, std::vector<Change> changes);
// Returns the sum of gradient times change. Empty if there is no gradient.
[[nodiscard]] std::optional<double> predicted_change(const Inspection& inspection, const std::vector<Change>& changes);

// Edits of a pass. The model's parameters have theirs until this is gone; `prepare` makes the others.
class Edited {
 public:
  Edited(const Inspection& inspection, const std::vector<std::string>& edits);
  ~Edited();
  Edited(const Edited&) = delete;
  Edited& operator=(const Edited&) = delete;

  Prepare prepare;
  std::optional<double> predicted;  // change of the loss

 private:
  std::vector<std::pair<Tensor, Tensor>>
      before_;  // parameters and their numbers. An existing graph keeps the old numbers
};

// An edit of a gradient in backward, "dLoss/dgates layer=0 head=2 *= 0", changes gradients of parameters. gradients_with
// returns the norms of those that change, the most changed first.
struct GradientOutcome {
  std::string parameter;
  double before, after;
};
[[nodiscard]] bool is_of_gradient(const std::string& edit);
[[nodiscard]] std::vector<GradientOutcome> gradients_with(const Inspection& inspection, const std::string& edit);

}  // namespace whence::look
