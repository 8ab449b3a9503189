#include "examples/app/json_text.h"

#include "tensor/error.h"

namespace whence {

void refuse_strange_json(std::string_view text, const std::string& place) {
  constexpr int deepest = 64;
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos)
    throw FileError(place, ": byte ", nul, ": NUL given; JSON, which has none, required");
  int depth = 0;
  bool quoted = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') quoted = !quoted;
    if (quoted && c == '\\') ++at;
    if (quoted) continue;
    depth += (c == '[' || c == '{') - (c == ']' || c == '}');
    if (depth > deepest)
      throw FileError(
          place, ": byte ", at, ": JSON nested more than ", deepest, " deep given; at most ", deepest, " required");
  }
}

}  // namespace whence
