// JSON read strictly and written exactly: fields keep their order, and errors name the place and the field.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "nn/io/files.h"

namespace whence {

// A value of nlohmann-json, whose headers json.cpp alone pays for. A copy shares the value until one of them is changed.
class Json {
 public:
  struct Field;
  using List = std::vector<Json>;
  using Fields = std::vector<Field>;

  // Reads the object in `text`. FileError "PLACE: ..." when it is none, gives a field twice, holds a NUL (which the
  // parser would take for its end), or nests deeper than 64.
  [[nodiscard]] static Json read(std::string_view text, const std::string& place);

  Json() = default;  // null
  template <class Value>
    requires std::is_arithmetic_v<Value>
  Json(Value value);
  Json(const std::string& text);
  Json(const char* text) : Json(std::string(text)) {}
  Json(const List& list);
  template <class Each> Json(const std::vector<Each>& list) : Json(List(list.begin(), list.end())) {}
  Json(std::initializer_list<Field> fields);
  Json(const Fields& fields);

  Json& add(const std::string& name, const Json& value);  // to an object; null becomes one

  // The value, or nullptr: bool, std::int64_t, double or std::string.
  template <class Value> const Value* as() const;
  [[nodiscard]] std::optional<double> as_number() const;  // nan for null, which stands for a number that is not finite
  [[nodiscard]] bool is_null() const { return !value_; }
  [[nodiscard]] bool is_object() const;
  [[nodiscard]] bool is_list() const;

  // For an object that was read. FileError "PLACE: field 'x' ..." when the field is missing or of another kind.
  [[nodiscard]] Fields fields() const;
  [[nodiscard]] std::optional<Json> find(std::string_view name) const;
  [[nodiscard]] bool has(std::string_view name) const { return find(name).has_value(); }
  [[nodiscard]] std::string text(std::string_view name) const;
  [[nodiscard]] std::int64_t whole(std::string_view name, std::int64_t low = std::numeric_limits<std::int64_t>::min(),
      std::int64_t high = std::numeric_limits<std::int64_t>::max()) const;
  [[nodiscard]] double number(std::string_view name) const;  // nan for null
  [[nodiscard]] bool truth(std::string_view name) const;
  [[nodiscard]] Json object(std::string_view name) const;
  [[nodiscard]] List list(std::string_view name) const;
  [[nodiscard]] std::vector<std::string> texts(std::string_view name) const;
  [[nodiscard]] const std::string& place() const { return place_; }
  [[noreturn]] void refuse(const std::string& problem) const { throw FileError(place_, ": ", problem); }

  // Writes one line without blanks, or a member per line, each level indented by `blanks`. nan and infinities become null.
  // Text that is not UTF-8 is repaired with U+FFFD. Escaped: all is ASCII, as is a text with characters that act on a terminal.
  enum class Utf8 { repaired, escaped };
  [[nodiscard]] std::string line(Utf8 utf8 = Utf8::repaired) const { return written(-1, utf8); }
  [[nodiscard]] std::string page(int blanks = 2) const { return written(blanks, Utf8::repaired); }

 private:
  Json(std::shared_ptr<void> value, std::string place) : value_(std::move(value)), place_(std::move(place)) {}
  [[nodiscard]] List items() const;
  template <class Good> Json need(std::string_view name, Good good, const char* required) const;  // a field that is so
  [[nodiscard]] std::string written(int blanks, Utf8 utf8) const;

  std::shared_ptr<void> value_;  // an nlohmann::ordered_json, or part of one; none: null
  std::string place_ = {};       // "run.json: options"
};

struct Json::Field {
  std::string name;
  Json value;
};

}  // namespace whence
