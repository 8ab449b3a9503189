// Division by a number that is known before a kernel starts. A GPU has no divide instruction: a 32-bit quotient takes
// many instructions, a 64-bit one a call. The CPU finds a factor once, and each index then takes one multiplication and
// one shift.
//   i / d = floor(2i m / 2^(w + s))    s = ceil(log2 d),  m = ceil(2^(w - 1 + s) / d),  w = 32 or 64 bits
// Exact for 0 <= i < 2^(w - 1): m d exceeds 2^(w - 1 + s) by e < d <= 2^s, so the product is too large by
// i e / 2^(w - 1 + s) / d < 1 / d, which no floor sees.  (Granlund and Montgomery 1994)
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tensor/shape.h"

namespace whence {

class Divisor {
 public:
  Divisor() : Divisor(1, 0) {}
  // For indices in [0, below]. 32 bits are used if `below` < 2^31. by = 0: there is no index to divide.
  Divisor(index_t by, index_t below) : by_(by > 0 ? by : 1), narrow_(fits_narrow(below)) {
    const auto d = static_cast<std::uint64_t>(by_);
    shift_ = 64 - std::countl_zero(d - 1);
    if (narrow_ && shift_ > 31)  // more than any index
      factor_ = std::uint64_t{1} << 31, shift_ = 31;
    else if (narrow_)
      factor_ = ((std::uint64_t{1} << (31 + shift_)) + d - 1) / d;
    else
      factor_ = static_cast<std::uint64_t>(((Wide(1) << (63 + shift_)) + d - 1) / d);
  }

  static constexpr index_t most = std::numeric_limits<index_t>::max();
  static constexpr bool fits_narrow(index_t i) { return i < index_t{1} << 31; }
  WHENCE_HD index_t by() const { return by_; }

  template <class I> struct PartsOf {
    I quotient, rest;
  };
  using Parts = PartsOf<index_t>;
  WHENCE_HD Parts operator()(index_t i) const {
    if (narrow_) {
      const auto narrow = parts(static_cast<std::uint32_t>(i));
      return {narrow.quotient, narrow.rest};
    }
    const auto wide = parts(static_cast<std::uint64_t>(i));
    return {static_cast<index_t>(wide.quotient), static_cast<index_t>(wide.rest)};
  }
  // The same, if the caller knows the type: a 32-bit I if `below` fits, else a 64-bit one.
  template <class I> WHENCE_HD PartsOf<I> parts(I i) const {
    const I quotient = high_half(i << 1, static_cast<I>(factor_)) >> shift_;
    return {quotient, i - quotient * static_cast<I>(by_)};
  }

 private:
  __extension__ typedef unsigned __int128 Wide;  // `using` triggers an nvcc warning about extensions
  template <class I> WHENCE_HD static I high_half(I a, I b) {
    using Product = std::conditional_t<sizeof(I) == 4, std::uint64_t, Wide>;
    return static_cast<I>(static_cast<Product>(a) * b >> 8 * sizeof(I));
  }

  index_t by_;
  std::uint64_t factor_;
  int shift_;
  bool narrow_;
};

}  // namespace whence
