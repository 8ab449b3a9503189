// Colours of numbers, computed in OKLCH with lightness linear in the number: equal steps look equal, also in grey and to
// colour-blind eyes.
#pragma once

#include <string>

namespace whence::report {

// Violet over teal to yellow; or blue and orange apart from a neutral middle, which is the page's own darkness.
enum class Scale : unsigned char { sequential, diverging_by_day, diverging_by_night };

// "0060a8" for t from 0 to 1.
[[nodiscard]] std::string colour_of(Scale scale, double t);

}  // namespace whence::report
