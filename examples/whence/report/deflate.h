// DEFLATE (RFC 1951), the format of a browser's DecompressionStream("deflate-raw").
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace whence::report {

// Compresses with zlib if the build found it. Otherwise stores the bytes uncompressed, in blocks of 64 KiB: the page is
// larger, with the same numbers.
[[nodiscard]] std::vector<std::uint8_t> deflated(std::span<const std::uint8_t> bytes);

}  // namespace whence::report
