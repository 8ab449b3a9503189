// Encodes text and bytes safely for an HTML document.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace whence::report {

// Escapes & < > " ' for element content and quoted attributes. Invalid UTF-8 and control characters become
// U+FFFD.
[[nodiscard]] std::string escape(std::string_view text);

// Splits text at blank lines into <p> elements, and escapes it.
[[nodiscard]] std::string paragraphs(std::string_view text);

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

}  // namespace whence::report
