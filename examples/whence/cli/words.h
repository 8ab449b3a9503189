// Options with several values: lists between commas, and words such as "head=3".
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace whence {

[[nodiscard]] std::vector<std::string> scheme_names();  // for "did you mean"

// Splits `text` at commas. Empty parts count, except one after the last comma; an empty text has none. Commas in
// parentheses do not split: "none,dape(kerple, width=4)".
[[nodiscard]] std::vector<std::string> list_of(const std::string& text);

// Splits `text` into paths at commas. A comma may be part of a file's or folder's name: the longest name that exists is
// taken.
[[nodiscard]] std::vector<std::string> path_list_of(const std::string& text);

// Reads a list of whole numbers from `low` to `high`. InputError, naming `option` ("--lengths"), when a part is none.
[[nodiscard]] std::vector<std::int64_t> numbers_of(
    const std::string& text, const std::string& option, std::int64_t low = 1, std::int64_t high = 1 << 20);

struct Word {
  std::string name, value;  // "head=3"; one without '=' has no name

  // Returns the value as a whole number from `low` to `high`; InputError names `option` and the word.
  [[nodiscard]] std::int64_t whole(const std::string& option,
      std::int64_t low = std::numeric_limits<std::int64_t>::min(),
      std::int64_t high = std::numeric_limits<std::int64_t>::max()) const;
};

// Splits `text` at blanks. A value in parentheses may hold blanks.
[[nodiscard]] std::vector<Word> words_of(const std::string& text);

}  // namespace whence
