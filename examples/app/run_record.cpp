// Writing, reading, and turning back into a command line.
#include "examples/app/run_record.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "examples/app/run_files.h"
#include "tensor/error.h"

namespace whence {
namespace {

using Json = nlohmann::ordered_json;

Json object_of(const std::vector<std::pair<std::string, std::string>>& pairs) {
  Json object = Json::object();
  for (const auto& [name, value] : pairs) object[name] = value;
  return object;
}

std::vector<std::pair<std::string, std::string>> pairs_of(const Json& object) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const auto& [name, value] : object.items()) pairs.emplace_back(name, value.get<std::string>());
  return pairs;
}

bool is_typed(const std::vector<std::string>& typed, const std::string& name) {
  const std::string option = "--" + name;
  return std::ranges::any_of(
      typed, [&](const std::string& text) { return text == option || text.starts_with(option + "="); });
}

}  // namespace

std::string text_of(const RunRecord& record) {
  Json page = Json::object();
  page["program"] = record.program;
  page["version"] = record.version;
  page["subject"] = record.subject;
  page["options"] = object_of(record.options);
  page["given"] = record.given;
  page["data"] = record.data;
  page["facts"] = object_of(record.facts);
  return page.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

RunRecord read_run_record(const std::filesystem::path& path) {
  try {
    const Json page = Json::parse(read_file(path));
    return {page.at("program"), page.at("version"), page.at("subject"), pairs_of(page.at("options")), page.at("given"),
        page.at("data"), pairs_of(page.at("facts"))};
  } catch (const Json::exception& error) {
    throw InputError(to_text(
        path.string(), ": no record of a run: ", error.what(), "; the run.json of a run required; check the path"));
  }
}

std::vector<std::string> arguments_of(
    const RunRecord& record, const std::vector<std::string>& names, const std::vector<std::string>& typed) {
  std::vector<std::string> arguments;
  for (const auto& [name, value] : record.options) {
    if (std::ranges::find(names, name) == names.end() || is_typed(typed, name) || value == "false") continue;
    arguments.push_back("--" + name);
    if (value != "true") arguments.push_back(value);
  }
  return arguments;
}

}  // namespace whence
