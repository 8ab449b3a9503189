#include "examples/whence/papers/text_lines.h"

#include <algorithm>

#include "examples/whence/cli/text.h"
#include "tensor/error.h"

namespace whence::papers {

std::vector<Line> lines_of(const std::string& file, std::string_view text) {
  std::vector<Line> lines;
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    const std::string whole = trimmed(line);
    if (whole.empty() || whole[0] == '#') continue;
    const std::size_t indent = line.find_first_not_of(' ');
    if (indent <= 2) {
      const std::size_t key = std::min(whole.find(' '), whole.size());
      lines.push_back({number + 1, indent > 0, whole.substr(0, key), trimmed(whole.substr(key))});
      continue;
    }
    if (lines.empty() || lines.back().key == "|")
      refuse_line(file, number + 1, "a line that goes on", "one before it that can");
    lines.back().value += " " + whole;
  }
  return lines;
}

Cells cells_of(const std::string& file, const Line& row) {
  if (!row.value.ends_with('|')) refuse_line(file, row.number, in_quotes(row.value), "a | at the end of the row");
  return split_at(std::string_view(row.value).substr(0, row.value.size() - 1), "|");
}

std::string trimmed(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(' '), text.size());
  return std::string(text.substr(begin, text.find_last_not_of(' ') + 1 - begin));
}

Cells split_at(std::string_view text, std::string_view separator) {
  Cells parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(trimmed(text.substr(begin, end - begin)));
    begin = end + separator.size();
  }
  return parts;
}

Cells words_in(std::string_view text) {
  Cells words = split_at(text, " ");
  std::erase(words, "");
  return words;
}

void refuse_line(const std::string& file, std::size_t line, const std::string& found, const std::string& required) {
  throw FileError(file, ": line ", line, ": ", found, " found; ", required, " required");
}

}  // namespace whence::papers
