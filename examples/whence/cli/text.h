// Small text work that all programs share: widths on screen, what must not act on a terminal, and quoting.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace whence {

// Columns that UTF-8 text takes on a terminal: combining marks 0, wide East Asian characters and emoji 2.
[[nodiscard]] std::size_t display_width(std::string_view text);

// `text` cut so that it takes at most `columns`, never inside a character.
[[nodiscard]] std::string cut_to_width(std::string_view text, std::size_t columns);

// Without the blanks around it.
[[nodiscard]] std::string trimmed(std::string_view text);

// Lines of at most `columns`, but for words that are longer, broken at white space.
[[nodiscard]] std::vector<std::string> wrapped(std::string_view text, std::size_t columns);

// Text of any origin as part of one line on a terminal, where it cannot act: control characters, bytes that are no
// character, and what turns or joins text unseen are written out (\n, \x1b, \xff, \u{202e}).
[[nodiscard]] std::string one_line(std::string_view text);

// The same, at most 500 characters, the middle left out ("..."): an error may quote a whole file.
[[nodiscard]] std::string message_line(std::string_view text);

// Text of several lines, as one_line() but for line ends and tabs, which stay.
[[nodiscard]] std::string terminal_text(std::string_view text);

// Words as one would type them to a shell, quoted where it would read them otherwise.
[[nodiscard]] std::string shell_command(const std::vector<std::string>& words);

// What somebody typed, for an error: in quotation marks, escaped, shortened when long.
[[nodiscard]] std::string in_quotes(std::string_view text);

}  // namespace whence
