#include "nn/io/trust.h"

#include <algorithm>
#include <span>

#include "tensor/suggest.h"

namespace whence {

void refuse_damaged(const std::string& what, Trust* trust) {
  if (!trust || !trust->accept_damaged)
    throw FileError(what, "; restore it from a copy, or accept the damage (--accept-damaged)");
  trust->notes.push_back(what + "; it is used all the same");
}

std::string first_few(const std::vector<std::string>& texts, const char* separator) {
  const std::size_t shown = std::min<std::size_t>(texts.size(), 5);
  const std::string list = joined(std::span(texts).first(shown), {}, separator);
  return texts.size() == shown ? list : to_text(list, separator, "and ", texts.size() - shown, " more");
}

}  // namespace whence
