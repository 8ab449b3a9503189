#include "nn/io/sha256.h"

#include <algorithm>
#include <bit>
#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

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

using State = std::array<std::uint32_t, 8>;

void add_block(State& state, const char* bytes) {
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

void add_plainly(State& state, const char* bytes, std::size_t blocks) {
  for (; blocks > 0; --blocks, bytes += 64) add_block(state, bytes);
}

#ifdef __x86_64__
// The instructions keep a to h as two vectors, (a b e f) and (c d g h), and do two rounds at a time.
__attribute__((target("sha,sse4.1"))) void add_by_instructions(State& state, const char* bytes, std::size_t blocks) {
  auto* const memory = reinterpret_cast<__m128i*>(state.data());
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  const __m128i cdab = _mm_shuffle_epi32(_mm_loadu_si128(memory), 0xB1);
  const __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128(memory + 1), 0x1B);
  __m128i abef = _mm_alignr_epi8(cdab, efgh, 8), cdgh = _mm_blend_epi16(efgh, cdab, 0xF0);
  for (; blocks > 0; --blocks, bytes += 64) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];  // the last 16 words of the schedule
#pragma GCC unroll 16
    for (int t = 0; t < 16; ++t) {
      __m128i& now = w[t % 4];
      const __m128i &last = w[(t + 3) % 4], &before_last = w[(t + 2) % 4];
      if (t < 4) {
        now = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes) + t), big_endian);
      } else {
        const __m128i sums =
            _mm_add_epi32(_mm_sha256msg1_epu32(now, w[(t + 1) % 4]), _mm_alignr_epi8(last, before_last, 4));
        now = _mm_sha256msg2_epu32(sums, last);
      }
      const __m128i keyed = _mm_add_epi32(now, _mm_loadu_si128(reinterpret_cast<const __m128i*>(constants) + t));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, keyed);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(keyed, 0x0E));
    }
    abef = _mm_add_epi32(abef, abef_before), cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1B), dchg = _mm_shuffle_epi32(cdgh, 0xB1);
  _mm_storeu_si128(memory, _mm_blend_epi16(feba, dchg, 0xF0));
  _mm_storeu_si128(memory + 1, _mm_alignr_epi8(dchg, feba, 8));
}

bool has_instructions() {
  static const bool has = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & bit_SHA) != 0 && __builtin_cpu_supports("sse4.1");
  }();
  return has;
}
#endif

}  // namespace

Sha256::Sha256([[maybe_unused]] Way way) : add_blocks_(add_plainly) {
#ifdef __x86_64__
  if (way == Way::best && has_instructions()) add_blocks_ = add_by_instructions;
#endif
}

void Sha256::add(std::string_view bytes) {
  size_ += bytes.size();
  if (!rest_.empty()) {
    const std::size_t taken = std::min(64 - rest_.size(), bytes.size());
    rest_.append(bytes.substr(0, taken));
    bytes.remove_prefix(taken);
    if (rest_.size() < 64) return;
    add_blocks_(state_, rest_.data(), 1);
  }
  const std::size_t blocks = bytes.size() / 64;
  add_blocks_(state_, bytes.data(), blocks);
  rest_ = std::string(bytes.substr(64 * blocks));
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
