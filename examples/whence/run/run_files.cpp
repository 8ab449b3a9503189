#include "examples/whence/run/run_files.h"

#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <system_error>

#include "examples/whence/cli/json_lines.h"
#include "examples/whence/cli/output_file.h"
#include "examples/whence/report/table.h"
#include "nn/io/files.h"
#include "tensor/error.h"

namespace whence {

namespace fs = std::filesystem;
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

void ensure_output_file(const fs::path& file) {
  if (file.empty()) return;
  require_writable(file.string());
  remove_leftovers(file.has_parent_path() ? file.parent_path().string() : ".", file.filename().string());
}

void truncate_jsonl_after(const fs::path& path, std::int64_t step) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return;
  const std::string before = read_file(path);
  std::istringstream lines(before);
  std::string kept, line;
  for (int number = 1; std::getline(lines, line) && !lines.eof(); ++number) {  // every complete line ends in a newline
    try {
      const Json record = Json::read(line, to_text(path.string(), ": line ", number));
      const Json* at = record.find("step");
      if (at && at->as_number() > static_cast<double>(step)) continue;
    } catch (const FileError&) {
      if (lines.peek() != std::istream::traits_type::eof()) throw;
      break;  // a torn line too
    }
    kept += line + '\n';
  }
  if (kept.size() != before.size()) write_file(path.string(), kept);
}

std::string jsonl_as_csv(const fs::path& path) {
  std::vector<Json> lines;
  std::vector<std::string> columns;
  for_each_json_line(read_file(path), path.string(), [&](const Json& line) {
    for (const auto& [name, value] : line.fields())
      if (std::ranges::find(columns, name) == columns.end()) columns.push_back(name);
    lines.push_back(line);
  });
  Table table(columns);
  for (const Json& line : lines) {
    std::vector<std::string> cells;
    for (const std::string& column : columns) {
      const Json* value = line.find(column);
      const auto* text = value ? value->as<std::string>() : nullptr;
      cells.push_back(!value || value->is_null() ? "" : text ? *text : value->line());
    }
    table.row(cells);
  }
  return table.csv();
}

}  // namespace whence
