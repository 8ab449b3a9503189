#include "examples/whence/report/encode.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <new>
#include <numbers>

#ifdef WHENCE_ZLIB
#include <zlib.h>
#endif

#include "examples/whence/cli/text.h"
#include "tensor/error.h"

namespace whence::report {

std::string escape(std::string_view text) {
  constexpr std::string_view special = "&<>\"'";
  constexpr const char* references[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
  Utf8Stream stream;
  const std::string valid = stream.push(text);
  std::string safe;
  for (const char c : valid + stream.finish()) {
    // HTML forbids control characters other than white space, even as references.
    const bool control = (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == '\x7F';
    const std::size_t at = special.find(c);
    safe += at != special.npos ? references[at] : control ? replacement_character : std::string_view(&c, 1);
  }
  return safe;
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
  out += "<header class=\"top\"><h1>" + escape(title) + "</h1></header>\n";
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

#ifdef WHENCE_ZLIB
std::vector<std::uint8_t> deflated(std::span<const std::uint8_t> bytes) {
  z_stream stream{};
  if (bytes.size() > std::numeric_limits<unsigned>::max() / 2 ||  // zlib counts in 32 bits
      deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -15, 9, Z_DEFAULT_STRATEGY) != Z_OK)  // -15: raw
    throw std::bad_alloc();
  std::vector<std::uint8_t> result(deflateBound(&stream, bytes.size()));
  stream.next_in = const_cast<std::uint8_t*>(bytes.data());
  stream.avail_in = static_cast<unsigned>(bytes.size());
  stream.next_out = result.data();
  stream.avail_out = static_cast<unsigned>(result.size());
  deflate(&stream, Z_FINISH);
  result.resize(stream.total_out);
  deflateEnd(&stream);
  return result;
}
#else
std::vector<std::uint8_t> deflated(std::span<const std::uint8_t> bytes) {
  std::vector<std::uint8_t> result;
  for (bool last = false; !last;) {
    const std::span block = bytes.first(std::min<std::size_t>(bytes.size(), 65535));
    bytes = bytes.subspan(block.size());
    last = bytes.empty();
    result.push_back(last);
    for (const std::size_t size : {block.size(), ~block.size()})
      result.insert(result.end(), {static_cast<std::uint8_t>(size & 255), static_cast<std::uint8_t>(size >> 8 & 255)});
    result.insert(result.end(), block.begin(), block.end());
  }
  return result;
}
#endif

namespace {

std::array<double, 3> linear_rgb(double lightness, double chroma, double hue) {
  const double a = chroma * std::cos(hue * std::numbers::pi / 180), b = chroma * std::sin(hue * std::numbers::pi / 180);
  const double l = std::pow(lightness + 0.3963377774 * a + 0.2158037573 * b, 3),
               m = std::pow(lightness - 0.1055613458 * a - 0.0638541728 * b, 3),
               s = std::pow(lightness - 0.0894841775 * a - 1.2914855480 * b, 3);
  return {4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
      -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s, -0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s};
}

// If the screen cannot show the colour, chroma is reduced, never lightness.
std::string srgb(double lightness, double chroma, double hue) {
  std::array<double, 3> rgb = linear_rgb(lightness, chroma, hue);
  const auto outside = [](double part) { return part < -1e-4 || part > 1.0001; };
  while (chroma > 0.002 && std::ranges::any_of(rgb, outside)) {
    chroma -= 0.002;
    rgb = linear_rgb(lightness, chroma, hue);
  }
  std::string text;
  for (const double part : rgb) {
    const double inside = std::clamp(part, 0.0, 1.0);
    const double bright = inside <= 0.0031308 ? 12.92 * inside : 1.055 * std::pow(inside, 1 / 2.4) - 0.055;
    char two[8];
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned>(std::lround(255 * bright)));
    text += two;
  }
  return text;
}

}  // namespace

std::string colour_of(Scale scale, double t) {
  if (scale == Scale::sequential) return srgb(0.24 + 0.71 * t, 0.145, 300 - 195 * t);
  const double size = std::abs(2 * t - 1);
  const double lightness = scale == Scale::diverging_by_night ? 0.27 + 0.57 * size : 0.975 - 0.43 * size;
  return srgb(lightness, 0.17 * std::pow(size, 0.9), t < 0.5 ? 340 : 165);
}

}  // namespace whence::report
