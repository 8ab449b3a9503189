#include "examples/app/jsonl.h"

#include <nlohmann/json.hpp>
#include <set>

#include "examples/app/text.h"
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
  json object;
  try {
    object = json::parse(line, watch);
  } catch (const json::parse_error& error) {
    throw InputError(place, ": no JSON, from its byte ", error.byte, " on; one object on one line required");
  }
  if (!object.is_object()) throw InputError(place, ": JSON of type ", object.type_name(), " given; an object required");
  if (!twice.empty()) throw InputError(place, ": field ", in_quotes(twice), " given twice; each once required");
  return object;
}

}  // namespace

const std::string& JsonlLine::text(const std::string& field) const {
  const auto found = fields.find(field);
  if (found == fields.end()) refuse(to_text("no field '", field, "'; a text of that name required"));
  if (!found->is_string()) refuse(to_text("field '", field, "' of type ", found->type_name(), "; a text required"));
  return found->get_ref<const std::string&>();
}

std::string JsonlLine::text_or_nothing(const std::string& field) const {
  return fields.contains(field) ? text(field) : std::string();
}

void JsonlLine::refuse(const std::string& problem) const { throw InputError(place, ": ", problem); }

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
    take({place, object_in(line, place)});
  }
}

}  // namespace whence
