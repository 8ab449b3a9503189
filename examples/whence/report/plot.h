// A plot of curves as SVG, complete without script.
#pragma once

#include <string>
#include <vector>

#include "examples/whence/report/report.h"

namespace whence::report {

// For a page. A curve of more points than the drawing has columns is drawn by each column's first, lowest, highest and
// last. Curves differ by dash pattern and carry their name at their right end; colour only repeats this. Error
// where a curve has not one y, and one error if any, for every x.
[[nodiscard]] std::string svg(const Plot& plot);

// Each under its title, for a page; nothing of none.
[[nodiscard]] std::string plots_html(const std::vector<Plot>& plots);

// The same as a file of its own, with the page's colours, light and dark.
[[nodiscard]] std::string svg_file(const Plot& plot);

// Several in one file, `across` beside each other, each under its title.
[[nodiscard]] std::string svg_file(
    const std::string& title, const std::string& note, const std::vector<Plot>& plots, std::size_t across);

}  // namespace whence::report
