#include "cuda/emulator/settings.h"

#include <cctype>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "tensor/error.h"

namespace whence::gpu::emulator {
namespace {

// K, M or G may follow bytes.
std::size_t number_given(const char* variable, std::size_t otherwise) {
  const char* const text = std::getenv(variable);
  if (!text) return otherwise;
  const std::string_view all(text), units("KMG");
  std::size_t value = 0;
  const auto [rest, error] = std::from_chars(all.begin(), all.end(), value);
  if (error == std::errc{} && rest == all.end()) return value;
  const auto unit = units.find(static_cast<char>(std::toupper(static_cast<unsigned char>(*rest))));
  if (error != std::errc{} || rest + 1 != all.end() || unit == units.npos)
    throw InputError(variable, ": '", text, "' given; a number is required, as in 1, 99K or 8G");
  return value << (10 * (unit + 1));
}
bool asked(const char* variable) { return number_given(variable, 0) != 0; }

}  // namespace

Settings& settings() {
  static Settings chosen{number_given("WHENCE_EMULATOR_ORDER", 0),
      number_given("WHENCE_EMULATOR_MEMORY", std::size_t{8} << 30), number_given("WHENCE_EMULATOR_SHARED", 163 * 1024),
      asked("WHENCE_EMULATOR_COUNTS"), asked("WHENCE_EMULATOR_DRY"), asked("WHENCE_EMULATOR_CUT"),
      asked("WHENCE_EMULATOR_TILES_IN_F64")};
  return chosen;
}

}  // namespace whence::gpu::emulator
