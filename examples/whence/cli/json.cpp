#include "examples/whence/cli/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "examples/whence/cli/text.h"

namespace whence {

// ---- Reading

namespace {

// Returns why `text` is no JSON: ": not UTF-8". The parser noticed it at `byte`, counted from 1, and said `message`.
std::string cause_of(std::string_view text, std::size_t byte, std::string_view message) {
  for (std::size_t at = 0; at < std::min(byte, text.size());) {
    const CodePoint code = first_code_point(text.substr(at));
    if (!code.valid) return ": not UTF-8, which JSON is";
    at += code.bytes;
  }
  // A text that was cut inside a character, as Python writes it.
  if (message.find("surrogate") != message.npos)
    return ": half of a surrogate pair; a character needs both halves, or \\ufffd";
  const std::string_view rest = text.substr(std::min(byte - (byte > 0), text.size()));
  for (const std::string_view word : {"NaN", "Infinity", "None", "True", "False", "'"})
    if (rest.starts_with(word)) return to_text(": ", word, " as in Python, which JSON does not have");
  constexpr std::string_view before = " - ";  // "... syntax error while parsing value - CAUSE; last read: ..."
  const std::size_t begin = message.find(before);
  if (begin == message.npos) return {};
  message.remove_prefix(begin + before.size());
  return to_text(": ", message.substr(0, message.find("; ")));
}

}  // namespace

// Takes the parser's events without making the library's values: freeing one takes memory, which may have run out.
struct Json::Reader {
  std::string_view source;
  const std::string& place;
  const EachField& each;  // empty: all values are kept
  std::vector<Json> open = {};
  std::vector<std::string> keys = {};  // of the open objects
  Json whole = {};

  bool take(Json value) {
    if (open.empty())
      whole = std::move(value);
    else if (auto* list = std::get_if<List>(&open.back().value_))
      list->push_back(std::move(value));
    else
      take_field(std::move(value));
    return true;
  }
  void take_field(Json value) {
    if (each && open.size() == 1) {
      each(keys.back(), value);
      value = {};
    }
    std::get<Object>(open.back().value_).fields.push_back({std::move(keys.back()), std::move(value)});
  }
  bool begin(Json value) {
    constexpr std::size_t deepest = 64;
    if (open.size() == deepest)
      throw FileError(place, ": nests deeper than ", deepest, " levels, the most that JSON may");
    open.push_back(std::move(value));
    keys.emplace_back();
    return true;
  }
  bool end() {
    Json value = std::move(open.back());
    open.pop_back(), keys.pop_back();
    return take(std::move(value));
  }
  // Names a field of an object, or a place in a list: "run.json: numbers 3".
  std::string place_of_next() const {
    if (open.empty()) return place;
    std::string text = place;
    for (std::size_t level = 0; level < open.size(); ++level) {
      const auto* list = open[level].as<List>();
      text += list ? to_text(' ', list->size()) : to_text(": ", keys[level]);
    }
    return text;
  }

  bool null() { return take({}); }
  bool boolean(bool value) { return take(value); }
  bool number_integer(std::int64_t value) { return take(value); }
  bool number_unsigned(std::uint64_t value) { return take(value); }
  bool number_float(double value, const std::string&) { return take(value); }
  bool string(std::string& text) { return take(std::move(text)); }
  bool binary(nlohmann::json::binary_t&) { return false; }
  bool start_array(std::size_t) { return begin(List()); }
  bool end_array() { return end(); }
  bool start_object(std::size_t) {
    Json value{Fields()};
    std::get<Object>(value.value_).place = std::make_shared<const std::string>(place_of_next());
    return begin(std::move(value));
  }
  bool key(std::string& name) {
    keys.back() = std::move(name);
    return true;
  }
  bool end_object() {
    std::unordered_set<std::string_view> seen;
    for (const Field& field : open.back().fields())
      if (!seen.insert(field.name).second)
        open.back().refuse(to_text("field '", field.name, "' given twice; once required"));
    return end();
  }
  bool parse_error(std::size_t byte, const std::string&, const nlohmann::json::exception& error) {
    if (dynamic_cast<const nlohmann::json::out_of_range*>(&error))
      throw FileError(place, ": a number beyond what a computer's numbers hold, at byte ", byte);
    throw FileError(place, ": no JSON, from its byte ", byte, " on", cause_of(source, byte, error.what()),
        "; one whole object required");
  }
};

Json Json::read(std::string_view text, const std::string& place, const EachField& each) {
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"))
    throw FileError(place, ": UTF-16 given; UTF-8 required");
  if (const std::size_t at = text.find('\0'); at != text.npos)
    throw FileError(place, ": holds a NUL at byte ", at, "; JSON text required; is the file damaged?");
  Reader reader{text, place, each};
  nlohmann::json::sax_parse(text, &reader);
  if (!reader.whole.is_object()) throw FileError(place, ": no object; a JSON object required");
  return std::move(reader.whole);
}

// ---- Fields

Json::Json(std::initializer_list<Field> fields) : value_(Object{fields, nullptr}) {}
Json::Json(Fields fields) : value_(Object{std::move(fields), nullptr}) {}

Json& Json::add(std::string name, Json value) {
  if (is_null()) value_ = Object();
  std::get<Object>(value_).fields.push_back({std::move(name), std::move(value)});
  return *this;
}

const std::string& Json::place() const { return *std::get<Object>(value_).place; }
void Json::refuse(const std::string& problem) const { throw FileError(place(), ": ", problem); }

const Json::Fields& Json::fields() const { return std::get<Object>(value_).fields; }

const Json* Json::find(std::string_view name) const {
  const auto found = std::ranges::find(fields(), name, &Field::name);
  return found == fields().end() ? nullptr : &found->value;
}

void Json::refuse_field(std::string_view name, const char* required) const {
  const Json* value = find(name);
  if (!value) refuse(to_text("no field '", name, "'; ", required, " of that name required"));
  static constexpr const char* kinds[] = {"null", "true or false", "a whole number", "a whole number beyond 2^63",
      "a number", "a text", "a list", "an object"};
  refuse(to_text("field '", name, "' is ", kinds[value->value_.index()], "; ", required, " required"));
}

template <class Value> const Value& Json::get(std::string_view name, const char* required) const {
  const Json* value = find(name);
  const auto* held = value ? value->as<Value>() : nullptr;
  if (!held) refuse_field(name, required);
  return *held;
}

const std::string& Json::text(std::string_view name) const { return get<std::string>(name, "a text"); }
bool Json::truth(std::string_view name) const { return get<bool>(name, "true or false"); }
const Json::List& Json::list(std::string_view name) const { return get<List>(name, "a list"); }

std::int64_t Json::whole(std::string_view name, std::int64_t low, std::int64_t high) const {
  const auto value = get<std::int64_t>(name, "a whole number");
  if (value < low || value > high)
    refuse(to_text("field '", name, "' is ", value, "; ", low, " to ", high, " required"));
  return value;
}

double Json::number(std::string_view name) const {
  if (const Json* value = find(name))
    if (const auto number = value->as_number()) return *number;
  refuse_field(name, "a number");
}

const Json& Json::object(std::string_view name) const {
  (void)get<Object>(name, "an object");
  return *find(name);
}

const Json::List& Json::objects(std::string_view name) const {
  if (!std::ranges::all_of(list(name), &Json::is_object)) refuse_field(name, "a list of objects");
  return list(name);
}

std::vector<std::string> Json::texts(std::string_view name) const {
  std::vector<std::string> all;
  for (const Json& each : list(name)) {
    if (!each.as<std::string>()) refuse_field(name, "a list of texts");
    all.push_back(*each.as<std::string>());
  }
  return all;
}

std::vector<double> Json::numbers(std::string_view name) const {
  std::vector<double> all;
  for (const Json& each : list(name)) {
    const auto number = each.as_number();
    if (!number) refuse_field(name, "a list of numbers");
    all.push_back(*number);
  }
  return all;
}

std::optional<double> Json::as_number() const {
  if (const auto* whole = as<std::int64_t>()) return static_cast<double>(*whole);
  if (const auto* whole = as<std::uint64_t>()) return static_cast<double>(*whole);
  if (const auto* number = as<double>()) return *number;
  return is_null() ? std::optional(std::numeric_limits<double>::quiet_NaN()) : std::nullopt;
}

// ---- Writing

struct Json::Writer {
  std::size_t blanks;  // 0: all on one line
  Utf8 utf8;
  std::string out = {};

  // The library writes single values: freeing one takes no memory.
  void scalar(const nlohmann::json& value) {
    using Handler = nlohmann::json::error_handler_t;
    const auto handler = utf8 == Utf8::refused ? Handler::strict : Handler::replace;
    std::string text = value.dump(-1, ' ', utf8 == Utf8::escaped, handler);
    if (utf8 == Utf8::repaired && one_line(text) != text) text = value.dump(-1, ' ', true, handler);
    out += text;
  }
  void write(const Json& json, std::size_t level) {
    if (const auto* list = json.as<List>()) {
      members('[', *list, ']', level, [&](const Json& each) { write(each, level + 1); });
    } else if (const auto* object = json.as<Object>()) {
      members('{', object->fields, '}', level, [&](const Field& field) {
        scalar(field.name);
        out += blanks > 0 ? ": " : ":";
        write(field.value, level + 1);
      });
    } else if (json.is_null()) {
      out += "null";
    } else {
      std::visit(
          [this]<class Value>(const Value& value) {
            if constexpr (std::constructible_from<nlohmann::json, Value> && !std::same_as<Value, List>) scalar(value);
          },
          json.value_);
    }
  }
  template <class Members, class Write>
  void members(char open, const Members& all, char close, std::size_t level, const Write& write_one) {
    out += open;
    for (const auto& each : all) {
      if (&each != &all.front()) out += ',';
      if (blanks > 0) out += '\n' + std::string(blanks * (level + 1), ' ');
      write_one(each);
    }
    if (blanks > 0 && !all.empty()) out += '\n' + std::string(blanks * level, ' ');
    out += close;
  }
};

std::string Json::line(Utf8 utf8) const { return page(0, utf8); }

std::string Json::page(std::size_t blanks, Utf8 utf8) const try {
  Writer writer{blanks, utf8};
  writer.write(*this, 0);
  return std::move(writer.out);
} catch (const nlohmann::json::type_error&) { throw InputError("JSON: text that is not UTF-8 given; UTF-8 required"); }

}  // namespace whence
