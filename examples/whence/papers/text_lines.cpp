#include "examples/whence/papers/text_lines.h"

#include <algorithm>

#include "examples/whence/cli/text.h"
#include "nn/io/errors.h"

namespace whence::papers {

Cells Line::cells() const {
  if (!value.ends_with('|')) refuse(in_quotes(value), "a | at the end of the row");
  return split_at(std::string_view(value).substr(0, value.size() - 1), "|");
}

void Line::refuse(const std::string& found, const std::string& required) const {
  throw FileError(file, ": line ", number, ": ", found, " found; ", required, " required");
}

std::vector<Line> lines_of(const std::string& file, std::string_view text) {
  std::vector<Line> lines;
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    const std::string whole = trimmed(line);
    if (whole.empty() || whole[0] == '#') continue;
    const std::size_t indent = line.find_first_not_of(' '), key = std::min(whole.find(' '), whole.size());
    if (indent <= 2)
      lines.push_back({file, number, indent > 0, whole.substr(0, key), trimmed(whole.substr(key))});
    else if (lines.empty() || lines.back().key == "|")
      Line{file, number, true, "", ""}.refuse("a line that goes on", "one before it that can");
    else
      lines.back().value += " " + whole;
  }
  return lines;
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

}  // namespace whence::papers
