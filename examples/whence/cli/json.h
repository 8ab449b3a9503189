// JSON read strictly and written exactly: fields keep their order, and errors name the place and the field.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "nn/io/files.h"

namespace whence {

// A field of an object. It is a template because Json is incomplete here.
template <class Value> struct NamedValue {
  std::string name;
  Value value;
};

class Json {
 public:
  using Field = NamedValue<Json>;
  using List = std::vector<Json>;
  using Fields = std::vector<Field>;

  // Reads the object in `text`. FileError "PLACE: ..." when it is none, gives a field twice, holds a NUL (which the
  // parser would take for its end), or nests deeper than 64. With `each`, values are not kept; it may refuse a field
  // before the later ones are read.
  using EachField = std::function<void(const std::string& name, const Json& value)>;
  [[nodiscard]] static Json read(std::string_view text, const std::string& place, const EachField& each = {});

  Json() = default;  // null
  template <std::same_as<bool> Truth> Json(Truth value) : value_(value) {}
  template <std::integral Whole>
    requires(!std::same_as<Whole, bool>)
  Json(Whole value) {
    if (std::in_range<std::int64_t>(value))
      value_ = static_cast<std::int64_t>(value);
    else
      value_ = static_cast<std::uint64_t>(value);
  }
  Json(double value) : value_(value) {}
  Json(std::string text) : value_(std::move(text)) {}
  Json(const char* text) : value_(std::string(text)) {}
  Json(List list) : value_(std::move(list)) {}
  template <class Each> Json(const std::vector<Each>& list) : value_(List(list.begin(), list.end())) {}
  template <class Value> Json(const std::map<std::string, Value>& values) : value_(Object()) {
    for (const auto& [name, value] : values) add(name, value);
  }
  Json(std::initializer_list<Field> fields);
  Json(Fields fields);

  Json& add(std::string name, Json value);  // to an object; null becomes one

  // The value, or nullptr: bool, std::int64_t, std::uint64_t (from 2^63 on), double, std::string or List.
  template <class Value> const Value* as() const { return std::get_if<Value>(&value_); }
  [[nodiscard]] std::optional<double> as_number() const;  // nan for null, which stands for a number that is not finite
  [[nodiscard]] bool is_null() const { return as<std::monostate>() != nullptr; }
  [[nodiscard]] bool is_object() const { return as<Object>() != nullptr; }

  // For an object that was read. FileError "PLACE: field 'x' ..." when the field is missing or of another kind.
  [[nodiscard]] const Fields& fields() const;
  [[nodiscard]] const Json* find(std::string_view name) const;  // nullptr: none
  [[nodiscard]] bool has(std::string_view name) const { return find(name) != nullptr; }
  [[nodiscard]] const std::string& text(std::string_view name) const;
  [[nodiscard]] std::int64_t whole(std::string_view name, std::int64_t low = std::numeric_limits<std::int64_t>::min(),
      std::int64_t high = std::numeric_limits<std::int64_t>::max()) const;
  [[nodiscard]] double number(std::string_view name) const;  // nan for null
  [[nodiscard]] bool truth(std::string_view name) const;
  [[nodiscard]] const Json& object(std::string_view name) const;
  [[nodiscard]] const List& list(std::string_view name) const;
  [[nodiscard]] const List& objects(std::string_view name) const;
  [[nodiscard]] std::vector<std::string> texts(std::string_view name) const;
  [[nodiscard]] std::vector<double> numbers(std::string_view name) const;
  [[nodiscard]] const std::string& place() const;
  [[noreturn]] void refuse(const std::string& problem) const;  // FileError "PLACE: PROBLEM"

  // Writes one line without blanks, or a member per line, each level indented by `blanks`. nan and infinities become null.
  // Text that is not UTF-8 is repaired with U+FFFD, or refused with InputError. Escaped: repaired, and all is ASCII, as is a
  // repaired text with characters that act on a terminal.
  enum class Utf8 { repaired, refused, escaped };
  [[nodiscard]] std::string line(Utf8 utf8 = Utf8::repaired) const;
  [[nodiscard]] std::string page(std::size_t blanks = 2, Utf8 utf8 = Utf8::repaired) const;

 private:
  struct Reader;
  struct Writer;
  struct Object {
    Fields fields;
    std::shared_ptr<const std::string> place;  // "run.json: options"
  };
  template <class Value> const Value& get(std::string_view name, const char* required) const;
  [[noreturn]] void refuse_field(std::string_view name, const char* required) const;

  std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string, List, Object> value_;
};

}  // namespace whence
