// A plot of curves as inline SVG, complete without script.
#pragma once

#include <string>

#include "examples/report/report.h"

namespace whence::report {

// Curves differ by dash pattern and carry their name at their right end; colour only repeats what these say.
[[nodiscard]] std::string svg(const Plot& plot);

}  // namespace whence::report
