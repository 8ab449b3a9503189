// e^x = 2^n e^r, n = round(x / ln 2), |r| <= ln 2 / 2, e^r = 1 + r + r^2 p(r): the constants that all CPU code uses
// (tensor/math.h, tensor/cpu/tiles/vector.h). Data only, because code for newer instruction sets includes it.
#pragma once

#include <cstdint>

namespace whence {

template <class T> struct ExponentialOf;
template <> struct ExponentialOf<float> {
  static constexpr float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
  static constexpr float magic = 12582912;  // 1.5 * 2^23: adding it rounds to an integer
  static constexpr std::int32_t magic_bits = 0x4B400000, bias = 127, fraction_bits = 23;
  static constexpr float leading = 1.9875691500e-4f;  // coefficient of p's highest power; the lower ones follow in
                                                      // order
  static constexpr float polynomial[] = {
      1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
};
template <> struct ExponentialOf<double> {
  static constexpr double ln2_high = 6.93147180369123816490e-01, ln2_low = 1.90821492927058770002e-10;
  static constexpr double magic = 6755399441055744;  // 1.5 * 2^52
  static constexpr std::int64_t magic_bits = 0x4338000000000000, bias = 1023, fraction_bits = 52;
  static constexpr double leading = 1.0 / 6227020800;
  static constexpr double polynomial[] = {1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320,
      1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5};
};

}  // namespace whence
