#include "examples/whence/cli/json_lines.h"

#include <algorithm>
#include <fstream>

#include "tensor/error.h"

namespace whence {

void for_each_json_line(std::string_view text, const std::string& path, const std::function<void(const Json&)>& take) {
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") != line.npos) take(Json::read(line, to_text(path, ": line ", number)));
  }
}

std::optional<Json> first_json_line(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // a byte order mark
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  if (!text.starts_with('{')) return std::nullopt;
  try {
    return Json::read(text.substr(0, text.find('\n')), "");
  } catch (const FileError&) { return std::nullopt; }
}

std::string first_line_of(const std::string& path) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) return {};
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.find_first_not_of(" \t\r") != line.npos) return line;
  return {};
}

bool is_jsonl(const std::string& path) { return path.ends_with(".jsonl") || path.ends_with(".ndjson"); }

bool is_json_lines(const std::string& path, std::string_view text, const std::string& field) {
  if (is_jsonl(path)) return true;
  const auto first = first_json_line(text);
  const std::optional<Json> document = first ? first->find(field) : std::nullopt;
  return document && document->as<std::string>();
}

}  // namespace whence
