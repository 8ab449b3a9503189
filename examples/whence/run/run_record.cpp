#include "examples/whence/run/run_record.h"

#include <algorithm>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/text.h"
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

// A name that occurs several times becomes a list.
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

Pairs pairs_of(const Json& object) {
  Pairs pairs;
  for (const auto& [name, value] : object.fields())
    for (const Json& each : value.is_list() ? object.list(name) : Json::List{value})
      pairs.emplace_back(name, text_of(each));
  return pairs;
}

// Refuses a folder of runs, such as a lab's, which has no run.json.
void refuse_folder_of_runs(const std::filesystem::path& record) {
  std::error_code none;
  if (std::filesystem::exists(record, none)) return;
  const std::filesystem::path folder = record.parent_path();
  if (const std::vector<std::string> runs = runs_below(folder); !runs.empty())
    throw InputError(folder.string(), ": a folder of runs given; one of them required: ", first_few(runs, ", "));
}

}  // namespace

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

const std::set<std::string> never_recorded{"out", "from", "preset", "resume", "accept-damaged", "quiet", "json",
    "threads", "device", "cuda-graph", "dump", "dump-set", "describe", "graph", "communicator", "rank-limit"};

RunRecord read_run_record(const std::filesystem::path& path) {
  refuse_folder_of_runs(path);
  const std::string text = read_file(path);
  const Json page = Json::read(text, path.string() + ": no record of a run");
  const std::string seal = page.has("seal") ? page.text("seal") : "";
  RunRecord record{page.text("program"), page.text("version"), page.text("subject"), pairs_of(page.object("options")),
      page.texts("given"), page.text("data"), pairs_of(page.object("facts"))};
  if (page.has("seal") && hash_around_seal(text, seal).hexadecimal() != seal)
    throw FileError(path.string(),
        ": is damaged: its SHA-256 is not what its seal says; restore it from a copy; if you ",
        "changed it yourself, take the seal out");
  for (const auto& [name, value] : record.facts)  // a run without a seal says these twice
    if (const std::string option = name.starts_with("model.") ? record.option(name.substr(6)) : "";
        !option.empty() && option != value)
      throw FileError(path.string(), ": is damaged: ", name, " is ", in_quotes(value), ", the option ",
          in_quotes(option), "; the same required");
  return record;
}

TypedOptions options_in(const std::vector<std::string>& words) {
  TypedOptions options;
  for (std::size_t k = 0; k < words.size(); ++k) {
    if (!words[k].starts_with("--")) continue;
    const std::size_t equals = words[k].find('=');
    const std::string next = k + 1 < words.size() ? words[k + 1] : "";
    options[words[k].substr(2, equals - 2)] = equals == std::string::npos ? next : words[k].substr(equals + 1);
  }
  return options;
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

std::optional<std::string> record_to_repeat(const TypedOptions& typed) {
  if (const auto from = typed.find("from"); from != typed.end() && !from->second.empty()) return from->second;
  if (!typed.contains("out") || !typed.contains("resume")) return std::nullopt;
  std::error_code ignored;
  const std::filesystem::path record = std::filesystem::path(typed.at("out")) / "run.json";
  return std::filesystem::is_regular_file(record, ignored) ? std::optional(record.string()) : std::nullopt;
}

}  // namespace whence
