// Data of the page's story: the effect of each head, the pair of tokens that the story starts with, and the effect of changing
// one number of that pair.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "examples/whence/look/edits.h"
#include "examples/whence/look/inspection.h"

namespace whence::look {

// The effect of one head: its gates are set to 0, or its pattern in a scheme without gates.
struct HeadEffect {
  index_t layer, head;
  EditOutcome outcome;
};
// Returns one for each head of each layer, measured by a forward pass each.
[[nodiscard]] std::vector<HeadEffect> effects_of_heads(const Inspection& inspection);

// Returns the effect that moves the loss the most. REQUIRES: effects
[[nodiscard]] const HeadEffect& strongest(const std::vector<HeadEffect>& effects);

struct StoryPair {
  index_t layer, head, i, j;
};
// Returns the head of the largest effect, the last query with a target, and the other token to which that query gives most of
// its attention.
[[nodiscard]] StoryPair story_pair(const Inspection& inspection, const std::vector<HeadEffect>& effects);

// A scheme's knob (SchemeInfo::knob) at a pair, and the pass at eleven values of it. Numbers from 0 to 1 are set to each
// tenth. A content score gets -5 to 5 added. Everything else is scaled by 0 to 2.
struct Knob {
  struct Row {
    const Quantity* quantity;
    std::vector<double> numbers;  // of the pair's head and query, one for each key
  };
  struct Stop {
    double number;
    EditOutcome outcome;                   // its text is an argument of `look --edit`
    std::optional<Prediction> prediction;  // at token `asked`
    std::vector<Row> rows;                 // of every quantity of pairs in the pair's layer
  };
  std::string at = {};               // "gates layer=0 head=2 i=46 j=42"
  std::string change = {};           // "=", "+=" or "*="
  std::optional<double> value = {};  // if it is a single number
  index_t asked;  // the token of the stops' predictions: i, or the first token after i that has a target
  std::vector<Stop> stops = {};
};
[[nodiscard]] Knob knob_at(const Inspection& inspection, const StoryPair& pair);

}  // namespace whence::look
