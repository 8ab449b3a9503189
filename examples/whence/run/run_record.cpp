#include "examples/whence/run/run_record.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "examples/whence/cli/json_text.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/run/run_files.h"
#include "tensor/error.h"

namespace whence {
namespace {

using Json = nlohmann::ordered_json;

// A number or a truth value where the text is just what one would be written as, so that it reads back as it was.
std::string value_of(const std::string& text) {
  if (text == "true" || text == "false") return text;
  if (const auto whole = parse_number<std::int64_t>(text); whole && std::to_string(*whole) == text) return text;
  if (const auto number = parse_number<double>(text); number && number_text(*number) == text)
    return json_number(*number);
  return json_string(text);
}

std::string text_of(const Json& value) {
  if (value.is_number_float()) return number_text(value.get<double>());
  return value.is_string() ? value.get<std::string>() : value.dump();
}

using Pairs = std::vector<std::pair<std::string, std::string>>;

// Of a name that comes several times: a list.
std::string object_of(const Pairs& pairs) {
  JsonFields fields;
  for (const auto& [name, first] : pairs) {
    if (std::ranges::count(fields, name, &Pairs::value_type::first) > 0) continue;
    std::vector<std::string> values;
    for (const auto& [other, value] : pairs)
      if (other == name) values.push_back(value_of(value));
    fields.emplace_back(name, values.size() == 1 ? values[0] : json_array(values, JsonLayout::page));
  }
  return json_object(fields, JsonLayout::page);
}

Pairs pairs_of(const Json& object) {
  Pairs pairs;
  for (const auto& [name, value] : object.items()) {
    if (!value.is_array())
      pairs.emplace_back(name, text_of(value));
    else
      for (const Json& each : value) pairs.emplace_back(name, text_of(each));
  }
  return pairs;
}

// No command line takes such a value, so that no run has recorded it.
void refuse_option_in(const std::string& value, const char* begins, const char* list, const std::string& name,
    const std::filesystem::path& path) {
  if (value.starts_with(begins))
    throw FileError(path.string(), ": ", list, ": ", in_quotes(name), ": ", in_quotes(value),
        " found; a value that does not begin with ", begins, " required");
}

bool is_typed(const std::vector<std::string>& typed, const std::string& name) {
  const std::string option = "--" + name;
  return std::ranges::any_of(
      typed, [&](const std::string& text) { return text == option || text.starts_with(option + "="); });
}

}  // namespace

std::string text_of(const RunRecord& record) {
  std::vector<std::string> given;
  for (const std::string& name : record.given) given.push_back(json_string(name));
  const JsonFields page{{"program", json_string(record.program)}, {"version", json_string(record.version)},
      {"subject", json_string(record.subject)}, {"options", object_of(record.options)},
      {"given", json_array(given, JsonLayout::page)}, {"data", json_string(record.data)},
      {"facts", object_of(record.facts)}};
  return json_object(page, JsonLayout::page) + '\n';
}

const std::set<std::string> never_recorded{"out", "from", "resume", "accept-damaged", "quiet", "threads", "device",
    "cuda-graph", "beside", "dump", "dump-set", "describe", "graph", "processes", "communicator", "rank-limit",
    "rendezvous"};

RunRecord read_run_record(const std::filesystem::path& path) {
  const std::string text = read_file(path);
  require_json_text(path.string(), text);
  try {
    const JsonRead<Json> read(Json::parse(text));
    const Json& page = read.value;
    const RunRecord record{page.at("program"), page.at("version"), page.at("subject"), pairs_of(page.at("options")),
        page.at("given"), page.at("data"), pairs_of(page.at("facts"))};
    for (const auto& [name, value] : record.options) refuse_option_in(value, "--", "options", name, path);
    for (const auto& [name, value] : record.facts)
      if (name == "file") refuse_option_in(value, "-", "facts", name, path);
    return record;
  } catch (const Json::exception& error) {
    throw FileError(
        path.string(), ": no record of a run: ", error.what(), "; the run.json of a run required; check the path");
  }
}

void refuse_unknown_options(
    const RunRecord& record, const std::string& path, const std::vector<std::pair<std::string, std::string>>& known) {
  for (const std::string& name : record.given) {
    const bool there = std::ranges::find(known, name, &std::pair<std::string, std::string>::first) != known.end();
    if (!there || never_recorded.contains(name))
      throw FileError(path, ": given: ", in_quotes(name), " found; an option that runs of ", in_quotes(record.subject),
          " record required");
  }
}

std::vector<std::string> arguments_of(
    const RunRecord& record, const std::vector<std::string>& names, const std::vector<std::string>& typed) {
  std::vector<std::string> arguments;
  for (const auto& [name, value] : record.options) {
    if (std::ranges::find(names, name) == names.end() || is_typed(typed, name) || value == "false") continue;
    if (value.empty()) continue;  // a text that was not given, and that no command line takes
    arguments.push_back("--" + name + "=" + value);
  }
  return arguments;
}

std::optional<std::string> typed_value(const std::vector<std::string>& arguments, const std::string& option) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].starts_with(option + "=")) return arguments[i].substr(option.size() + 1);
    if (arguments[i] == option && i + 1 < arguments.size()) return arguments[i + 1];
  }
  return std::nullopt;
}

std::optional<std::string> record_to_repeat(const std::vector<std::string>& arguments) {
  if (auto from = typed_value(arguments, "--from")) return from;
  const auto out = typed_value(arguments, "--out");
  if (!out || std::ranges::find(arguments, "--resume") == arguments.end()) return std::nullopt;
  std::error_code ignored;
  const std::filesystem::path record = std::filesystem::path(*out) / "run.json";
  return std::filesystem::is_regular_file(record, ignored) ? std::optional(record.string()) : std::nullopt;
}

}  // namespace whence
