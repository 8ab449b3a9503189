// Numbers as text, and back ("-" is an absent number: nan); lists between commas, and words such as "head=3".
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace whence {

// Returns the shortest text that reads back as the same number.
[[nodiscard]] std::string exact(double value);
[[nodiscard]] std::string exact(std::integral auto value) { return std::to_string(value); }
// Formats with `count` digits after the point.
[[nodiscard]] std::string fixed(double value, int count);
// Formats with `count` significant digits, without zeros at the end.
[[nodiscard]] std::string digits(double value, int count = 4);
// Formats with three digits and a unit: "7.50", "123", "12.3k", "4.56M". REQUIRES: none below 0.
[[nodiscard]] std::string with_unit(double value);
// Formats a time: "0:05", "12:34", "3:04:05", "2d 03:04:05"; a negative or unknown time is "-".
[[nodiscard]] std::string time_text(double seconds);

// Reads the whole of `text` as a number; nothing for blanks, signs such as "+3", hexadecimal, "3abc", "nan", "inf" or
// overflow. Instantiated for int, std::int64_t, std::uint64_t and double.
template <class Number> [[nodiscard]] std::optional<Number> parse_number(std::string_view text);

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
