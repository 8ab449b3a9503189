// Whole files. A kill at any instant leaves the old file or the new one, never half of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace whence {

// A regular file opened for reading. Folders, pipes and devices are refused with InputError before anything is read.
class InputFile {
 public:
  explicit InputFile(const std::string& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  std::uint64_t size() const { return size_; }
  // Fills `out` from `offset`. REQUIRES: offset + out.size() <= size(). InputError when the file has shrunk meanwhile.
  void read(std::uint64_t offset, std::span<std::byte> out) const;
  std::string text(std::uint64_t limit) const;  // all of it; InputError above `limit` bytes

 private:
  std::string path_;
  int descriptor_;
  std::uint64_t size_ = 0;
};

// Writes the parts one after another into a temporary file beside `path`, syncs it, renames it to `path` and syncs the
// folder. On failure the temporary file is removed and an old file is unchanged. InputError when the place cannot be
// written, Error when writing fails.
void write_file(const std::string& path, const std::vector<std::span<const std::byte>>& parts);
void write_file(const std::string& path, std::string_view text);

// Makes earlier renames and removals in `folder` last through a power failure.
void sync_folder(const std::string& folder);

}  // namespace whence
