// Encodes text, bytes and numbers for an HTML document.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace whence::report {

// Escapes & < > " ' for element content and quoted attributes. Invalid UTF-8 and control characters become
// U+FFFD.
[[nodiscard]] std::string escape(std::string_view text);

// Escapes every '<' of ASCII JSON, so that the JSON cannot end the <script> element that contains it. '<' occurs only in
// strings.
[[nodiscard]] std::string safe_in_script(std::string_view json);

// Returns a document without external references: its security policy makes the browser refuse them. `style` is CSS; `body`
// and `scripts` are HTML; `allowed` is what else the policy permits to scripts.
[[nodiscard]] std::string document(std::string_view title, std::string_view style, std::string_view body,
    std::string_view scripts, std::string_view allowed = "");

// Joins the modules of a page (examples/whence/look/viewer/) into one script. A module starts after those before it.
[[nodiscard]] std::string viewer_script(std::span<const std::string_view> modules);

// Returns base64 with padding (RFC 4648), which the browser's atob() reads.
[[nodiscard]] std::string base64(std::span<const std::uint8_t> bytes);

// Compresses into DEFLATE (RFC 1951), the format of a browser's DecompressionStream("deflate-raw"), with zlib if the build
// found it. Otherwise stores the bytes in blocks of 64 KiB: the page is larger, with the same numbers.
[[nodiscard]] std::vector<std::uint8_t> deflated(std::span<const std::uint8_t> bytes);

// Colours of numbers, in OKLCH with lightness linear in the number: equal steps look equal, also in grey and for
// colour-blind readers. Sequential: violet, teal, yellow; diverging: pink, neutral (about as light as the page), green.
enum class Scale : unsigned char { sequential, diverging_by_day, diverging_by_night };
[[nodiscard]] std::string colour_of(Scale scale, double t);  // "0060a8" for t from 0 to 1

}  // namespace whence::report
