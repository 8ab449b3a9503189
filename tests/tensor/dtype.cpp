// f16 and bf16 bit by bit against a rounding written in another way. Gradient checks test dual numbers.
#include "tensor/dtype.h"

#include <bit>

#include "tensor/kernels/rows.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

namespace {

// A 16-bit pattern with `mantissa` stored mantissa bits, decoded from its definition.
double decode(std::uint32_t bits, int mantissa) {
  const int exponent_bits = 15 - mantissa, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(bits >> mantissa & ((1u << exponent_bits) - 1));
  const double fraction = static_cast<double>(bits & ((1u << mantissa) - 1)), sign = bits & 0x8000u ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) return fraction == 0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - mantissa);
  return sign * std::ldexp(fraction + std::ldexp(1.0, mantissa), exponent - bias - mantissa);
}

bool same(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

template <class T> T from_bits(std::uint32_t bits) {
  T value;
  value.bits = static_cast<std::uint16_t>(bits);
  return value;
}

// All patterns, and every number between two neighbours where rounding decides.
template <class T> void check_format(int mantissa) {
  int wrong_decode = 0, wrong_round_trip = 0, wrong_rounding = 0;
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const double value = static_cast<double>(static_cast<float>(from_bits<T>(bits)));
    wrong_decode += !same(value, decode(bits, mantissa));
    const T again = static_cast<float>(value);
    wrong_round_trip += std::isnan(value) ? !std::isnan(static_cast<float>(again)) : again.bits != bits;
    const double next = decode(bits + 1 < 65536 ? bits + 1 : bits, mantissa);
    if (!std::isfinite(value) || !std::isfinite(next)) continue;
    const float middle = static_cast<float>((value + next) / 2);
    for (const float probe : {middle, std::nextafter(middle, -INFINITY), std::nextafter(middle, INFINITY),
             std::nextafter(static_cast<float>(value), INFINITY)})
      wrong_rounding += !same(static_cast<double>(static_cast<float>(T(probe))), nearest_in_16_bits(probe, mantissa));
  }
  CHECK(wrong_decode == 0);
  CHECK(wrong_round_trip == 0);
  CHECK(wrong_rounding == 0);
}

}  // namespace

TEST_CASE("all 65536 f16 patterns decode, round-trip, and round ties to even") { check_format<Float16>(10); }
TEST_CASE("all 65536 bf16 patterns decode, round-trip, and round ties to even") { check_format<BFloat16>(7); }

TEST_CASE("blocks convert as single numbers do, also through the machine's own instructions") {
  std::vector<float> floats;
  for (std::uint64_t i = 0; i < 100003; ++i) {
    floats.push_back(std::bit_cast<float>(Stream(1, "patterns").bits(i)));
    floats.push_back(static_cast<float>(Stream(2, "small").normal(i) * 1e-6));
  }
  std::vector<Float16> halves(floats.size());
  store_block(floats.data(), static_cast<index_t>(floats.size()), halves.data(), 1);
  std::vector<float> back(floats.size());
  load_block(halves.data(), 1, static_cast<index_t>(floats.size()), back.data());
  int wrong = 0;
  for (std::size_t i = 0; i < floats.size(); ++i) {
    wrong += !same(static_cast<double>(static_cast<float>(halves[i])),
        static_cast<double>(static_cast<float>(Float16(floats[i]))));
    wrong += !same(static_cast<double>(back[i]), static_cast<double>(static_cast<float>(halves[i])));
  }
  CHECK(wrong == 0);
}

TEST_CASE("dual numbers are compared by their values") {
  CHECK(Dual(1, 5) == Dual(1, 7));
  CHECK(Dual(1, 5) < Dual(2, 0));
}
