// Text functions that all programs share: widths on screen, safe output on a terminal, and quoting.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace whence {

// Returns the columns that UTF-8 text takes on a terminal: combining marks 0, wide East Asian characters and emoji 2.
[[nodiscard]] std::size_t display_width(std::string_view text);

// Cuts `text` to at most `columns`, never inside a character.
[[nodiscard]] std::string cut_to_width(std::string_view text, std::size_t columns);

// Removes the blanks around it.
[[nodiscard]] std::string trimmed(std::string_view text);

// Breaks text at white space into lines of at most `columns`; a longer word has its own line.
[[nodiscard]] std::vector<std::string> wrapped(std::string_view text, std::size_t columns);

// Makes any text safe as part of one line on a terminal: control characters, bytes that are no character, and invisible
// characters that change direction or join are written out (\n, \x1b, \xff, \u{202e}).
[[nodiscard]] std::string one_line(std::string_view text);

// The same, at most 500 characters, "..." in the middle: an error may quote a whole file.
[[nodiscard]] std::string message_line(std::string_view text);

// Likewise for several lines: line ends and tabs stay.
[[nodiscard]] std::string terminal_text(std::string_view text);

// Formats words as a user types them to a shell, quoted where needed.
[[nodiscard]] std::string shell_command(const std::vector<std::string>& words);

// Formats typed text for an error: in quotation marks, escaped, shortened when long.
[[nodiscard]] std::string in_quotes(std::string_view text);

}  // namespace whence
