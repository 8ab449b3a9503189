#include "examples/whence/language/file_bytes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "examples/whence/cli/interrupt.h"
#include "examples/whence/cli/text.h"
#include "tensor/error.h"

namespace whence::language {
namespace {

constexpr std::size_t piece_bytes = std::size_t{1} << 20;

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw SystemError(path, ": cannot read: ", why, "; a file that can be read required; check the path");
}

// Without O_NONBLOCK, opening a pipe would wait for a writer.
class Descriptor {
 public:
  explicit Descriptor(const std::string& path)
      : path_(path), number_(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
    if (number_ < 0) refuse(path, std::strerror(errno));
  }
  ~Descriptor() { ::close(number_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  struct stat status() const {
    struct stat found {};
    if (::fstat(number_, &found) != 0) refuse(path_, std::strerror(errno));
    if (!S_ISREG(found.st_mode)) refuse(path_, "not a regular file");
    return found;
  }
  // 0: the end.
  std::size_t read(char* to, std::size_t bytes) const {
    ssize_t got = 0;
    do got = ::read(number_, to, bytes);
    while (got < 0 && errno == EINTR);
    if (got < 0) refuse(path_, std::strerror(errno));
    return static_cast<std::size_t>(got);
  }

 private:
  const std::string& path_;
  int number_;
};

bool same(const struct stat& one, const struct stat& other) {
  return one.st_size == other.st_size && one.st_mtim.tv_sec == other.st_mtim.tv_sec &&
         one.st_mtim.tv_nsec == other.st_mtim.tv_nsec;
}

// Whoever trains on such a file means what is in it.
void refuse_packed(const std::string& path, std::string_view bytes) {
  struct Kind {
    std::string_view begins;
    const char *name, *advice;
  };
  static constexpr Kind kinds[] = {{"\x1f\x8b", "gzip", "gunzip it"}, {"\x28\xb5\x2f\xfd", "zstd", "unzstd it"},
      {"PK\x03\x04", "zip", "unzip it"}, {"\xfd\x37zXZ", "xz", "unxz it"}, {"BZh91AY&SY", "bzip2", "bunzip2 it"},
      {"%PDF-", "PDF", "take its text out, as pdftotext does"}};
  for (const Kind& kind : kinds)
    if (bytes.starts_with(kind.begins))
      throw FileError(path, ": ", kind.name, " given; text required; ", kind.advice, " first, or leave it out");
}

}  // namespace

FileBytes::FileBytes(std::string path) : path_(std::move(path)) {
  const Descriptor file(path_);
  const struct stat before = file.status();
  const auto announced = static_cast<std::size_t>(before.st_size);
  if (announced == 0) throw FileError(path_, ": an empty file given; some text required; leave it out");
  bytes_ = std::make_unique_for_overwrite<char[]>(announced);
  while (size_ < announced) {
    stop_if_interrupted("reading text");
    const std::size_t got = file.read(bytes_.get() + size_, std::min(piece_bytes, announced - size_));
    if (got == 0) break;
    size_ += got;
  }
  if (size_ < announced || !same(before, file.status()))
    throw FileError(path_, ": changed while it was read; a file that nobody writes required; try again");
  refuse_packed(path_, bytes());
}

std::string FileBytes::place_of(std::size_t byte) const {
  return to_text(path_, ": line ", 1 + std::count(bytes_.get(), bytes_.get() + byte, '\n'), ", byte ", byte);
}

std::string FileBytes::note() const {
  const std::string_view looked_at = bytes().substr(0, std::size_t{1} << 16);
  const auto nuls = std::ranges::count(looked_at, '\0');
  if (nuls == 0) return {};
  return to_text("note: ", one_line(path_), ": ", nuls, " of its first ", looked_at.size(),
      " bytes are NUL: binary, or not UTF-8; they are taken as they are\n");
}

}  // namespace whence::language
