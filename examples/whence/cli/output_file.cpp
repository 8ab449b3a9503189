#include "examples/whence/cli/output_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "nn/io/files.h"
#include "tensor/error.h"

namespace whence {
namespace {

constexpr const char* what_is_required = "not a regular file with one name; one required, or none";

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// Of a temporary file, by its name.
std::optional<pid_t> writer_of(std::string_view name) {
  constexpr std::string_view infix = ".tmp-", prefix = ".written-by-";
  std::string_view digits;
  if (const std::size_t at = name.rfind(infix), count = name.rfind('-');
      at != name.npos && at > 0 && count >= at + infix.size() && is_number(name.substr(count + 1))) {
    digits = name.substr(at + infix.size(), count - at - infix.size());
  } else if (name.starts_with(prefix)) {
    digits = name.substr(prefix.size());
  }
  pid_t pid = 0;
  const auto [stop, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), pid);
  const bool ours = problem == std::errc() && pid > 0 && to_text(pid) == digits;
  return ours ? std::optional(pid) : std::nullopt;
}

}  // namespace

// Without O_NONBLOCK, opening a pipe would wait for a reader; and what is there is only cut when it is known to be ours.
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
  write_all(descriptor_, std::as_bytes(std::span(bytes)), path_);
}

void remove_leftovers(const std::string& folder) {
  std::vector<std::filesystem::path> leftovers;
  std::error_code ignored;
  for (const std::string& name : names_in(folder)) {
    const std::filesystem::path path = std::filesystem::path(folder) / name;
    const std::optional<pid_t> writer = writer_of(name);
    const bool dead = writer && (*writer == ::getpid() || (::kill(*writer, 0) != 0 && errno == ESRCH));
    if (dead && std::filesystem::symlink_status(path, ignored).type() == std::filesystem::file_type::regular)
      leftovers.push_back(path);
  }
  for (const std::filesystem::path& leftover : leftovers) std::filesystem::remove(leftover, ignored);
}

}  // namespace whence
