// Files that a program writes as it goes. (nn/io/files.h writes whole ones, atomically.)
#pragma once

#include <string>
#include <string_view>

namespace whence {

// A regular file that grows line by line. Symbolic and hard links are refused, and a pipe is not waited for:
// SystemError, as when writing fails.
class OutputFile {
 public:
  enum class Mode { fresh, append };

  OutputFile(const std::string& path, Mode mode);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void append(std::string_view bytes) const;

 private:
  std::string path_;
  int descriptor_;
};

// Removes the temporary files that killed processes left in `folder`: regular files named NAME.tmp-PID-COUNT or
// .written-by-PID if process PID has ended, or is this one; with a `file`, only those of this NAME. Files that cannot
// be removed stay.
void remove_leftovers(const std::string& folder, const std::string& file = {});

}  // namespace whence
