// Whole files: a kill at any instant leaves the old file or the new one, never half of one. And sealed files, which hold
// the hash of their own bytes, so that one changed bit anywhere in them is noticed.
//
// A seal is the SHA-256 of the file, with the 64 digits of the seal itself replaced by zeros. Each safetensors file that
// we write has one in its metadata whence.seal, each run.json in its field "seal". In Python:
//   bytes = open(file, "rb").read()
//   sha256(bytes.replace(seal.encode(), b"0" * 64, 1)).hexdigest() == seal
// A checkpoint's files are damaged without their seals, a file of another program is not. A checkpoint's weights name the
// seal of their moments, a run.json the hash of its tokeniser.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
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

// ---- Seals.

// SHA-256 (FIPS 180-4), the hash that `sha256sum` prints.
class Sha256 {
 public:
  void add(std::string_view bytes);
  void add(std::span<const std::byte> bytes) {
    add(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  [[nodiscard]] std::string hexadecimal() const;  // hash of all bytes added so far

 private:
  void add_block(const char* bytes);

  std::array<std::uint32_t, 8> state_{
      0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::string rest_;  // less than a block
  std::uint64_t size_ = 0;
};

[[nodiscard]] std::string sha256(std::string_view bytes);

// Returns the hash of a text that holds this seal, as far as the seal counts: with zeros in its place.
[[nodiscard]] Sha256 hash_around_seal(std::string text, const std::string& seal);

// The program's answer to damaged files, set before it reads them. Nothing in nn prints.
struct OnDamage {
  bool accept = false;                                    // a note in place of an error
  std::function<void(const std::string& note)> say = {};  // "FILE: note", for people
};
inline OnDamage on_damage;
void say_of_file(const std::string& note);

// Throws FileError with the text `what`, "FILE: is damaged: why", or says it if damage is accepted.
void refuse_damaged(const std::string& what);

}  // namespace whence
