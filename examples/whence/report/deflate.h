// DEFLATE, RFC 1951: bytes made shorter, as a browser's DecompressionStream("deflate-raw") reads them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace whence::report {

// Repetitions within 32 KiB become references, in one block of fixed codes: what is a table or zero shrinks to nothing,
// the digits of a float stay.
[[nodiscard]] std::vector<std::uint8_t> deflated(std::span<const std::uint8_t> bytes);

}  // namespace whence::report
