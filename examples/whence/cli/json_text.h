// JSON as text: what must hold of it before the library reads it, and how it is written and freed where memory may end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace whence {

// FileError "PLACE: ..." when the text holds a NUL, which the library takes for its end, so that what follows would go
// unread, or nests deeper than 64, which is copied, printed and freed by recursion.
void require_json_text(const std::string& place, std::string_view text);

// Note [JSON and memory]: a list or object of the library (nlohmann::json 3.11) takes memory to be freed, and ends the
// program where there is none. So a training run writes by the functions below, which make text of text and ask the
// library for single values alone, and readers keep what they read in a JsonRead.

enum class BrokenUtf8 { refused, replaced };  // by nlohmann::json::exception; by U+FFFD

// Single values, byte for byte as the library prints them. NaN and infinities become null.
[[nodiscard]] std::string json_string(std::string_view text, BrokenUtf8 broken = BrokenUtf8::replaced);
[[nodiscard]] std::string json_number(double value);
[[nodiscard]] std::string json_truth(bool value);

enum class JsonLayout { line, page };  // without blanks; or a member per line, two blanks further in than what holds it

using JsonFields = std::vector<std::pair<std::string, std::string>>;  // names, and values as JSON text

// Names should differ. Inner values of a page are pages too.
[[nodiscard]] std::string json_object(
    const JsonFields& fields, JsonLayout layout, BrokenUtf8 broken = BrokenUtf8::replaced);
[[nodiscard]] std::string json_array(const std::vector<std::string>& values, JsonLayout layout);

// What the library has read, freed from its leaves on, which takes no memory.
template <class Json> class JsonRead {
 public:
  JsonRead() = default;
  explicit JsonRead(Json&& read) noexcept : value(std::move(read)) {}
  JsonRead(JsonRead&&) noexcept = default;
  JsonRead(const JsonRead&) = delete;
  JsonRead& operator=(const JsonRead&) = delete;
  JsonRead& operator=(JsonRead&&) = delete;
  ~JsonRead() { empty(value); }

  Json value;

 private:
  static void empty(Json& part) {
    if (!part.is_structured()) return;
    for (Json& inner : part) empty(inner);
    part.clear();
  }
};

// The whole number that a value of nlohmann::json is. Nothing for any other value, numbers with a fraction and those beyond
// 64 bits included, which its own get() converts without a word.
template <class Json> std::optional<std::int64_t> whole_number(const Json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  const auto number = value.template get<std::int64_t>();
  if (value.is_number_unsigned() && number < 0) return std::nullopt;
  return number;
}

}  // namespace whence
