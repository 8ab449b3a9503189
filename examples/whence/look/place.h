// One way to name numbers of a pass, in --explain, --edit and on pages: "gates layer=0 head=1 i=9 j=4".
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "examples/whence/look/inspection.h"

namespace whence::look {

struct NamedPlace {
  const Quantity* quantity;
  bool gradient;                                    // "dLoss/dgates ..."
  std::vector<std::pair<index_t, index_t>> ranges;  // of each axis the first and the last place

  // The one number. InputError that names `option` where an axis has several places.
  [[nodiscard]] Shape single(const std::string& option) const;
};

// A name of a quantity, short ("gates", "base.bias") or whole ("blocks.0.attention.position.gates", a parameter), and
// for each of its axes one place or several: "layer=0 head=2 i=3..9 j=4". Axes of parameters go by their numbers. Layer 0
// and all places where nothing is said. InputError, naming `option`, where nothing of the kind is there.
[[nodiscard]] NamedPlace place_named(const Inspection& inspection, const std::string& text, const std::string& option);
// The same among `quantities` of a model with so many layers, and `parameters`, if any.
[[nodiscard]] NamedPlace place_named(const std::vector<Quantity>& quantities, const std::vector<Quantity>& parameters,
    index_t layers, const std::string& text, const std::string& option);

}  // namespace whence::look
