// Maps of numbers from 0 to 1 as a picture in SVG, cells of colour. Knows nothing of tensors.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace whence::report {

// Queries are rows, keys are columns.
struct HeatMap {
  std::string title;  // "layer 0, head 1"
  std::size_t tokens = 0;
  std::vector<double> values;           // tokens * tokens, row by row; what is no number is magenta, as no colour here
  bool causal = false;                  // keys behind the query are hatched instead
  std::vector<std::size_t> marks = {};  // places on the diagonal that get a plus sign
};

inline constexpr int heat_colours = 63;

// As one file, `across` beside each other. Error where there is none or the sizes contradict each other.
[[nodiscard]] std::string svg_file(
    const std::string& title, const std::string& note, const std::vector<HeatMap>& maps, std::size_t across);

}  // namespace whence::report
