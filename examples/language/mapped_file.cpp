#include "examples/language/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tensor/error.h"

namespace whence::language {
namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw InputError(path, ": cannot read: ", why, "; a file that can be read required; check the path");
}

constexpr std::size_t smallest_mapped = std::size_t{1} << 20;

// As many bytes as `text` has, or as the file has left. False: it could not be read, and errno says why.
bool read_into(std::string& text, int descriptor) {
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t got = ::read(descriptor, text.data() + at, text.size() - at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return false;
    if (got == 0) text.resize(at);
    at += static_cast<std::size_t>(got);
  }
  return true;
}

}  // namespace

// Without O_NONBLOCK, opening a pipe would wait for a writer.
MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  const int descriptor = ::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) refuse(path_, std::strerror(errno));
  struct stat status {};
  const bool regular = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  size_ = regular ? static_cast<std::size_t>(status.st_size) : 0;
  const bool maps = size_ >= smallest_mapped;
  text_.resize(maps ? 0 : size_);
  void* mapped = maps ? ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0) : nullptr;
  const bool there = maps ? mapped != MAP_FAILED : read_into(text_, descriptor);
  const int problem = errno;
  ::close(descriptor);
  if (!regular) refuse(path_, "not a regular file");
  if (!there) refuse(path_, std::strerror(problem));
  data_ = maps ? static_cast<const char*>(mapped) : text_.data();
  if (!maps) size_ = text_.size();
}

MappedFile::~MappedFile() {
  if (size_ >= smallest_mapped) ::munmap(const_cast<char*>(data_), size_);
}

std::string MappedFile::place_of(std::size_t byte) const {
  return to_text(path_, ": line ", 1 + std::count(data_, data_ + byte, '\n'), ", byte ", byte);
}

}  // namespace whence::language
