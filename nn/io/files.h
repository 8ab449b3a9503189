// Whole files: a kill at any instant leaves the old file or the new one, never half of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/error.h"

namespace whence {

// The bytes of a file, or the data in it, are wrong.
class FileError : public InputError {
 public:
  using InputError::InputError;
};

// A valid checkpoint of another model or run.
class DoesNotFit : public InputError {
 public:
  using InputError::InputError;
};

// A regular file opened for reading. Folders, pipes and devices are refused before anything is read.
class InputFile {
 public:
  explicit InputFile(const std::string& path);  // SystemError if it cannot be read, or is not a regular file
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  std::uint64_t size() const { return size_; }
  // Fills `out` from `offset`. REQUIRES: offset + out.size() <= size(). SystemError if reading fails, FileError if the
  // file has shrunk since.
  void read(std::uint64_t offset, std::span<std::byte> out) const;
  std::string text(std::uint64_t limit) const;  // all of it; FileError above `limit` bytes

 private:
  std::string path_;
  int descriptor_;
  std::uint64_t size_ = 0;
};

// Writes to an open descriptor. SystemError with `path` if writing fails.
void write_all(int descriptor, std::span<const std::byte> bytes, const std::string& path);

// Checks that write_file can begin there, before long work: throws its SystemError. Leaves no file.
void require_writable(const std::string& path);

// Writes the parts in order into a temporary file next to `path`, named PATH.tmp-PROCESS-COUNT, syncs it, renames it to
// `path` and syncs the folder. SystemError if writing fails: the temporary file is then removed and an old file
// unchanged.
void write_file(const std::string& path, const std::vector<std::span<const std::byte>>& parts);
void write_file(const std::string& path, std::string_view text);

// Returns the names in a folder, without "." and "..", in no order; none if there is no such folder. SystemError if it
// cannot be read. std::filesystem's iterators and remove_all are not used, because they end the program when memory
// runs out (libstdc++ 13).
std::vector<std::string> names_in(const std::string& folder);

// Removes a file, a link, or a folder with its contents; does nothing if it does not exist. SystemError or
// std::filesystem::filesystem_error if it cannot.
void remove_whole(const std::string& path);

// Makes earlier renames and removals in `folder` survive a power failure. SystemError if it cannot.
void sync_folder(const std::string& folder);

}  // namespace whence
