// f16 and bf16 as two bytes, bit-compatible with IEEE binary16 and with CUDA's types. They only store: arithmetic is in
// float. A GPU converts in hardware to the same bits, except that a NaN loses its sign and payload (0x7FFF; f16 to
// float: 0x7FFFFFFF).
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "tensor/device.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace whence {

// The upper half of a float: 8 exponent bits, 7 stored mantissa bits. Rounds to nearest, ties to even.
struct BFloat16 {
  std::uint16_t bits = 0;

  constexpr BFloat16() = default;
  WHENCE_HD constexpr BFloat16(float value) {
#ifdef __CUDA_ARCH__
    if (!std::is_constant_evaluated()) {
      bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
      return;
    }
#endif
    const auto word = std::bit_cast<std::uint32_t>(value);
    const bool is_nan = (word & 0x7FFFFFFFu) > 0x7F800000u;
    bits = static_cast<std::uint16_t>(is_nan ? (word >> 16) | 0x40u : (word + 0x7FFFu + ((word >> 16) & 1u)) >> 16);
  }
  WHENCE_HD constexpr operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};

// IEEE binary16: 5 exponent bits, 10 stored mantissa bits, subnormals kept. Rounds to nearest, ties to even.
struct Float16 {
  std::uint16_t bits = 0;

  constexpr Float16() = default;
  WHENCE_HD constexpr Float16(float value) {
#ifdef __CUDA_ARCH__
    if (!std::is_constant_evaluated()) {
      bits = __half_as_ushort(__float2half_rn(value));
      return;
    }
#endif
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (word >> 16) & 0x8000u, magnitude = word & 0x7FFFFFFFu;
    bits = static_cast<std::uint16_t>(sign | from_magnitude(magnitude));
  }
  WHENCE_HD constexpr operator float() const {
#ifdef __CUDA_ARCH__
    if (!std::is_constant_evaluated()) return __half2float(__ushort_as_half(bits));
#endif
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16, exponent = (bits >> 10) & 0x1Fu,
                        mantissa = bits & 0x3FFu;
    if (exponent == 0x1Fu) return std::bit_cast<float>(sign | 0x7F800000u | mantissa << 13);
    if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, exact in float
      const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
      return sign ? -magnitude : magnitude;
    }
    return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  }

 private:
  WHENCE_HD static constexpr std::uint32_t from_magnitude(std::uint32_t magnitude) {
    if (magnitude > 0x7F800000u) return 0x7E00u;     // NaN
    if (magnitude >= 0x477FF000u) return 0x7C00u;    // rounds to 65536 or more: infinity
    if (magnitude < 0x33000000u) return 0;           // below half of the smallest subnormal
    const std::uint32_t exponent = magnitude >> 23;  // biased by 127
    if (exponent >= 113) {                           // normal
      const std::uint32_t rebased = magnitude - (112u << 23);
      return (rebased + 0xFFFu + ((rebased >> 13) & 1u)) >> 13;
    }
    const std::uint32_t mantissa = (magnitude & 0x7FFFFFu) | 0x800000u, shift = 126 - exponent;  // subnormal
    const std::uint32_t kept = mantissa >> shift, rest = mantissa & ((1u << shift) - 1), half = 1u << (shift - 1);
    return kept + (rest > half || (rest == half && (kept & 1u)) ? 1u : 0u);
  }
};

}  // namespace whence
