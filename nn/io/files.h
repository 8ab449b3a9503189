// Whole files. A kill at any instant leaves the old file or the new one, never half of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace whence {

// A regular file opened for reading. Folders, pipes and devices are refused before anything is read.
class InputFile {
 public:
  explicit InputFile(const std::string& path);  // SystemError when it cannot be read, or is not a regular file
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  std::uint64_t size() const { return size_; }
  // Fills `out` from `offset`. REQUIRES: offset + out.size() <= size(). SystemError when the system does not give it,
  // FileError when the file has shrunk meanwhile.
  void read(std::uint64_t offset, std::span<std::byte> out) const;
  std::string text(std::uint64_t limit) const;  // all of it; FileError above `limit` bytes

 private:
  std::string path_;
  int descriptor_;
  std::uint64_t size_ = 0;
};

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

// What a file begins with when it depends on all that follows: made while, or after, the rest is written.
struct LateBeginning {
  std::size_t size = 0;
  std::function<std::string()> make = {};
};

// Writes the parts one after another into a temporary file beside `path`, syncs it, renames it to `path` and syncs the
// folder. SystemError when the place cannot be written or writing fails: the temporary file is then removed and an old
// file unchanged.
void write_file(
    const std::string& path, const std::vector<std::span<const std::byte>>& parts, const LateBeginning& beginning = {});
void write_file(const std::string& path, std::string_view text);

// Names of what a folder holds, without "." and "..", in no order; none where it cannot be read. In place of
// std::filesystem's iterators and remove_all, which end the program where memory ends (libstdc++ 13).
std::vector<std::string> names_in(const std::string& folder);

// Removes a file, a link, or a folder and all that it holds; nothing where there is none.
// std::filesystem::filesystem_error.
void remove_whole(const std::string& path);

// Removes the temporary files that processes left in `folder` that were killed: regular files named
// NAME.tmp-PID-COUNT or .written-by-PID where no process PID lives, or it is this one. What cannot be removed stays.
void remove_leftovers(const std::string& folder);

// Makes earlier renames and removals in `folder` last through a power failure. SystemError when it cannot.
void sync_folder(const std::string& folder);

}  // namespace whence
