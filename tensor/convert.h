// Conversion of numbers between the types of dtypes, the same on every device.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tensor/dtype.h"

namespace whence {

// odd_float returns the float that rounds to the same 16-bit number as the double does. It truncates, and sets the last
// bit if anything was lost ("round to odd"), so that the second rounding meets no false tie.
WHENCE_HD inline float odd_float(double value) {
  const float nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || value != value) return nearest;
  const bool away =
      (nearest < 0 ? -static_cast<double>(nearest) : static_cast<double>(nearest)) > (value < 0 ? -value : value);
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(nearest) - (away ? 1u : 0u)) | 1u);
}

// convert() rounds once; only i64 beyond 2^53 to 16 bits rounds twice. To integers it rounds towards zero and clamps to
// the type's range; NaN becomes 0; i64 to i32 keeps the lower 32 bits. To bool it gives x != 0. A dual gives its value.
template <class To, class From> WHENCE_HD inline To convert(From value) {
  constexpr bool narrow_to = std::is_same_v<To, Float16> || std::is_same_v<To, BFloat16>;
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_same_v<From, Dual>) {
    return convert<To>(value.value);
  } else if constexpr (narrow_to && !std::is_same_v<From, float>) {
    return To(odd_float(static_cast<double>(value)));
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != From(0);
  } else if constexpr (std::is_integral_v<To>) {
    constexpr To low = std::numeric_limits<To>::min(), high = std::numeric_limits<To>::max();
    if constexpr (std::is_integral_v<From>) {
      return static_cast<To>(value);
    } else {
      if (!(value == value)) return 0;
      if (value <= static_cast<From>(low)) return low;
      return value >= static_cast<From>(high) ? high : static_cast<To>(value);
    }
  } else if constexpr (std::is_same_v<To, Dual>) {
    return Dual(static_cast<double>(value));
  } else {
    return static_cast<To>(value);
  }
}

}  // namespace whence
