// Text and bytes made safe to stand inside an HTML document.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace whence::report {

// Text for element content and quoted attributes: & < > " ' escaped, invalid UTF-8 and
// control characters become U+FFFD.
[[nodiscard]] std::string escape(std::string_view text);

// Text split at blank lines into <p> elements, escaped.
[[nodiscard]] std::string paragraphs(std::string_view text);

// JSON of pure ASCII that cannot end the <script> element in which it stands: no '<' is left (it only occurs in
// strings).
[[nodiscard]] std::string safe_in_script(std::string_view json);

// A document that refers to nothing outside: its policy makes the browser itself refuse that. `style` is CSS, `body`
// and `scripts` are HTML; `allowed`: what the policy lets the scripts do besides.
[[nodiscard]] std::string document(std::string_view title, std::string_view style, std::string_view body,
    std::string_view scripts, std::string_view allowed = "");

// The modules of a page (examples/whence/look/viewer/) as its script, each function of which waits for those before it.
[[nodiscard]] std::string viewer_script(std::span<const std::string_view> modules);

// RFC 4648 base64 with padding, what the browser's atob() reads.
[[nodiscard]] std::string base64(std::span<const std::uint8_t> bytes);

}  // namespace whence::report
