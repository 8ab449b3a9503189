// A file of text as bytes in memory, all of them: a mapping would end the program with a signal where the file shrinks
// while it is read. So a text takes as much memory as it is large, until it has become tokens.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace whence::language {

class FileBytes {
 public:
  // Throws SystemError when the file cannot be read or is no regular one; FileError when it is empty, changes while it
  // is read, or begins as compressed files and PDF do; Interrupted.
  explicit FileBytes(std::string path);

  const std::string& path() const { return path_; }
  std::string_view bytes() const { return {bytes_.get(), size_}; }
  [[nodiscard]] std::string place_of(std::size_t byte) const;  // "FILE: line 3, byte 57", the byte counted from 0
  // Where there is NUL among the first 64 KiB: a sentence that says so. Else empty.
  [[nodiscard]] std::string note() const;

 private:
  std::string path_;
  std::unique_ptr<char[]> bytes_;
  std::size_t size_ = 0;
};

}  // namespace whence::language
