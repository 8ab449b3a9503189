#include "nn/io/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <new>
#include <utility>

namespace whence {
namespace {

[[noreturn]] void system_refused(const std::string& path, const char* what, int error = errno) {
  throw SystemError(path, ": ", what, ": ", std::strerror(error));
}

// A file that is removed at the end unless the rename succeeded. Its name is that of no other process, nor of another
// thread that writes the same file. A dead process with our id may have left one; what appears after that is not opened.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& target) : target_(target) {
    static std::atomic<std::uint64_t> count = 0;
    path_ = to_text(target, ".tmp-", ::getpid(), '-', count++);
    std::error_code ignored;
    if (std::filesystem::exists(target, ignored) && !std::filesystem::is_regular_file(target, ignored))
      throw SystemError(target, ": cannot write: exists and is not a regular file; another path required");
    ::unlink(path_.c_str());
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (descriptor_ < 0) system_refused(target, "cannot write");
  }
  ~TemporaryFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!renamed_) ::unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void write(std::span<const std::byte> bytes) { write_all(descriptor_, bytes, target_); }
  void commit() {
    if (::fsync(descriptor_) != 0) system_refused(target_, "cannot sync");
    if (::close(std::exchange(descriptor_, -1)) != 0) system_refused(target_, "cannot close");
    if (std::rename(path_.c_str(), target_.c_str()) != 0) system_refused(target_, "cannot replace");
    renamed_ = true;
  }

 private:
  std::string target_, path_;
  int descriptor_ = -1;
  bool renamed_ = false;
};

}  // namespace

// Without O_NONBLOCK, opening a pipe would wait for a writer.
InputFile::InputFile(const std::string& path)
    : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
  if (descriptor_ < 0) system_refused(path, "cannot read");
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
    if (count < 0) system_refused(path_, "cannot read");
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

void write_all(int descriptor, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor, bytes.data(), std::min<std::size_t>(bytes.size(), 1u << 30));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) system_refused(path, "cannot write");
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void require_writable(const std::string& path) { (void)TemporaryFile(path); }

void write_file(const std::string& path, const std::vector<std::span<const std::byte>>& parts) {
  TemporaryFile file(path);
  for (const auto part : parts) file.write(part);
  file.commit();
  sync_folder(std::filesystem::path(path).parent_path().string());
}

void write_file(const std::string& path, std::string_view text) {
  write_file(path, {std::as_bytes(std::span(text.data(), text.size()))});
}

void sync_folder(const std::string& folder) {
  const std::string path = folder.empty() ? "." : folder;
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) system_refused(path, "cannot open");
  const int error = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);  // safe: the descriptor was not written
  if (error != 0 && error != EINVAL)
    system_refused(path, "cannot sync", error);  // EINVAL: a file system whose folders need no sync
}

std::vector<std::string> names_in(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder.c_str()), ::closedir);
  if (!open && errno == ENOMEM) throw std::bad_alloc();
  if (!open && (errno == ENOENT || errno == ENOTDIR)) return {};
  if (!open) system_refused(folder, "cannot list");
  std::vector<std::string> names;
  for (errno = 0; const dirent* const entry = ::readdir(open.get()); errno = 0)
    if (const std::string_view name = entry->d_name; name != "." && name != "..") names.emplace_back(name);
  if (errno != 0) system_refused(folder, "cannot list");  // an incomplete list would look complete
  return names;
}

void remove_whole(const std::string& path) {
  if (std::filesystem::is_directory(std::filesystem::symlink_status(path)))
    for (const std::string& name : names_in(path)) remove_whole(to_text(path, '/', name));
  std::filesystem::remove(path);
}

}  // namespace whence
