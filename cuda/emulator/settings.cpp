#include "cuda/emulator/settings.h"

#include <cctype>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "tensor/error.h"

namespace whence::gpu::emulator {
namespace {

constexpr std::size_t default_memory = std::size_t{8} << 30;
constexpr std::size_t least_shared = 48 * 1024, default_shared = 163 * 1024, most_shared = 227 * 1024;

std::uint64_t number(const char* variable, const char* text, const char** rest) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), value);
  if (error != std::errc{}) throw InputError(variable, ": '", text, "' given; a number is required, as in 512");
  *rest = end;
  return value;
}

std::uint64_t seed_given(const char* variable, const char* required) {
  const char *text = std::getenv(variable), *rest = nullptr;
  if (!text) return 0;
  const std::uint64_t seed = number(variable, text, &rest);
  if (*rest) throw InputError(variable, ": '", text, "' given; ", required, " is required");
  return seed;
}

std::size_t bytes_given(const char* variable, std::size_t otherwise, const char* examples) {
  const char *text = std::getenv(variable), *rest = nullptr;
  if (!text) return otherwise;
  const std::size_t count = number(variable, text, &rest);
  for (std::size_t k = 0; k < 3; ++k)
    if (std::toupper(static_cast<unsigned char>(*rest)) == "KMG"[k] && !rest[1]) return count << (10 * (k + 1));
  if (*rest) throw InputError(variable, ": '", text, "' given; bytes are required, as in ", examples);
  return count;
}

bool asked(const char* variable) {
  const char* const text = std::getenv(variable);
  return text && *text && std::strcmp(text, "0") != 0;
}

std::size_t shared_given() {
  const std::size_t bytes = bytes_given("WHENCE_EMULATOR_SHARED", default_shared, "99K or 227K");
  if (bytes < least_shared || bytes > most_shared)
    throw InputError(
        "WHENCE_EMULATOR_SHARED: ", bytes, " bytes given; ", least_shared, " to ", most_shared, " required");
  return bytes;
}

}  // namespace

Settings& settings() {
  static Settings chosen{seed_given("WHENCE_EMULATOR_ORDER", "0 (ascending), 1 (descending) or a seed"),
      bytes_given("WHENCE_EMULATOR_MEMORY", default_memory, "512M or 8G"), shared_given(),
      asked("WHENCE_EMULATOR_COUNTS"), seed_given("WHENCE_EMULATOR_LATE", "0 (at once) or a seed"),
      seed_given("WHENCE_EMULATOR_REFUSALS", "0 (none) or a seed"), asked("WHENCE_EMULATOR_DRY"),
      asked("WHENCE_EMULATOR_CUT"), asked("WHENCE_EMULATOR_TILES_IN_F64")};
  return chosen;
}

}  // namespace whence::gpu::emulator
