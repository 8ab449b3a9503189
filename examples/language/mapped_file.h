// A file as bytes in memory. The system reads them when they are used and may drop them again, so it may be as large as
// the disk allows. Small ones are read at once: a process may map only so many, 65530 on Linux, and folders hold more.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace whence::language {

class MappedFile {
 public:
  // InputError when it cannot be read or is no regular file. The file must not shrink while this lives.
  explicit MappedFile(std::string path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::string_view bytes() const { return {data_, size_}; }
  [[nodiscard]] std::string place_of(std::size_t byte) const;  // "FILE: line 3, byte 57", the byte counted from 0

 private:
  std::string path_;
  std::string text_;  // of a small one
  const char* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace whence::language
