// DEFLATE, RFC 1951: bytes as a browser's DecompressionStream("deflate-raw") reads them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace whence::report {

// By zlib, where the build found it; else stored as they are, in blocks of 64 KiB, so that a page has another size and
// the same numbers.
[[nodiscard]] std::vector<std::uint8_t> deflated(std::span<const std::uint8_t> bytes);

}  // namespace whence::report
