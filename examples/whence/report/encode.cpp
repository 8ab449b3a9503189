#include "examples/whence/report/encode.h"

#include <algorithm>

#include "examples/whence/cli/text.h"
#include "tensor/error.h"

namespace whence::report {
namespace {

std::string valid_utf8(std::string_view text) {
  Utf8Stream stream;
  const std::string whole = stream.push(text);
  return whole + stream.finish();
}

}  // namespace

std::string escape(std::string_view text) {
  std::string safe;
  for (const char c : valid_utf8(text)) {
    switch (c) {
      case '&': safe += "&amp;"; break;
      case '<': safe += "&lt;"; break;
      case '>': safe += "&gt;"; break;
      case '"': safe += "&quot;"; break;
      case '\'': safe += "&#39;"; break;
      default:
        // HTML forbids control characters other than white space, even as references.
        const auto byte = static_cast<unsigned char>(c);
        const bool control = (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7F;
        safe += control ? replacement_character : std::string_view(&c, 1);
    }
  }
  return safe;
}

std::string paragraphs(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = text.find("\n\n");
    const std::string_view part = text.substr(0, end);
    if (part.find_first_not_of(" \n\t") != std::string_view::npos) out += "<p>" + escape(part) + "</p>\n";
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 2);
  }
  return out;
}

std::string safe_in_script(std::string_view json) {
  std::string safe;
  for (const char c : json) safe += c == '<' ? std::string_view("\\u003c") : std::string_view(&c, 1);
  return safe;
}

std::string viewer_script(std::span<const std::string_view> modules) {
  std::string script = "<script>\n\"use strict\";\n(async () => {\n";
  for (const std::string_view module : modules) script += module;
  return script + "})();\n</script>\n";
}

std::string document(std::string_view title, std::string_view style, std::string_view body, std::string_view scripts,
    std::string_view allowed) {
  std::string out = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  out += "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; ";
  out += to_text("script-src 'unsafe-inline'", allowed,
      "\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
  out += "<title>" + escape(title) + "</title>\n<style>" + std::string(style) + "</style>\n</head>\n<body>\n";
  out += "<div class=\"top\"><h1>" + escape(title) + "</h1><div id=\"theme\"></div></div>\n";
  out += body;
  out += scripts;
  return out + "</body>\n</html>\n";
}

std::string base64(std::span<const std::uint8_t> bytes) {
  static constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - at);
    std::uint32_t word = 0;  // three bytes become four digits of six bits
    for (std::size_t k = 0; k < 3; ++k) word = word << 8 | (k < count ? bytes[at + k] : 0u);
    for (std::size_t k = 0; k < 4; ++k) text += k <= count ? alphabet[word >> (18 - 6 * k) & 63u] : '=';
  }
  return text;
}

}  // namespace whence::report
