#include "examples/whence/run/run_files.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

#include "examples/whence/cli/json_text.h"
#include "examples/whence/cli/results.h"
#include "nn/io/files.h"
#include "tensor/error.h"

namespace whence {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

// One line of a log. The last may be torn: then null.
static JsonRead<ordered_json> parsed(
    const fs::path& path, std::int64_t number, std::string_view line, bool may_be_torn) {
  const std::string place = to_text(path.string(), ": line ", number);
  ordered_json value;
  try {
    require_json_text(place, line);
    value = ordered_json::parse(line, nullptr, false);
  } catch (const FileError&) {
    if (!may_be_torn) throw;
  }
  JsonRead<ordered_json> read(std::move(value));
  if (read.value.is_object()) return read;
  if (may_be_torn) return {};
  throw FileError(place, " is not a JSON object; one object per line required; restore the log");
}

std::string read_file(const fs::path& path) {
  const InputFile file(path.string());
  return file.text(file.size());
}

void ensure_output_folder(const fs::path& folder) {
  const auto refuse = [&folder](const std::string& why) {
    throw SystemError(
        folder.string(), ": output folder: ", why, "; a folder that can be written required; choose another");
  };
  if (folder.empty()) throw InputError("output folder: no name given; a folder that can be written required");
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) refuse(error.message());
  if (!fs::is_directory(folder, error)) refuse("not a folder");
  const fs::path trial = folder / to_text(".written-by-", getpid());
  try {
    write_file(trial.string(), "whence writes here\n");
  } catch (const Error& failure) { refuse(failure.what()); }
  fs::remove(trial, error);
}

std::int64_t truncate_jsonl_after(const fs::path& path, std::int64_t step) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return 0;
  const std::string before = read_file(path);
  std::string kept;
  std::int64_t kept_lines = 0, line_number = 0;
  for (std::size_t begin = 0; begin < before.size();) {
    const std::size_t newline = before.find('\n', begin);
    if (newline == std::string::npos) break;  // torn: every whole line ends in a newline
    const std::string_view line(before.data() + begin, newline - begin);
    begin = newline + 1;
    ++line_number;
    const JsonRead<ordered_json> read = parsed(path, line_number, line, begin == before.size());
    const ordered_json& value = read.value;
    if (!value.is_object()) break;
    const auto found = value.find("step");
    if (found != value.end() && found->is_number() && found->get<double>() > static_cast<double>(step)) continue;
    kept.append(line).push_back('\n');
    ++kept_lines;
  }
  if (kept.size() != before.size()) write_file(path.string(), kept);
  return kept_lines;
}

std::string jsonl_as_csv(const fs::path& path) {
  std::vector<JsonRead<ordered_json>> lines;
  std::vector<std::string> columns;
  std::istringstream text(read_file(path));
  text.exceptions(std::ios::badbit);  // no memory: else a stream stops without a word
  for (std::string line; std::getline(text, line);) {
    lines.push_back(parsed(path, static_cast<std::int64_t>(lines.size()) + 1, line, false));
    for (const auto& [name, value] : lines.back().value.items())
      if (std::ranges::find(columns, name) == columns.end()) columns.push_back(name);
  }
  Table table(columns);
  for (const JsonRead<ordered_json>& read : lines) {
    const ordered_json& line = read.value;
    std::vector<std::string> cells;
    for (const std::string& column : columns) {
      const auto found = line.find(column);
      const bool there = found != line.end() && !found->is_null();
      cells.push_back(!there ? "" : found->is_string() ? found->get<std::string>() : found->dump());
    }
    table.row(cells);
  }
  return table.csv();
}

}  // namespace whence
