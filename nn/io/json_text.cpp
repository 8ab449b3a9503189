#include "nn/io/json_text.h"

#include "tensor/error.h"

namespace whence {

void require_json_text(const std::string& place, std::string_view text) {
  constexpr int deepest = 64;
  if (const std::size_t at = text.find('\0'); at != std::string_view::npos)
    throw FileError(place, ": holds a NUL at byte ", at, "; JSON text required; is the file damaged?");
  int depth = 0;
  bool in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string && c == '\\')
      ++at;
    else if (c == '"')
      in_string = !in_string;
    else if (!in_string && (c == ']' || c == '}'))
      --depth;
    else if (!in_string && (c == '[' || c == '{') && ++depth > deepest)
      throw FileError(place, ": nests deeper at byte ", at, "; JSON of at most ", deepest, " levels required");
  }
}

}  // namespace whence
