#include "examples/whence/cli/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "examples/whence/cli/text.h"

namespace whence {
namespace {

using nlohmann::ordered_json;

// Returns why `text` is no JSON: ": not UTF-8". The parser noticed it at `byte`, counted from 1, and said `message`.
std::string cause_of(std::string_view text, std::size_t byte, std::string_view message) {
  // A text that was cut inside a character, as Python writes it.
  if (message.find("surrogate") != message.npos)
    return ": half of a surrogate pair; a character needs both halves, or \\ufffd";
  if (message.find("ill-formed UTF-8") != message.npos) return ": not UTF-8, which JSON is";
  const std::string_view rest = text.substr(std::min(byte - (byte > 0), text.size()));
  for (const std::string_view word : {"NaN", "Infinity", "None", "True", "False", "'"})
    if (rest.starts_with(word)) return to_text(": ", word, " as in Python, which JSON does not have");
  const std::size_t cause = message.find(" - ");  // "... syntax error while parsing value - CAUSE; last read: ..."
  return cause == message.npos ? "" : to_text(": ", message.substr(cause + 3, message.find("; ") - cause - 3));
}

const ordered_json& at(const std::shared_ptr<void>& value) {
  static const ordered_json null;
  return value ? *static_cast<const ordered_json*>(value.get()) : null;
}

// A value inside of `whole`, which keeps the whole alive; nullptr: null.
std::shared_ptr<void> part_of(const std::shared_ptr<void>& whole, const ordered_json& part) {
  return part.is_null() ? nullptr : std::shared_ptr<void>(whole, const_cast<ordered_json*>(&part));
}

}  // namespace

Json Json::read(std::string_view text, const std::string& place) try {
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"))
    throw FileError(place, ": UTF-16 given; UTF-8 required");
  if (const std::size_t at = text.find('\0'); at != text.npos)
    throw FileError(place, ": holds a NUL at byte ", at, "; JSON text required; is the file damaged?");
  struct Level {
    std::string at = " 0";              // the present field or item: ": name" or " 3"
    std::set<std::string> fields = {};  // of an object
    int items = 0;
  };
  std::vector<Level> open;
  const auto watch = [&](int, ordered_json::parse_event_t event, const ordered_json& value) {
    using Event = ordered_json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      if (open.size() == 64) throw FileError(place, ": nests deeper than 64 levels, the most that JSON may");
      open.emplace_back();
    } else if (event == Event::key) {
      open.back().at = ": " + value.get<std::string>();
      if (!open.back().fields.insert(open.back().at).second)
        throw FileError(place, joined(std::span(open).first(open.size() - 1), &Level::at, ""), ": field '",
            value.get<std::string>(), "' given twice; once required");
    } else {
      if (event != Event::value) open.pop_back();
      if (!open.empty() && open.back().fields.empty()) open.back().at = ' ' + std::to_string(++open.back().items);
    }
    return true;
  };
  const auto value = std::make_shared<ordered_json>(ordered_json::parse(text, watch));
  if (!value->is_object()) throw FileError(place, ": no object; a JSON object required");
  return {value, place};
} catch (const ordered_json::out_of_range& error) {
  const std::string_view message = error.what();  // "... number overflow parsing '1e999'"
  throw FileError(place, ": a number beyond what a computer's numbers hold: ", message.substr(message.find('\'')));
} catch (const ordered_json::parse_error& error) {
  throw FileError(place, ": no JSON, from its byte ", error.byte, " on", cause_of(text, error.byte, error.what()),
      "; one whole object required");
}

template <class Value>
  requires std::is_arithmetic_v<Value>
Json::Json(Value value) : value_(std::make_shared<ordered_json>(value)) {}
template Json::Json(bool);
template Json::Json(int);
template Json::Json(std::int64_t);
template Json::Json(std::uint64_t);
template Json::Json(double);
Json::Json(const std::string& text) : value_(std::make_shared<ordered_json>(text)) {}

Json::Json(const List& list) {
  const auto value = std::make_shared<ordered_json>(ordered_json::array());
  for (const Json& each : list) value->push_back(at(each.value_));
  value_ = value;
}

Json::Json(std::initializer_list<Field> fields) : Json(Fields(fields)) {}
Json::Json(const Fields& fields) : value_(std::make_shared<ordered_json>(ordered_json::object())) {
  for (const auto& [name, value] : fields) add(name, value);
}

Json& Json::add(const std::string& name, const Json& value) {
  if (value_.use_count() != 1) value_ = std::make_shared<ordered_json>(at(value_));
  (*static_cast<ordered_json*>(value_.get()))[name] = at(value.value_);
  return *this;
}

template <class Value> const Value* Json::as() const {
  const ordered_json& value = at(value_);
  const bool beyond = value.is_number_unsigned() && !std::in_range<std::int64_t>(value.get<std::uint64_t>());
  return beyond ? nullptr : value.get_ptr<const Value*>();
}
template const bool* Json::as() const;
template const std::int64_t* Json::as() const;
template const double* Json::as() const;
template const std::string* Json::as() const;

std::optional<double> Json::as_number() const {
  if (is_null()) return std::numeric_limits<double>::quiet_NaN();
  return at(value_).is_number() ? std::optional(at(value_).get<double>()) : std::nullopt;
}

bool Json::is_object() const { return at(value_).is_object(); }
bool Json::is_list() const { return at(value_).is_array(); }

Json::List Json::items() const {
  List all;
  for (const ordered_json& each : at(value_))
    all.push_back({part_of(value_, each), place_ + ' ' + std::to_string(all.size())});
  return all;
}

Json::Fields Json::fields() const {
  Fields all;
  for (const auto& [name, value] : at(value_).items())
    all.push_back({name, {part_of(value_, value), place_ + ": " + name}});
  return all;
}

std::optional<Json> Json::find(std::string_view name) const {
  const auto found = at(value_).find(std::string(name));
  return found == at(value_).end() ? std::nullopt
                                   : std::optional(Json(part_of(value_, *found), place_ + ": " + std::string(name)));
}

template <class Good> Json Json::need(std::string_view name, Good good, const char* required) const {
  const auto value = find(name);
  if (!value) refuse(to_text("no field '", name, "'; ", required, " of that name required"));
  if (std::invoke(good, *value)) return *value;
  constexpr const char* kinds[] = {
      "null", "an object", "a list", "a text", "true or false", "a whole number", "a whole number", "a number"};
  const ordered_json& found = at(value->value_);
  const bool beyond = found.is_number_integer() && !value->as<std::int64_t>();
  refuse(to_text("field '", name, "' is ", kinds[static_cast<std::size_t>(found.type())], beyond ? " beyond 2^63" : "",
      "; ", required, " required"));
}

std::string Json::text(std::string_view name) const {
  return *need(name, &Json::as<std::string>, "a text").as<std::string>();
}
bool Json::truth(std::string_view name) const { return *need(name, &Json::as<bool>, "true or false").as<bool>(); }
double Json::number(std::string_view name) const { return *need(name, &Json::as_number, "a number").as_number(); }
Json Json::object(std::string_view name) const { return need(name, &Json::is_object, "an object"); }
Json::List Json::list(std::string_view name) const { return need(name, &Json::is_list, "a list").items(); }

std::int64_t Json::whole(std::string_view name, std::int64_t low, std::int64_t high) const {
  const std::int64_t value = *need(name, &Json::as<std::int64_t>, "a whole number").as<std::int64_t>();
  if (value < low || value > high)
    refuse(to_text("field '", name, "' is ", value, "; ", low, " to ", high, " required"));
  return value;
}

std::vector<std::string> Json::texts(std::string_view name) const {
  const auto is_text = [](const Json& each) { return each.as<std::string>() != nullptr; };
  const auto good = [&](const Json& value) { return value.is_list() && std::ranges::all_of(value.items(), is_text); };
  std::vector<std::string> all;
  for (const Json& each : need(name, good, "a list of texts").items()) all.push_back(*each.as<std::string>());
  return all;
}

std::string Json::written(int blanks, Utf8 utf8) const {
  const std::string all = at(value_).dump(blanks, ' ', utf8 == Utf8::escaped, ordered_json::error_handler_t::replace);
  if (utf8 == Utf8::escaped || terminal_text(all) == all) return all;
  std::string safe;  // with the texts that act escaped as a whole
  for (std::size_t begin = 0, end = 0; begin < all.size(); begin = end) {
    end = begin + 1;
    if (all[begin] == '"')
      for (; all[end++] != '"';) end += all[end - 1] == '\\';
    const std::string part = all.substr(begin, end - begin);
    safe += terminal_text(part) == part ? part : ordered_json::parse(part).dump(-1, ' ', true);
  }
  return safe;
}

}  // namespace whence
