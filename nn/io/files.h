// Whole files. A kill at any instant leaves the old file or the new one, never half of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nn/io/errors.h"

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

// To an open descriptor. SystemError that names `path` when writing fails.
void write_all(int descriptor, std::span<const std::byte> bytes, const std::string& path);

// Makes sure that write_file can begin there, before work that takes long: SystemError as from it. Nothing is left.
void require_writable(const std::string& path);

// Writes the parts one after another into a temporary file beside `path`, named PATH.tmp-PROCESS-COUNT, syncs it,
// renames it to `path` and syncs the folder. SystemError when the place cannot be written or writing fails: the
// temporary file is then removed and an old file unchanged.
void write_file(const std::string& path, const std::vector<std::span<const std::byte>>& parts);
void write_file(const std::string& path, std::string_view text);

// Names of what a folder holds, without "." and "..", in no order; none where there is no such folder, SystemError
// where it cannot be read. In place of std::filesystem's iterators and remove_all, which end the program where memory
// ends (libstdc++ 13).
std::vector<std::string> names_in(const std::string& folder);

// Removes a file, a link, or a folder and all that it holds; nothing where there is none. SystemError or
// std::filesystem::filesystem_error when it cannot.
void remove_whole(const std::string& path);

// Makes earlier renames and removals in `folder` last through a power failure. SystemError when it cannot.
void sync_folder(const std::string& folder);

}  // namespace whence
