// Named quantities of a pass: a probed tensor of one layer, or a parameter.
#pragma once

#include <string>
#include <vector>

#include "autograd/inspect/capture.h"
#include "nn/scheme.h"
#include "nn/transformer.h"

namespace whence::look {

struct Quantity {
  std::string path;    // "blocks.0.attention.position.gates"
  std::string name;    // within its layer's attention: "position.gates"; "residual"; for a parameter its path
  index_t layer = -1;  // -1: of the whole model
  const ProbeInfo* probe = nullptr;        // null for a parameter, or for a layer other than attention
  std::string scheme = {};                 // the scheme that computed it; empty: attention itself
  std::string line = {};                   // "nn/positional/cope.cpp:36"
  Tensor value = {}, gradient = {};        // gradient undefined: no path, or frozen
  std::vector<unsigned char> causes = {};  // for each entry an index into Inspection::causes; 0: no cause
  bool is_parameter = false, frozen = false;

  [[nodiscard]] bool has_pairs() const { return probe && probe->axes == "b h i j"; }
};

// Returns the tensors that a capture recorded, in order, with the facts from the registrations of `specs`. Causes stay
// empty.
[[nodiscard]] std::vector<Quantity> quantities_of(const Capture& capture, const std::vector<SchemeSpec>& specs);

// Returns a quantity for each parameter. Moves the gradients out of the model.
[[nodiscard]] std::vector<Quantity> parameters_of(const Transformer& model);

// Returns the quantity of that layer and name, or null.
[[nodiscard]] const Quantity* find(const std::vector<Quantity>& all, index_t layer, const std::string& name);

// Returns the inner product over all entries. REQUIRES: equal shapes
[[nodiscard]] double dot(const Tensor& a, const Tensor& b);

// Axes of a quantity: the letters of its probe, "b h i j", with their extents. A parameter's axes have no letters.
struct Axes {
  std::string letters;  // "bhij"
  Shape shape;

  explicit Axes(const Quantity& quantity);

  [[nodiscard]] bool has(char letter) const { return letters.find(letter) != std::string::npos; }
  [[nodiscard]] int find(char letter) const { return has(letter) ? static_cast<int>(letters.find(letter)) : -1; }
  [[nodiscard]] index_t extent(char letter) const { return shape[find(letter)]; }
  // position(e): the places of row-major element `e` along all axes; place: along one axis; element: the inverse.
  [[nodiscard]] Shape position(std::size_t e) const { return position_of(static_cast<index_t>(e), shape); }
  [[nodiscard]] index_t place(std::size_t e, char letter) const { return position(e)[find(letter)]; }
  [[nodiscard]] std::size_t element(const Shape& at) const;
};

}  // namespace whence::look
