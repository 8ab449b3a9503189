// Edits of numbers in the middle of a pass: the change of the loss that the gradient predicts, and the real change.
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
  std::optional<double> predicted;  // gradient times change; empty if there is no gradient
  double real;                      // loss after the edit minus loss before
};

// Runs the pass with an edit such as "gates layer=0 head=2 = 0": a place (place.h) and its change, applied to every unmasked
// entry. "= X" sets, "*= X" scales, "+= X" adds. Throws InputError if the edit cannot be read or its place does not exist.
[[nodiscard]] EditOutcome outcome_of(const Inspection& inspection, const std::string& edit);

// A forward pass with one edit: its outcome, the model's answers, and the values of every quantity by its path.
struct EditedPass {
  EditOutcome outcome;
  std::vector<std::optional<Prediction>> predictions;
  std::map<std::string, Tensor> values;
};
[[nodiscard]] EditedPass pass_with(const Inspection& inspection, const std::string& edit);

// Runs forward and backward again with all these edits. Numbers that are set pass no gradient. REQUIRES: as for Inspection
[[nodiscard]] std::unique_ptr<Inspection> inspection_with(
    const Inspection& inspection, const std::vector<std::string>& edits);

// Gives the model's parameters the edits that are of parameters, until what it returns is gone.
[[nodiscard]] std::shared_ptr<const void> edited_parameters(
    const Inspection& inspection, const std::vector<std::string>& edits);

// Replaces the values x of a quantity at its probe by factor * x + offset.
struct Change {
  std::string path;
  Tensor factor, offset;
};
// Applies `before`, and then `changes`.
[[nodiscard]] Prepare with(Prepare before, std::vector<Change> changes);

// An edit of a gradient in backward, "dLoss/dgates layer=0 head=2 *= 0", changes gradients of parameters. gradients_with
// returns the norms of those that change, the most changed first.
struct GradientOutcome {
  std::string parameter;
  double before, after;
};
[[nodiscard]] bool is_of_gradient(const std::string& edit);
[[nodiscard]] std::vector<GradientOutcome> gradients_with(const Inspection& inspection, const std::string& edit);

// True if some real change is over a hundred times its prediction. Then the edit is a large step from where the loss is flat.
[[nodiscard]] bool far_from_straight(const std::vector<EditOutcome>& edits);

// Tries the obvious edits and returns the `most` with the largest real change, largest first. They set every quantity of
// pairs to 0 in one head, quantities of a scheme from 0 to 1 (gates) also to 1, and each tap of a convolution to 0.
[[nodiscard]] std::vector<EditOutcome> strongest_edits(const Inspection& inspection, std::size_t most);

}  // namespace whence::look
