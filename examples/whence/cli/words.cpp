#include "examples/whence/cli/words.h"

#include <algorithm>
#include <filesystem>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/text.h"
#include "nn/scheme.h"

namespace whence {
namespace {

constexpr const char* blanks = " \t\n\v\f\r";

// Returns the size of the first part of `text`: up to one of `separators` outside of parentheses.
std::size_t first_part(std::string_view text, std::string_view separators) {
  int depth = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    depth += (text[at] == '(') - (text[at] == ')');
    if (depth <= 0 && separators.find(text[at]) != separators.npos) return at;
  }
  return text.size();
}

// Takes `size` bytes and the separator behind them from the front of `rest`.
std::string take(std::string_view& rest, std::size_t size) {
  const std::string part(rest.substr(0, size));
  rest.remove_prefix(std::min(size + 1, rest.size()));
  return part;
}

}  // namespace

std::vector<std::string> scheme_names() {
  std::vector<std::string> names;
  for (const SchemeInfo& info : registered_schemes()) names.push_back(info.name);
  return names;
}

std::vector<std::string> list_of(const std::string& text) {
  std::vector<std::string> parts;
  for (std::string_view rest = text; !rest.empty();) parts.push_back(take(rest, first_part(rest, ",")));
  return parts;
}

std::vector<std::string> path_list_of(const std::string& text) {
  std::vector<std::string> paths;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t shortest = std::min(rest.find(','), rest.size());
    std::size_t size = rest.size();
    for (std::error_code none; size > shortest && !std::filesystem::exists(rest.substr(0, size), none);)
      size = rest.rfind(',', size - 1);
    paths.push_back(take(rest, size));
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
  const std::string typed = in_quotes(name.empty() ? value : name + '=' + value);
  if (!number) throw InputError(option, ": ", typed, " given; a whole number required, as in head=3");
  if (*number < low || *number > high)
    throw InputError(option, ": ", typed, " given; ", low, " to ", high, " required");
  return *number;
}

std::vector<Word> words_of(const std::string& text) {
  std::vector<Word> words;
  for (std::string_view rest = text;;) {
    rest.remove_prefix(std::min(rest.find_first_not_of(blanks), rest.size()));
    if (rest.empty()) return words;
    const std::size_t equals = rest.find_first_of(std::string("=(") + blanks);
    Word& word = words.emplace_back();
    if (equals != rest.npos && rest[equals] == '=') word.name = take(rest, equals);
    word.value = take(rest, first_part(rest, blanks));
  }
}

}  // namespace whence
