// The axes of a quantity, "b h i j" of its probe, as letters with their extents.
#pragma once

#include <string>
#include <vector>

#include "examples/whence/look/inspection.h"

namespace whence::look {

struct Axes {
  static constexpr std::size_t nowhere = std::string::npos;

  std::string letters;  // "bhij"
  std::vector<index_t> extents;

  explicit Axes(const Quantity& quantity);  // REQUIRES: quantity.probe

  [[nodiscard]] std::size_t find(char letter) const { return letters.find(letter); }  // or nowhere
  [[nodiscard]] bool has(char letter) const { return find(letter) != nowhere; }
  [[nodiscard]] index_t extent(char letter) const { return extents[find(letter)]; }
  [[nodiscard]] std::size_t count() const;  // of elements
  // Of each axis the place of element `e`, counted row by row; and the other way round.
  [[nodiscard]] std::vector<index_t> position(std::size_t e) const;
  [[nodiscard]] std::size_t element(const std::vector<index_t>& at) const;
};

}  // namespace whence::look
