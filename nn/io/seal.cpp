#include "nn/io/seal.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "nn/io/files.h"

namespace whence {
namespace {

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
std::array<std::uint32_t, 64> sha256_constants() {
  std::array<std::uint32_t, 64> found{};
  for (int prime = 2, k = 0; k < 64; ++prime) {
    bool divides = false;
    for (int by = 2; by * by <= prime; ++by) divides = divides || prime % by == 0;
    const double root = std::cbrt(prime);
    if (!divides) found[static_cast<std::size_t>(k++)] = static_cast<std::uint32_t>((root - std::floor(root)) * 0x1p32);
  }
  return found;
}

std::uint32_t sigma(std::uint32_t x, int a, int b, int c) {
  return std::rotr(x, a) ^ std::rotr(x, b) ^ std::rotr(x, c);
}

}  // namespace

void Sha256::add_block(const char* bytes) {
  static const std::array<std::uint32_t, 64> constants = sha256_constants();
  std::uint32_t w[64] = {};
  for (int t = 0; t < 64; ++t) w[t / 4] = w[t / 4] << 8 | static_cast<unsigned char>(bytes[t]);
  for (int t = 16; t < 64; ++t) {
    const std::uint32_t s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ w[t - 15] >> 3;
    const std::uint32_t s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ w[t - 2] >> 10;
    w[t] = w[t - 16] + s0 + w[t - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (std::size_t t = 0; t < 64; ++t) {
    const std::uint32_t t1 = h + sigma(e, 6, 11, 25) + ((e & f) ^ (~e & g)) + constants[t] + w[t];
    const std::uint32_t t2 = sigma(a, 2, 13, 22) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const std::uint32_t after[8] = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < 8; ++i) state_[i] += after[i];
}

void Sha256::add(std::string_view bytes) {
  size_ += bytes.size();
  if (!rest_.empty()) {
    const std::size_t taken = std::min(64 - rest_.size(), bytes.size());
    rest_.append(bytes.substr(0, taken));
    bytes.remove_prefix(taken);
    if (rest_.size() < 64) return;
    add_block(rest_.data());
  }
  for (; bytes.size() >= 64; bytes.remove_prefix(64)) add_block(bytes.data());
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

Sha256 hash_around_seal(std::string text, const std::string& seal) {
  if (const std::size_t at = text.find(seal); at != text.npos) text.replace(at, seal.size(), 64, '0');
  Sha256 hash;
  hash.add(text);
  return hash;
}

void say_of_file(const std::string& note) {
  if (on_damage.say) on_damage.say(note);
}

void refuse_damaged(const std::string& what) {
  if (!on_damage.accept) throw FileError(what, "; restore it from a copy, or accept the damage (--accept-damaged)");
  say_of_file(what + "; it is used all the same");
}

}  // namespace whence
