// Colours of numbers, computed in OKLCH with lightness linear in the number. Equal steps look equal, also in grey and for
// colour-blind readers.
#pragma once

#include <string>

namespace whence::report {

// Sequential: violet, teal, yellow. Diverging: blue, neutral, orange; the middle is about as light as the page.
enum class Scale : unsigned char { sequential, diverging_by_day, diverging_by_night };

// Returns a colour as "0060a8" for t from 0 to 1.
[[nodiscard]] std::string colour_of(Scale scale, double t);

}  // namespace whence::report
