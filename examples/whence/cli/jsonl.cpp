#include "examples/whence/cli/jsonl.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "examples/whence/cli/json_text.h"
#include "examples/whence/cli/text.h"
#include "tensor/error.h"

namespace whence {
namespace {

using nlohmann::json;

// The library would take the last of several fields of one name.
json object_in(std::string_view line, const std::string& place) {
  std::set<std::string> names;
  std::string twice;
  const auto watch = [&](int depth, json::parse_event_t event, const json& parsed) {
    if (event == json::parse_event_t::key && depth == 1 && !names.insert(parsed.get<std::string>()).second)
      twice = parsed.get<std::string>();
    return true;
  };
  require_json_text(place, line);
  json object;
  try {
    object = json::parse(line, watch);
  } catch (const json::parse_error& error) {
    throw FileError(place, ": no JSON, from its byte ", error.byte, " on; one object on one line required");
  } catch (const json::exception&) { throw FileError(place, ": a number beyond what a computer's numbers hold"); }
  if (!object.is_object()) throw FileError(place, ": JSON of type ", object.type_name(), " given; an object required");
  if (!twice.empty()) throw FileError(place, ": field ", in_quotes(twice), " given twice; each once required");
  return object;
}

}  // namespace

struct JsonlLine::Fields {
  json object;

  const json& at(const JsonlLine& line, const std::string& field, const char* required) const {
    const auto found = object.find(field);
    if (found == object.end()) line.refuse(to_text("no field '", field, "'; ", required, " of that name required"));
    return *found;
  }
};

bool JsonlLine::has(const std::string& field) const { return fields.object.contains(field); }

const std::string& JsonlLine::text(const std::string& field) const {
  const json& value = fields.at(*this, field, "a text");
  if (!value.is_string()) refuse(to_text("field '", field, "' of type ", value.type_name(), "; a text required"));
  return value.get_ref<const std::string&>();
}

std::string JsonlLine::text_or_nothing(const std::string& field) const {
  return has(field) ? text(field) : std::string();
}

std::vector<std::string> JsonlLine::texts(const std::string& field) const {
  const json& value = fields.at(*this, field, "a list of texts");
  if (!value.is_array() || !std::ranges::all_of(value, [](const json& each) { return each.is_string(); }))
    refuse(to_text("field '", field, "' is no list of texts; one required"));
  return value.get<std::vector<std::string>>();
}

std::int64_t JsonlLine::whole_number(const std::string& field) const {
  const json& value = fields.at(*this, field, "a whole number");
  const auto number = whence::whole_number(value);
  if (!number) refuse(to_text("field '", field, "' of type ", value.type_name(), "; a whole number required"));
  return *number;
}

double JsonlLine::number(const std::string& field) const {
  const json& value = fields.at(*this, field, "a number");
  if (value.is_null()) return std::numeric_limits<double>::quiet_NaN();
  if (!value.is_number()) refuse(to_text("field '", field, "' of type ", value.type_name(), "; a number required"));
  return value.get<double>();
}

bool JsonlLine::truth(const std::string& field) const {
  const json& value = fields.at(*this, field, "true or false");
  if (!value.is_boolean())
    refuse(to_text("field '", field, "' of type ", value.type_name(), "; true or false required"));
  return value.get<bool>();
}

std::vector<std::string> JsonlLine::names() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : fields.object.items()) names.push_back(name);
  return names;
}

void JsonlLine::refuse(const std::string& problem) const { throw FileError(place, ": ", problem); }

void for_each_line_of_jsonl(
    std::string_view text, const std::string& path, const std::function<void(const JsonlLine&)>& take) {
  std::int64_t number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string place = to_text(path, ": line ", number);
    const JsonlLine::Fields fields{object_in(line, place)};
    take({place, fields});
  }
}

}  // namespace whence
