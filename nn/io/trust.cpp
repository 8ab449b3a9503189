#include "nn/io/trust.h"

#include <algorithm>

#include "tensor/error.h"

namespace whence {

void refuse_damaged(const std::string& what, Trust* trust) {
  if (!trust || !trust->accept_damaged)
    throw FileError(what, "; restore it from a copy, or accept the damage (--accept-damaged)");
  trust->notes.push_back(what + "; it is used all the same");
}

std::string first_few(const std::vector<std::string>& texts, const char* separator) {
  constexpr std::size_t shown = 5;
  std::string list;
  for (std::size_t k = 0; k < std::min(texts.size(), shown); ++k) list += (list.empty() ? "" : separator) + texts[k];
  if (texts.size() > shown) list += to_text(separator, "and ", texts.size() - shown, " more");
  return list;
}

}  // namespace whence
