// Which code points are letters and numbers: what unicode.cpp looks up.
#pragma once

#include <cstdint>
#include <span>

namespace whence {

struct CodeRange {
  std::uint32_t first, last;
};

// Ascending, without overlap, from U+0080 on: the general categories L and N of Unicode 17.0, without exception.
[[nodiscard]] std::span<const CodeRange> letter_ranges();
[[nodiscard]] std::span<const CodeRange> number_ranges();

}  // namespace whence
