// Numbers changed in the middle of a pass: how much the gradient says that the loss will change, and how much it does.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "examples/whence/look/inspection.h"

namespace whence::look {

struct EditOutcome {
  std::string text;
  std::optional<double> predicted;  // gradient times change; nothing where no gradient is taken
  double real;                      // the loss afterwards minus the loss before
};

// Of "gates layer=0 head=2 = 0", a place (place.h) and its change: every entry there that the mask does not hide. "= X"
// sets, "*= X" scales, "+= X" adds. InputError: what cannot be read or is not there.
[[nodiscard]] EditOutcome outcome_of(const Inspection& inspection, const std::string& edit);

// The pass forward alone with an edit in force: its outcome, what the model then answers, and the numbers of every
// quantity by its path.
struct EditedPass {
  EditOutcome outcome;
  std::vector<std::optional<Prediction>> predictions;
  std::map<std::string, Tensor> values;
};
[[nodiscard]] EditedPass pass_with(const Inspection& inspection, const std::string& edit);

// The pass once more with all of these edits in force: what is set passes no gradient on. REQUIRES: as of an Inspection
[[nodiscard]] std::unique_ptr<Inspection> inspection_with(
    const Inspection& inspection, const std::vector<std::string>& edits);

// What becomes of the numbers x of a quantity where they pass its probe: factor x + offset.
struct Change {
  std::string path;
  Tensor factor, offset;
};
// `before`, and then these.
[[nodiscard]] Prepare with(Prepare before, std::vector<Change> changes);

// Of an edit of a gradient on its way back, "dLoss/dgates layer=0 head=2 *= 0": the norms of the parameters' gradients
// that it changes, what it changes the most first.
struct GradientOutcome {
  std::string parameter;
  double before, after;
};
[[nodiscard]] bool is_of_gradient(const std::string& edit);
[[nodiscard]] std::vector<GradientOutcome> gradients_with(const Inspection& inspection, const std::string& edit);

// Whether a real change is a hundred times its prediction: an edit that is no small step, from where the loss is flat.
[[nodiscard]] bool far_from_straight(const std::vector<EditOutcome>& edits);

// What one would try first: every quantity of pairs set to 0 in one head, what runs from 0 to 1 in a scheme (gates) to
// 1 too, and each tap of a convolution blanked. By the real change, largest first.
[[nodiscard]] std::vector<EditOutcome> strongest_edits(const Inspection& inspection, std::size_t most);

}  // namespace whence::look
