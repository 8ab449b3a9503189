// Options that say several things: lists between commas, and words such as "head=3".
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace whence {

// The parts of `text` between commas, empty ones too but for one behind the last comma; none of an empty text. What
// stands in parentheses holds together: "none,dape(kerple, width=4)".
[[nodiscard]] std::vector<std::string> list_of(const std::string& text);

// The paths of `text` between commas. A comma belongs to a path where a file or folder has it: of several readings, the
// longest name that exists.
[[nodiscard]] std::vector<std::string> path_list_of(const std::string& text);

// A list as whole numbers from `low` to `high`. InputError, naming `option` ("--lengths"), when one is none.
[[nodiscard]] std::vector<std::int64_t> numbers_of(
    const std::string& text, const std::string& option, std::int64_t low = 1, std::int64_t high = 1 << 20);

struct Word {
  std::string name, value;  // "head=3"; one without '=' has no name

  // The value as a whole number from `low` to `high`; InputError that names `option` and the word.
  [[nodiscard]] std::int64_t whole(const std::string& option,
      std::int64_t low = std::numeric_limits<std::int64_t>::min(),
      std::int64_t high = std::numeric_limits<std::int64_t>::max()) const;
};

// The words of `text` between blanks. A value in quotes of either kind, or in parentheses, may hold blanks:
// data="my text.txt". InputError, naming `option`, where a quote has no second one, or text follows that.
[[nodiscard]] std::vector<Word> words_of(const std::string& text, const std::string& option);

}  // namespace whence
