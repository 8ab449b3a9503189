// A matrix as a picture in SVG: cells of colour for numbers, of colour and figure for kinds. Knows nothing of tensors.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "examples/whence/report/report.h"

namespace whence::report {

// Either `values` or `kinds` has rows * columns entries, row by row.
struct HeatMap {
  enum class Scale : unsigned char { sequential, diverging };
  struct Kind {
    std::string name, meaning;
    bool plain = false;  // without colour and figure: nothing to be told from the others
  };

  std::string title, note;
  std::string row_label, column_label;  // "query i"
  std::size_t rows = 0, columns = 0;
  std::vector<std::string> row_names = {}, column_names = {};  // beside the indices; empty: indices alone
  std::vector<double> values = {};                             // what is no number gets a colour that no scale has
  std::vector<unsigned char> kinds = {};                       // into `legend`
  std::vector<unsigned char> hidden = {};                      // not 0: hatched instead; empty: none is
  Scale scale = Scale::sequential;
  double low = 0, high = 1;      // the ends of the colours
  std::vector<Tick> marks = {};  // worth a line on the scale
  std::vector<Kind> legend = {};
  std::vector<std::pair<std::size_t, std::size_t>> plus_signs = {};  // row and column
};

// Colours are computed in OKLCH with lightness linear in the number: equal steps look equal, also in grey and to
// colour-blind eyes. There are this many, an odd number, so that 0 has the middle one; cells of one colour are one path
// of horizontal runs.
inline constexpr int heat_colours = 63;

// The path of the cells for which `of` is `wanted`, one unit each: "M3 5h4v1h-4z" is columns 3 to 6 of row 5.
[[nodiscard]] std::string runs_of(const std::vector<int>& of, std::size_t columns, int wanted);

// As a file. Error where the sizes contradict each other.
[[nodiscard]] std::string svg_file(const HeatMap& map);

// Several in one file, `across` beside each other, smaller and with indices alone.
[[nodiscard]] std::string svg_file(
    const std::string& title, const std::string& note, const std::vector<HeatMap>& maps, std::size_t across);

}  // namespace whence::report
