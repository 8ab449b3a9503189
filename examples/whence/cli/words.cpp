#include "examples/whence/cli/words.h"

#include <algorithm>
#include <filesystem>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/text.h"
#include "tensor/error.h"

namespace whence {
namespace {

constexpr std::string_view blanks = " \t\n\v\f\r";

// Returns the size of the first part of `text`: up to one of `separators` outside of parentheses.
std::size_t first_part(std::string_view text, std::string_view separators) {
  int depth = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    depth += (text[at] == '(') - (text[at] == ')');
    if (depth <= 0 && separators.find(text[at]) != separators.npos) return at;
  }
  return text.size();
}

// Returns the text in the quotes that `rest` begins with. `word`, for errors: all from the name on.
std::string take_quoted(std::string_view& rest, std::string_view word, const std::string& option) {
  const std::size_t end = rest.find(rest[0], 1);
  if (end == rest.npos)
    throw InputError(option, ": ", one_line(word), " given; a second ", rest[0], " at the end of the value required");
  const std::string_view quoted = rest.substr(0, end + 1);
  rest.remove_prefix(end + 1);
  if (!rest.empty() && blanks.find(rest[0]) == blanks.npos)
    throw InputError(option, ": ", one_line(word), " given; a blank, or nothing, after ", quoted, " required");
  return std::string(quoted.substr(1, quoted.size() - 2));
}

}  // namespace

std::vector<std::string> list_of(const std::string& text) {
  std::vector<std::string> parts;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t end = first_part(rest, ",");
    parts.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return parts;
}

std::vector<std::string> path_list_of(const std::string& text) {
  std::vector<std::string> paths;
  for (std::string_view rest = text; !rest.empty();) {
    std::size_t end = std::min(rest.find(','), rest.size());
    std::error_code none;
    std::size_t longest = rest.size();
    while (longest > end && !std::filesystem::exists(rest.substr(0, longest), none))
      longest = rest.rfind(',', longest - 1);
    end = longest;
    paths.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return paths;
}

std::vector<std::int64_t> numbers_of(
    const std::string& text, const std::string& option, std::int64_t low, std::int64_t high) {
  std::vector<std::int64_t> numbers;
  std::vector<std::string> parts = list_of(text);
  if (parts.empty() || text.ends_with(',')) parts.emplace_back();  // an empty part, which is no number
  for (const std::string& part : parts) {
    const auto number = parse_number<std::int64_t>(part);
    if (!number || *number < low || *number > high)
      throw InputError(option, ": ", in_quotes(text), " given; whole numbers from ", low, " to ", high,
          " required, commas between them");
    numbers.push_back(*number);
  }
  return numbers;
}

std::int64_t Word::whole(const std::string& option, std::int64_t low, std::int64_t high) const {
  const auto number = parse_number<std::int64_t>(value);
  const std::string typed = name.empty() ? value : name + '=' + value;
  if (!number) throw InputError(option, ": ", in_quotes(typed), " given; a whole number required, as in head=3");
  if (*number < low || *number > high)
    throw InputError(option, ": ", in_quotes(typed), " given; ", low, " to ", high, " required");
  return *number;
}

std::vector<Word> words_of(const std::string& text, const std::string& option) {
  std::vector<Word> words;
  std::string_view rest = text;
  while (true) {
    rest.remove_prefix(std::min(rest.find_first_not_of(blanks), rest.size()));
    if (rest.empty()) return words;
    const std::string_view all = rest;
    const std::size_t equals = rest.find_first_of("=" + std::string(blanks) + "\"'(");
    Word word;
    if (equals != rest.npos && rest[equals] == '=') {
      word.name = rest.substr(0, equals);
      rest.remove_prefix(equals + 1);
    }
    if (rest.starts_with('"') || rest.starts_with('\'')) {
      word.value = take_quoted(rest, all, option);
    } else {
      const std::size_t end = first_part(rest, blanks);
      word.value = rest.substr(0, end);
      rest.remove_prefix(end);
    }
    words.push_back(std::move(word));
  }
}

}  // namespace whence
