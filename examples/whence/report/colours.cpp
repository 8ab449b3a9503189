#include "examples/whence/report/colours.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numbers>

namespace whence::report {
namespace {

std::array<double, 3> linear_rgb(double lightness, double chroma, double hue) {
  const double a = chroma * std::cos(hue * std::numbers::pi / 180), b = chroma * std::sin(hue * std::numbers::pi / 180);
  const double l = std::pow(lightness + 0.3963377774 * a + 0.2158037573 * b, 3),
               m = std::pow(lightness - 0.1055613458 * a - 0.0638541728 * b, 3),
               s = std::pow(lightness - 0.0894841775 * a - 1.2914855480 * b, 3);
  return {4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
      -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s, -0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s};
}

// If the screen cannot show the colour, chroma is reduced, never lightness.
std::string srgb(double lightness, double chroma, double hue) {
  std::array<double, 3> rgb = linear_rgb(lightness, chroma, hue);
  const auto outside = [](double part) { return part < -1e-4 || part > 1.0001; };
  while (chroma > 0.002 && std::ranges::any_of(rgb, outside)) {
    chroma -= 0.002;
    rgb = linear_rgb(lightness, chroma, hue);
  }
  std::string text;
  for (const double part : rgb) {
    const double inside = std::clamp(part, 0.0, 1.0);
    const double bright = inside <= 0.0031308 ? 12.92 * inside : 1.055 * std::pow(inside, 1 / 2.4) - 0.055;
    char two[8];
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned>(std::lround(255 * bright)));
    text += two;
  }
  return text;
}

}  // namespace

std::string colour_of(Scale scale, double t) {
  if (scale == Scale::sequential) return srgb(0.24 + 0.71 * t, 0.145, 300 - 195 * t);
  const double size = std::abs(2 * t - 1);
  const double lightness = scale == Scale::diverging_by_night ? 0.27 + 0.57 * size : 0.975 - 0.43 * size;
  return srgb(lightness, 0.17 * std::pow(size, 0.9), t < 0.5 ? 340 : 165);
}

}  // namespace whence::report
