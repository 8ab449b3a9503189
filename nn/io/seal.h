// SHA-256 (FIPS 180-4), the hash that `sha256sum` prints, and seals: files that hold the hash of their own bytes, so
// that one changed bit anywhere in them is noticed.
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

namespace whence {

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
