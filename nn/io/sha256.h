// SHA-256 (FIPS 180-4), the hash that `sha256sum` prints: identifies a text or a tokeniser.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
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
  std::array<std::uint32_t, 8> state_{
      0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::string rest_;  // less than a block
  std::uint64_t size_ = 0;
};

[[nodiscard]] std::string sha256(std::string_view bytes);
[[nodiscard]] bool is_sha256(std::string_view text);  // 64 digits of 0-9a-f

}  // namespace whence
