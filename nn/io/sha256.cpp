#include "nn/io/sha256.h"

#include <algorithm>
#include <bit>

namespace whence {
namespace {

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr std::uint32_t constants[64] = {0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
    0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7,
    0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c,
    0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t sigma(std::uint32_t x, int a, int b, int c) {
  return std::rotr(x, a) ^ std::rotr(x, b) ^ std::rotr(x, c);
}

void add_block(std::array<std::uint32_t, 8>& state, const char* bytes) {
  std::uint32_t w[64];
  for (int t = 0; t < 16; ++t) {
    w[t] = 0;
    for (int k = 0; k < 4; ++k) w[t] = w[t] << 8 | static_cast<unsigned char>(bytes[4 * t + k]);
  }
  for (int t = 16; t < 64; ++t) {
    const std::uint32_t s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ w[t - 15] >> 3;
    const std::uint32_t s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ w[t - 2] >> 10;
    w[t] = w[t - 16] + s0 + w[t - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (int t = 0; t < 64; ++t) {
    const std::uint32_t t1 = h + sigma(e, 6, 11, 25) + ((e & f) ^ (~e & g)) + constants[t] + w[t];
    const std::uint32_t t2 = sigma(a, 2, 13, 22) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const std::uint32_t after[8] = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < 8; ++i) state[i] += after[i];
}

}  // namespace

void Sha256::add(std::string_view bytes) {
  size_ += bytes.size();
  if (!rest_.empty()) {
    const std::size_t taken = std::min(64 - rest_.size(), bytes.size());
    rest_.append(bytes.substr(0, taken));
    bytes.remove_prefix(taken);
    if (rest_.size() < 64) return;
    add_block(state_, rest_.data());
  }
  for (; bytes.size() >= 64; bytes.remove_prefix(64)) add_block(state_, bytes.data());
  rest_ = std::string(bytes);
}

// The message ends with a one, zeros, and its length in bits.
std::string Sha256::hexadecimal() const {
  Sha256 copy = *this;
  std::string end(1, static_cast<char>(0x80));
  end.resize(1 + (119 - rest_.size()) % 64, '\0');
  for (int k = 7; k >= 0; --k) end += static_cast<char>(size_ * 8 >> 8 * k & 0xFF);
  copy.add(end);
  std::string text;
  for (const std::uint32_t word : copy.state_)
    for (int k = 28; k >= 0; k -= 4) text += "0123456789abcdef"[word >> k & 15];
  return text;
}

std::string sha256(std::string_view bytes) {
  Sha256 hash;
  hash.add(bytes);
  return hash.hexadecimal();
}

bool is_sha256(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace whence
