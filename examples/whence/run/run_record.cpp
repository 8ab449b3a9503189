#include "examples/whence/run/run_record.h"

#include <algorithm>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/run/run_files.h"
#include "nn/io/files.h"
#include "tensor/error.h"

namespace whence {
namespace {

// Writes a text as a number or a truth value if it reads back as the same text.
Json value_of(const std::string& text) {
  if (text == "true" || text == "false") return text == "true";
  if (const auto whole = parse_number<std::int64_t>(text); whole && std::to_string(*whole) == text) return *whole;
  if (const auto number = parse_number<double>(text); number && exact(*number) == text) return *number;
  return text;
}

std::string text_of(const Json& value) {
  if (const auto* number = value.as<double>()) return exact(*number);
  const auto* text = value.as<std::string>();
  return text ? *text : value.line();
}

using Pairs = std::vector<std::pair<std::string, std::string>>;

}  // namespace

Json object_of(const Pairs& pairs) {
  Json object{Json::Fields()};
  for (const auto& [name, first] : pairs) {
    if (object.has(name)) continue;
    Json::List values;
    for (const auto& [other, value] : pairs)
      if (other == name) values.push_back(value_of(value));
    object.add(name, values.size() == 1 ? values[0] : Json(values));
  }
  return object;
}

static Pairs pairs_of(const Json& object) {
  Pairs pairs;
  for (const auto& [name, value] : object.fields())
    for (const Json& each : value.is_list() ? object.list(name) : Json::List{value})
      pairs.emplace_back(name, text_of(each));
  return pairs;
}

std::vector<std::string> runs_below(const std::filesystem::path& folder) {
  std::vector<std::string> runs;
  std::error_code none;
  namespace fs = std::filesystem;
  for (auto entry = fs::recursive_directory_iterator(folder, none); !none && entry != fs::end(entry);
       entry.increment(none)) {
    if (entry.depth() == 2) entry.disable_recursion_pending();
    if (entry->path().filename() == "run.json") runs.push_back(entry->path().parent_path().string());
  }
  std::ranges::sort(runs);
  return runs;
}

std::string RunRecord::option(const std::string& name) const {
  const auto found = std::ranges::find(options, name, [](const auto& each) { return each.first; });
  return found == options.end() ? "" : found->second;
}

Json json_of(const RunRecord& record) {
  return {{"program", record.program}, {"version", record.version}, {"subject", record.subject},
      {"options", object_of(record.options)}, {"given", record.given}, {"data", record.data},
      {"facts", object_of(record.facts)}};
}

std::string text_of(const RunRecord& record) {
  const std::string zeros(64, '0');
  std::string text = json_of(record).add("seal", zeros).page() + '\n';
  return text.replace(text.rfind(zeros), zeros.size(), sha256(text));
}

const std::set<std::string> never_recorded{
    "out", "preset", "resume", "quiet", "json", "threads", "device", "dump", "describe", "graph"};

RunRecord read_run_record(const std::filesystem::path& path) {
  std::error_code none;
  if (!std::filesystem::exists(path, none))
    if (const auto runs = runs_below(path.parent_path()); !runs.empty())
      throw InputError(
          path.parent_path().string(), ": a folder of runs given; one of them required: ", first_few(runs, ", "));
  const std::string text = read_file(path);
  const Json page = Json::read(text, path.string() + ": no record of a run");
  const std::string seal = page.has("seal") ? page.text("seal") : "";
  RunRecord record{page.text("program"), page.text("version"), page.text("subject"), pairs_of(page.object("options")),
      page.texts("given"), page.text("data"), pairs_of(page.object("facts"))};
  if (page.has("seal") && hash_around_seal(text, seal).hexadecimal() != seal)
    throw FileError(path.string(),
        ": is damaged: its SHA-256 is not what its seal says; restore it from a copy; if you ",
        "changed it yourself, take the seal out");
  return record;
}

void set_recorded(Fields& fields, const RunRecord& record) {
  for (const auto& [name, value] : record.options) {
    if (!fields.has(name) || value.empty()) continue;  // an empty text was not given
    if (std::ranges::count(record.given, name) > 0)
      fields.set(name, value);
    else if (!never_recorded.contains(name))
      fields.set_default(name, value);
  }
}

}  // namespace whence
