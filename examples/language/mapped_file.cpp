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

}  // namespace

// Without O_NONBLOCK, opening a pipe would wait for a writer.
MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  const int descriptor = ::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) refuse(path_, std::strerror(errno));
  struct stat status {};
  const bool regular = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  size_ = regular ? static_cast<std::size_t>(status.st_size) : 0;
  void* mapped = size_ == 0 ? nullptr : ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
  const int problem = errno;
  ::close(descriptor);
  if (!regular) refuse(path_, "not a regular file");
  if (mapped == MAP_FAILED) refuse(path_, std::strerror(problem));
  data_ = static_cast<const char*>(mapped);
}

MappedFile::~MappedFile() {
  if (size_ > 0) ::munmap(const_cast<char*>(data_), size_);
}

std::string MappedFile::place_of(std::size_t byte) const {
  return to_text(path_, ": line ", 1 + std::count(data_, data_ + byte, '\n'), ", byte ", byte);
}

}  // namespace whence::language
