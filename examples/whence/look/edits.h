// Numbers changed in the middle of a pass: how much the gradient says that the loss will change, and how much it does.
#pragma once

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

// Of "blocks.0.attention.position.gates[h=2] = 0": every entry that the mask does not hide, of head 2. Axes go by their
// letters in the quantity's axes, or by number ("[3=1]", the only way for parameters); j=3..9 is a range with both
// ends. "= X" sets, "*= X" scales, "+= X" adds. InputError: what cannot be read, a path or an axis that is not there.
[[nodiscard]] EditOutcome outcome_of(const Inspection& inspection, const std::string& edit);

// Whether a real change is a hundred times its prediction: an edit that is no small step, from where the loss is flat.
[[nodiscard]] bool far_from_straight(const std::vector<EditOutcome>& edits);

// What one would try first: every quantity of pairs set to 0 in one head, what runs from 0 to 1 in a scheme (gates) to
// 1 too, and each tap of a convolution blanked. By the real change, largest first.
[[nodiscard]] std::vector<EditOutcome> strongest_edits(const Inspection& inspection, std::size_t most);

}  // namespace whence::look
