#include "examples/whence/cli/output_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>

#include "examples/whence/cli/numbers.h"
#include "nn/io/files.h"
#include "tensor/error.h"

namespace whence {
namespace {

constexpr const char* what_is_required = "not a regular file with one name; one required, or none";

// Reads the process from the name of a temporary file.
std::optional<int> writer_of(std::string_view name) {
  constexpr std::string_view infix = ".tmp-", prefix = ".written-by-";
  const std::size_t at = name.rfind(infix), begin = at + infix.size(), dash = name.rfind('-');
  std::string_view digits;
  if (at != name.npos && at > 0 && dash > begin && parse_number<std::uint64_t>(name.substr(dash + 1)))
    digits = name.substr(begin, dash - begin);
  else if (name.starts_with(prefix))
    digits = name.substr(prefix.size());
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

// Without O_NONBLOCK, opening a pipe would wait for a reader. The file is truncated only once it is known as ours.
OutputFile::OutputFile(const std::string& path, Mode mode)
    : path_(path),
      descriptor_(
          ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666)) {
  const auto refused = [&](const std::string& why) {
    if (descriptor_ >= 0) ::close(descriptor_);
    throw SystemError(path, ": cannot write: ", why);
  };
  if (descriptor_ < 0 && (errno == ELOOP || errno == ENXIO)) refused(what_is_required);
  if (descriptor_ < 0) refused(std::strerror(errno));
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) refused(std::strerror(errno));
  if (!S_ISREG(status.st_mode) || status.st_nlink > 1) refused(what_is_required);
  if (mode == Mode::fresh && ::ftruncate(descriptor_, 0) != 0) refused(std::strerror(errno));
}

OutputFile::~OutputFile() { ::close(descriptor_); }

void OutputFile::append(std::string_view bytes) const {
  write_all(descriptor_, std::as_bytes(std::span(bytes.data(), bytes.size())), path_);
}

void remove_leftovers(const std::string& folder, const std::string& file) {
  for (const std::string& name : names_in(folder)) {
    if (!file.empty() && !name.starts_with(file + ".tmp-")) continue;
    const std::optional<int> writer = writer_of(name);
    const bool dead = writer && (*writer == ::getpid() || !lives(*writer));
    const std::filesystem::path path = std::filesystem::path(folder) / name;
    std::error_code ignored;
    if (dead && std::filesystem::symlink_status(path, ignored).type() == std::filesystem::file_type::regular)
      std::filesystem::remove(path, ignored);
  }
}

}  // namespace whence
