// Names of numbers of a pass, as in --explain, --edit and on pages: "gates layer=0 head=1 i=9 j=4"; and a number worked out.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "examples/whence/look/inspection.h"

namespace whence::look {

struct NamedPlace {
  const Quantity* quantity;
  bool gradient;                                    // "dLoss/dgates ..."
  std::vector<std::pair<index_t, index_t>> ranges;  // first and last place along each axis

  // Returns the place of a single number. Throws InputError that names `option` if an axis has several places.
  [[nodiscard]] Shape single(const std::string& option) const;
  [[nodiscard]] Shape extents() const;  // numbers of places
};

// Reads the name of a quantity, short ("gates", "base.bias") or full ("blocks.0.attention.position.gates", a parameter), and
// one place or a range along its axes: "layer=0 head=2 i=3..9 j=4". Axes of parameters are named by number. Defaults: layer
// 0, and all places of an axis. Throws InputError that names `option` if there is no such place.
[[nodiscard]] NamedPlace place_named(const Inspection& inspection, const std::string& text, const std::string& option);
// The same among `quantities` and `parameters`, which may be empty, of a model with `layers` layers.
[[nodiscard]] NamedPlace place_named(const std::vector<Quantity>& quantities, const std::vector<Quantity>& parameters,
    index_t layers, const std::string& text, const std::string& option);

// Explains a number such as "dLoss/dgates layer=0 head=3 i=41 j=17" as lines of text: the numbers that it was computed from.
// Throws InputError "--explain: ..." if there is no such number.
[[nodiscard]] std::string explained(const Inspection& inspection, const std::string& what);

}  // namespace whence::look
