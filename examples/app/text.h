// Small text work that all programs share: strict numbers, widths on screen, and quoting.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace whence {

// The whole of `text` as a number, or nothing: no blanks, signs such as "+3", hexadecimal, "3abc", "nan", "inf" or
// overflow. Instantiated for int, std::int64_t, std::uint64_t and double.
template <class Number> [[nodiscard]] std::optional<Number> parse_number(std::string_view text);

// The shortest text that reads back as the same number.
[[nodiscard]] std::string number_text(double value);

// Columns that UTF-8 text takes on a terminal: combining marks 0, wide East Asian characters and emoji 2.
[[nodiscard]] std::size_t display_width(std::string_view text);

// `text` cut so that it takes at most `columns`, never inside a character.
[[nodiscard]] std::string cut_to_width(std::string_view text, std::size_t columns);

// Control characters escaped, so that a message stays on one line whatever it quotes.
[[nodiscard]] std::string one_line(std::string_view text);

// Text of any origin, safe to be shown on a terminal as part of a line: control characters and what turns or joins text
// unseen are written out (\n, <U+202E>), and bytes that are no character as <FF>.
[[nodiscard]] std::string shown_on_terminal(std::string_view text);

// The parts between commas, empty ones too but for one behind the last comma; none of an empty text.
[[nodiscard]] std::vector<std::string> split_at_commas(const std::string& text);

// A token to be looked at: white space, control characters and marks without a letter have to be seen, and must not act.
[[nodiscard]] std::string visible(std::string_view token);

// What somebody typed, for an error: in quotation marks, escaped, shortened when long.
[[nodiscard]] std::string in_quotes(std::string_view text);

}  // namespace whence
