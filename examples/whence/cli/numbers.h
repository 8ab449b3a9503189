// Numbers as text, and back. "-" is an absent number: nan.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

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

}  // namespace whence
