// Text of keys with values, and of rows of a table: the form of papers/*.table and of what is recorded.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace whence::papers {

using Cells = std::vector<std::string>;

// "key value" with the lines behind it that are indented by more than two, or "| cell | cell |" with the key "|".
struct Line {
  std::string file;
  std::size_t number;
  bool indented;  // by one or two
  std::string key, value;

  [[nodiscard]] Cells cells() const;  // of a row. FileError unless it ends with |
  // FileError "cope.table: line 12: FOUND found; REQUIRED required".
  [[noreturn]] void refuse(const std::string& found, const std::string& required) const;
};
// Without empty lines and those that begin with #. FileError where one goes on and none is before it.
[[nodiscard]] std::vector<Line> lines_of(const std::string& file, std::string_view text);

// Parts between separators, and between blanks, without blanks around them.
[[nodiscard]] Cells split_at(std::string_view text, std::string_view separator);
[[nodiscard]] Cells words_in(std::string_view text);

}  // namespace whence::papers
