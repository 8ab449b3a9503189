#include "nn/io/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "tensor/error.h"

namespace whence {
namespace {

[[noreturn]] void refuse(const std::string& path, const char* what, int error = errno) {
  throw SystemError(path, ": ", what, ": ", std::strerror(error));
}

void write_all(int descriptor, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor, bytes.data(), std::min<std::size_t>(bytes.size(), 1u << 30));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse(path, "cannot write");
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

// Names differ between processes by the process's number, and between the writes of one process, whose threads may
// write the same file, by a count.
std::string temporary_name(const std::string& target) {
  static std::atomic<std::uint64_t> count = 0;
  return to_text(target, ".tmp-", ::getpid(), '-', count++);
}

// What a dead process of the same number left there must not stop a save; what somebody puts there meanwhile does.
int created(const std::string& path) {
  ::unlink(path.c_str());
  return ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
}

// Removed on the way out unless the rename went through.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& target)
      : target_(target), path_(temporary_name(target)), descriptor_(created(path_)) {
    if (descriptor_ < 0) refuse(target, "cannot write");
  }
  ~TemporaryFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!renamed_) ::unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void write(std::span<const std::byte> bytes) { write_all(descriptor_, bytes, target_); }
  void skip_to(std::size_t offset) {
    if (::lseek(descriptor_, static_cast<off_t>(offset), SEEK_SET) < 0) refuse(target_, "cannot write");
  }
  void commit() {
    if (::fsync(descriptor_) != 0) refuse(target_, "cannot sync");
    if (::close(std::exchange(descriptor_, -1)) != 0) refuse(target_, "cannot close");
    if (std::rename(path_.c_str(), target_.c_str()) != 0) refuse(target_, "cannot replace");
    renamed_ = true;
  }

 private:
  std::string target_, path_;
  int descriptor_;
  bool renamed_ = false;
};

constexpr const char* what_is_required = "not a regular file with one name; one required, or none";

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// Of a temporary file, by its name.
std::optional<pid_t> writer_of(std::string_view name) {
  constexpr std::string_view infix = ".tmp-", prefix = ".written-by-";
  std::string_view digits;
  if (name.starts_with(prefix)) {
    digits = name.substr(prefix.size());
  } else if (const std::size_t at = name.rfind(infix), count = name.rfind('-');
             at != name.npos && at > 0 && count >= at + infix.size() && is_number(name.substr(count + 1))) {
    digits = name.substr(at + infix.size(), count - at - infix.size());
  }
  pid_t pid = 0;
  const auto [stop, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), pid);
  const bool ours = problem == std::errc() && pid > 0 && to_text(pid) == digits;
  return ours ? std::optional(pid) : std::nullopt;
}

}  // namespace

// Without O_NONBLOCK, opening a pipe would wait for a writer.
InputFile::InputFile(const std::string& path)
    : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
  if (descriptor_ < 0) refuse(path, "cannot read");
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    throw SystemError(path, ": cannot read: not a regular file; a file required");
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t count =
        ::pread(descriptor_, out.data(), std::min<std::size_t>(out.size(), 1u << 30), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse(path_, "cannot read");
    if (count == 0)
      throw FileError(path_, ": cannot read: ended at byte ", offset, " while ", size_, " bytes were announced");
    out = out.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
}

std::string InputFile::text(std::uint64_t limit) const {
  if (size_ > limit) throw FileError(path_, ": ", size_, " bytes; at most ", limit, " required");
  std::string text(static_cast<std::size_t>(size_), '\0');
  read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

// As above; and what is there is only cut when it is known to be ours.
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

void write_file(
    const std::string& path, const std::vector<std::span<const std::byte>>& parts, const LateBeginning& beginning) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored))
    throw SystemError(path, ": cannot write: exists and is not a regular file; another path required");
  TemporaryFile file(path);
  file.skip_to(beginning.size);
  for (const auto part : parts) file.write(part);
  if (beginning.size > 0) {
    const std::string made = beginning.make();
    file.skip_to(0);
    file.write(std::as_bytes(std::span(made)));
  }
  file.commit();
  sync_folder(std::filesystem::path(path).parent_path().string());
}

void write_file(const std::string& path, std::string_view text) { write_file(path, {std::as_bytes(std::span(text))}); }

void sync_folder(const std::string& folder) {
  const std::string path = folder.empty() ? "." : folder;
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) refuse(path, "cannot open");
  const int error = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);  // nothing was written through it
  if (error != 0 && error != EINVAL)
    refuse(path, "cannot sync", error);  // EINVAL: a file system whose folders need no sync
}

std::vector<std::string> names_in(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder.c_str()), ::closedir);
  if (!open && errno == ENOMEM) throw std::bad_alloc();
  if (!open && (errno == ENOENT || errno == ENOTDIR)) return {};
  if (!open) refuse(folder, "cannot list");
  std::vector<std::string> names;
  for (errno = 0; const dirent* const entry = ::readdir(open.get()); errno = 0)
    if (const std::string_view name = entry->d_name; name != "." && name != "..") names.emplace_back(name);
  if (errno != 0) refuse(folder, "cannot list");  // a part of the names would pass for all of them
  return names;
}

void remove_whole(const std::string& path) {
  if (std::filesystem::is_directory(std::filesystem::symlink_status(path)))
    for (const std::string& name : names_in(path)) remove_whole(to_text(path, '/', name));
  std::filesystem::remove(path);
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
