#include "examples/whence/cli/unicode.h"

#include <algorithm>
#include <span>
#include <utility>

namespace whence {
namespace {

using CodeRange = std::pair<std::uint32_t, std::uint32_t>;  // its first code point and its last

bool within(std::span<const CodeRange> ranges, std::uint32_t code) {
  return std::ranges::any_of(ranges, [&](const auto& range) { return code >= range.first && code <= range.second; });
}

// Characters whose first byte is in a range: their length, and the range of the second byte.
struct Form {
  unsigned char first, last;
  std::size_t length;  // 0: no character begins with these
  unsigned char second_low = 0x80, second_high = 0xBF;
};

// Table 3-7 of the Unicode standard, which excludes overlong forms, surrogates and values above U+10FFFF.
constexpr Form forms[] = {{0x00, 0x7F, 1}, {0xC2, 0xDF, 2}, {0xE0, 0xE0, 3, 0xA0}, {0xE1, 0xEC, 3},
    {0xED, 0xED, 3, 0x80, 0x9F}, {0xEE, 0xEF, 3}, {0xF0, 0xF0, 4, 0x90}, {0xF1, 0xF3, 4}, {0xF4, 0xF4, 4, 0x80, 0x8F}};

Form form_of(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  const auto* const found =
      std::ranges::find_if(forms, [&](const Form& form) { return byte >= form.first && byte <= form.last; });
  return found == std::end(forms) ? Form{} : *found;
}

// Counts the bytes at the front of non-empty `text` that begin one character: its length when it is whole.
std::size_t well_begun(std::string_view text, const Form& form) {
  std::size_t count = 1;
  for (; count < std::min(form.length, text.size()); ++count) {
    const auto byte = static_cast<unsigned char>(text[count]);
    if (byte < (count == 1 ? form.second_low : 0x80) || byte > (count == 1 ? form.second_high : 0xBF)) break;
  }
  return count;
}

}  // namespace

CodePoint first_code_point(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return {lead, 1, true};
  const Form form = form_of(text[0]);
  if (form.length == 0 || well_begun(text, form) < form.length) return {lead, 1, false};
  std::uint32_t code = lead & (0xFFu >> (form.length + 1));
  for (std::size_t i = 1; i < form.length; ++i) code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3Fu);
  return {code, form.length, true};
}

bool is_white_space(const CodePoint& code) {
  constexpr CodeRange spaces[] = {{0x85, 0x85}, {0xA0, 0xA0}, {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029},
      {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
  if (code.value < 0x80) return code.value == ' ' || (code.value >= 0x09 && code.value <= 0x0D);
  return code.valid && within(spaces, code.value);
}

bool acts_unseen(const CodePoint& code) {
  constexpr CodeRange ranges[] = {{0, 0x1F}, {0x7F, 0x9F}, {0xAD, 0xAD}, {0x61C, 0x61C}, {0x180B, 0x180E},
      {0x200B, 0x200F}, {0x2028, 0x202E}, {0x2060, 0x206F}, {0xFEFF, 0xFEFF}, {0xFFF0, 0xFFFB}, {0xFFFE, 0xFFFF},
      {0x1D173, 0x1D17A}, {0xE0000, 0xE0FFF}};
  return within(ranges, code.value);
}

// The blocks that matter for tables of results; Unicode's width tables have more.
std::size_t columns_of(const CodePoint& code) {
  constexpr CodeRange none[] = {
      {0x0300, 0x036F}, {0x1AB0, 0x1AFF}, {0x200B, 0x200F}, {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}};
  constexpr CodeRange two[] = {{0x1100, 0x115F}, {0x2E80, 0xA4CF}, {0xAC00, 0xD7A3}, {0xF900, 0xFAFF}, {0xFE30, 0xFE6F},
      {0xFF00, 0xFF60}, {0xFFE0, 0xFFE6}, {0x1F300, 0x1FAFF}, {0x20000, 0x3FFFD}};
  return !code.valid ? 1 : within(none, code.value) ? 0 : within(two, code.value) ? 2 : 1;
}

std::string Utf8Stream::push(std::string_view bytes) {
  kept_.append(bytes);
  std::string out;
  std::string_view rest = kept_;
  while (!rest.empty()) {
    const Form form = form_of(rest[0]);
    const std::size_t begun = well_begun(rest, form);
    if (form.length > 0 && begun < form.length && begun == rest.size()) break;  // may still become a character
    out += begun == form.length ? rest.substr(0, begun) : replacement_character;
    rest.remove_prefix(begun);
  }
  kept_ = std::string(rest);
  return out;
}

std::string Utf8Stream::finish() {
  const bool unfinished = !kept_.empty();
  kept_.clear();
  return std::string(unfinished ? replacement_character : "");
}

}  // namespace whence
