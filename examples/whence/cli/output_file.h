// Files that a program writes as it goes. (Whole ones, atomically: nn/io/files.h.)
#pragma once

#include <string>
#include <string_view>

namespace whence {

// A regular file that grows line by line. Links are not followed, neither kind, and a pipe is not waited for:
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

// Removes the temporary files that processes left in `folder` that were killed: regular files named
// NAME.tmp-PID-COUNT or .written-by-PID where process PID has ended, or is this one; with a `file` those of this NAME
// alone. What cannot be removed stays.
void remove_leftovers(const std::string& folder, const std::string& file = {});

}  // namespace whence
