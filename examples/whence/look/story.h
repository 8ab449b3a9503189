// Data of the page's story: what each head does to the loss, and one number whose change moves an answer the most.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "examples/whence/look/edits.h"
#include "examples/whence/look/inspection.h"

namespace whence::look {

// The effect of one silenced head: its output is set to 0.
struct HeadEffect {
  index_t layer, head;
  EditOutcome outcome;
};
// Returns one for each head of each layer, measured by a forward pass each.
[[nodiscard]] std::vector<HeadEffect> effects_of_heads(const Inspection& inspection);

struct StoryPair {
  index_t layer, head, i, j;
};

// The pass with one number changed, as the page shows it at one query.
struct Turned {
  struct Row {
    const Quantity* quantity;
    std::vector<double> numbers;  // of the place's head and query, one for each key; 0 where the mask hides the pair
  };
  double number;
  EditOutcome outcome;                   // its text is an argument of `look --edit`
  std::optional<Prediction> prediction;  // at query i, or at the first token after it that has a target
  std::vector<Row> rows;                 // of every quantity of pairs in the place's layer
};
// Throws InputError if the edit cannot be read, or the pass has no such place.
[[nodiscard]] Turned turned(
    const Inspection& inspection, const std::string& edit, double number, index_t layer, index_t head, index_t i);

// A knob is what a scheme registers (SchemeInfo::knob), or else a content score. The story turns it where that moves the
// probability of an answer the most: at one pair of tokens if such a pair moves an answer visibly, else at a key for all
// queries, else in a whole head or layer. Numbers from 0 to 1 are set to each tenth. A content score gets -5 to 5 added.
// Everything else is scaled by 0 to 2.
struct Knob {
  StoryPair pair;                    // pair.i is the query that answers
  std::string at = {};               // "gates layer=0 head=2 i=46 j=42"
  std::string change = {};           // "=", "+=" or "*="
  std::optional<double> value = {};  // if it is a single number
  double effect = 0;                 // largest change of the answer's probability at the knob's two ends
  std::vector<Turned> stops = {};    // eleven
};
// Returns nothing if no token has a target. A change of an answer's probability by more than `visible` ends the search: the
// schemes' knobs are tried from the outermost inwards, then the scores; if none moves that much, the first is taken.
// REQUIRES: an inspection in f64; with f32, small effects are rounding
[[nodiscard]] std::optional<Knob> knob_of(const Inspection& inspection, double visible = 0.1);

}  // namespace whence::look
