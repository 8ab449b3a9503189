// Counter-based randomness (Philox4x32-10, Salmon et al. 2011): number i of a stream is a pure function of (key, i). A
// draw does not depend on threads, chunks or order; so a mask can be drawn again instead of stored, and a run can
// resume.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "tensor/convert.h"
#include "tensor/device.h"

namespace whence {

// Four 32-bit words of the stream `key` at `counter`.
WHENCE_HD constexpr std::array<std::uint32_t, 4> philox(
    std::uint64_t key, std::uint64_t counter, std::uint64_t high = 0) {
  std::uint32_t c0 = static_cast<std::uint32_t>(counter), c1 = static_cast<std::uint32_t>(counter >> 32);
  std::uint32_t c2 = static_cast<std::uint32_t>(high), c3 = static_cast<std::uint32_t>(high >> 32);
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = 0xD2511F53ull * c0, p1 = 0xCD9E8D57ull * c2;
    const std::uint32_t n0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0,
                        n2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<std::uint32_t>(p1), c3 = static_cast<std::uint32_t>(p0);
    c0 = n0, c2 = n2;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

// A named stream. Streams of different (seed, purpose, step) are independent.
struct Stream {
  std::uint64_t key = 0;
  std::uint64_t step = 0;  // the high half of the counter

  constexpr Stream() = default;
  // `purpose` is a word such as "dropout" or a parameter's path; the caller chooses what `step` counts.
  constexpr Stream(std::uint64_t seed, std::string_view purpose, std::uint64_t at_step = 0) : step(at_step) {
    std::uint64_t hash = 0xCBF29CE484222325ull;  // FNV-1a of the purpose, then mixed with the seed
    for (const char c : purpose) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
    const auto words = philox(seed, hash, 0x77686E63ull);
    key = words[0] | static_cast<std::uint64_t>(words[1]) << 32;
  }

  WHENCE_HD constexpr std::uint32_t bits(std::uint64_t i) const { return philox(key, i / 4, step)[i % 4]; }

  // Uniform on [0, 1), 24 bits, exact in f32: from a word, and number i of the stream.
  WHENCE_HD static constexpr float uniform_of(std::uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }
  WHENCE_HD constexpr float uniform(std::uint64_t i) const { return uniform_of(bits(i)); }

  // Uniform on [0, 1), 53 bits, from two words.
  WHENCE_HD constexpr double uniform53(std::uint64_t i) const {
    const auto w = philox(key, i / 2, step);
    const std::uint64_t low = w[i % 2 * 2], high = w[i % 2 * 2 + 1];
    return static_cast<double>((high << 32 | low) >> 11) * 0x1p-53;
  }

  // Standard normals number 2n and 2n + 1, the coordinates of one point (Box and Muller 1958). Computed in double, so
  // that all devices round to the same numbers.
  WHENCE_HD std::array<double, 2> two_normals(std::uint64_t n) const {
    const auto w = philox(key, n, step);
    const double u1 = (static_cast<double>(w[0]) + 0.5) * 0x1p-32, u2 = (static_cast<double>(w[1]) + 0.5) * 0x1p-32;
    const double radius = std::sqrt(-2.0 * std::log(u1)), angle = 6.283185307179586477 * u2;
    return {radius * std::cos(angle), radius * std::sin(angle)};
  }
  WHENCE_HD double normal(std::uint64_t i) const { return two_normals(i / 2)[i % 2]; }

  // An integer in [0, n), n < 2^32, nearly unbiased (multiply and shift; error below n / 2^32).
  WHENCE_HD constexpr std::uint32_t below(std::uint64_t i, std::uint32_t n) const {
    return static_cast<std::uint32_t>(static_cast<std::uint64_t>(bits(i)) * n >> 32);
  }
};

// Returns low + (high - low) draw, of a draw in [0, 1), rounded to T. Where that gives `high`, it is the number before.
template <class T> WHENCE_HD T uniform_between(double low, double high, double draw) {
  // 1.25 times 2^-digits: between half a step and one and a half on both sides of a power of two.
  constexpr double step = std::is_same_v<T, double>    ? 0x1p-53
                          : std::is_same_v<T, float>   ? 0x1p-24
                          : std::is_same_v<T, Float16> ? 0x1p-11
                                                       : 0x1p-8;
  const T y = convert<T>(low + (high - low) * draw);
  return static_cast<double>(y) < high || !(low < high) ? y : convert<T>(high - std::abs(high) * 1.25 * step);
}

// Dropout keeps a number if the upper 24 bits of its word, a uniform number, are at least the probability. Integers are
// compared, so that every device makes the same choice.
inline std::uint32_t dropout_threshold(double probability) {
  return static_cast<std::uint32_t>(std::ceil(probability * 0x1p24));
}
WHENCE_HD constexpr bool dropout_keeps(std::uint32_t word, std::uint32_t threshold) { return word >> 8 >= threshold; }

}  // namespace whence
