// Named quantities of a pass: what passed a probe in one layer, or a parameter.
#pragma once

#include <string>
#include <vector>

#include "autograd/inspect/capture.h"
#include "nn/scheme.h"
#include "nn/transformer.h"

namespace whence::look {

struct Quantity {
  std::string path;    // "blocks.0.attention.position.gates"
  std::string name;    // within its layer's attention: "position.gates"; "residual"; of a parameter its path
  index_t layer = -1;  // -1: of the whole model
  const ProbeInfo* probe = nullptr;        // null: of a parameter, or of a layer other than attention
  std::string scheme = {};                 // that passed it; empty: attention itself
  std::string line = {};                   // "nn/positional/cope.cpp:36"
  Tensor value = {}, gradient = {};        // gradient undefined: no path, or frozen
  std::vector<unsigned char> causes = {};  // for each entry, into Inspection::causes; 0: it lives
  bool is_parameter = false, frozen = false;

  [[nodiscard]] bool has_pairs() const { return probe && probe->axes == "b h i j"; }
  [[nodiscard]] Quantity without_numbers() const;
};

// What passed the probes of a capture, in their order, with what the registrations of `specs` say of each. Causes stay
// empty.
[[nodiscard]] std::vector<Quantity> quantities_of(const Capture& capture, const std::vector<SchemeSpec>& specs);

// A quantity for each parameter, whose gradient it takes out of the model.
[[nodiscard]] std::vector<Quantity> parameters_of(const Transformer& model);

// The one of that layer and name; null where there is none.
[[nodiscard]] const Quantity* find(const std::vector<Quantity>& all, index_t layer, const std::string& name);

// The layer of "blocks.3.attention.q"; -1 of what belongs to none.
[[nodiscard]] index_t layer_of(const std::string& path);

// The sum of the products of all their numbers. REQUIRES: equal shapes
[[nodiscard]] double dot(const Tensor& a, const Tensor& b);

// The axes of a quantity, "b h i j" of its probe, as letters with their extents. Those of a parameter have no letters.
struct Axes {
  std::string letters;  // "bhij"
  Shape shape;

  explicit Axes(const Quantity& quantity);

  [[nodiscard]] bool has(char letter) const { return letters.find(letter) != std::string::npos; }
  [[nodiscard]] int find(char letter) const { return has(letter) ? static_cast<int>(letters.find(letter)) : -1; }
  [[nodiscard]] index_t extent(char letter) const { return shape[find(letter)]; }
  // Of each axis the place of element `e`, counted row by row; of one axis; and the other way round.
  [[nodiscard]] Shape position(std::size_t e) const { return position_of(static_cast<index_t>(e), shape); }
  [[nodiscard]] index_t place(std::size_t e, char letter) const { return position(e)[find(letter)]; }
  [[nodiscard]] std::size_t element(const Shape& at) const;
};

}  // namespace whence::look
