#include "examples/whence/cli/json_lines.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <span>

#include "examples/whence/cli/numbers.h"

namespace whence {
namespace {

// Reads the process from the name of a temporary file.
std::optional<int> writer_of(std::string_view name) {
  const std::size_t at = name.rfind(".tmp-"), dash = name.rfind('-');
  const bool counted = at != name.npos && at > 0 && dash > at + 5 && parse_number<std::uint64_t>(name.substr(dash + 1));
  const std::string_view digits = counted                            ? name.substr(at + 5, dash - at - 5)
                                  : name.starts_with(".written-by-") ? name.substr(12)
                                                                     : "";
  const std::optional<int> pid = parse_number<int>(digits);
  return pid && *pid > 0 && std::to_string(*pid) == digits ? pid : std::nullopt;
}

// A process that has ended, but was not waited for, still has its number; it writes nothing more.
bool lives(int pid) {
  if (::kill(pid, 0) != 0) return errno != ESRCH;
  std::ifstream file(to_text("/proc/", pid, "/stat"));
  std::string line;
  std::getline(file, line);
  const std::size_t name_end = line.rfind(") ");
  return name_end == line.npos || line[name_end + 2] != 'Z';
}

}  // namespace

void for_each_json_line(std::string_view text, const std::string& path, const std::function<void(const Json&)>& take) {
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.find_first_not_of(" \t\r") != line.npos) take(Json::read(line, to_text(path, ": line ", number)));
  }
}

std::optional<Json> first_json_line(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // a byte order mark
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
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
  const auto document = first ? first->find(field) : std::nullopt;
  return document && document->as<std::string>();
}

// Without O_NONBLOCK, opening a pipe would wait for a reader. The file is truncated only once it is known as ours.
JsonLog::JsonLog(const std::filesystem::path& path, Mode mode)
    : path_(path.string()),
      descriptor_(
          ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666)) {
  struct stat status {};
  const bool known = descriptor_ >= 0 && ::fstat(descriptor_, &status) == 0;
  const bool ours = known && S_ISREG(status.st_mode) && status.st_nlink == 1;
  if (ours && (mode == Mode::append || ::ftruncate(descriptor_, 0) == 0)) return;
  const std::string why = (known && !ours) || errno == ELOOP || errno == ENXIO
                              ? "not a regular file with one name; one required, or none"
                              : std::strerror(errno);
  if (descriptor_ >= 0) ::close(descriptor_);
  throw SystemError(path_, ": cannot write: ", why);
}

JsonLog::~JsonLog() { ::close(descriptor_); }

void JsonLog::append(const Json& record) const {
  const std::string line = record.line() + '\n';
  write_all(descriptor_, std::as_bytes(std::span(line)), path_);
}

JsonOutput::JsonOutput(bool on) : output_(on ? std::cout.rdbuf(std::cerr.rdbuf()) : nullptr) {}
JsonOutput::~JsonOutput() {
  if (output_) std::cout.rdbuf(output_);
}
void JsonOutput::lines(const std::string& text) const {
  if (output_) std::ostream(output_) << text << std::flush;
}

void remove_leftovers(const std::string& folder, const std::string& file) {
  for (const std::string& name : names_in(folder)) {
    if (!file.empty() && !name.starts_with(file + ".tmp-")) continue;
    const std::optional<int> writer = writer_of(name);
    const std::filesystem::path path = std::filesystem::path(folder) / name;
    std::error_code ignored;
    if (writer && (*writer == ::getpid() || !lives(*writer)) &&
        std::filesystem::symlink_status(path, ignored).type() == std::filesystem::file_type::regular)
      std::filesystem::remove(path, ignored);
  }
}

}  // namespace whence
