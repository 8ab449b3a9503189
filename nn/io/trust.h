// How much is believed of files that carry checksums, and what is to be said about it. Nothing in nn prints.
#pragma once

#include <string>
#include <vector>

namespace whence {

struct Trust {
  bool accept_damaged = false;          // files that their seals do not prove are taken all the same, with a note
  std::vector<std::string> notes = {};  // "FILE: what is to be known of it", a line each, for people; added to
};

// `what`: "FILE: is damaged: why". FileError of that text, or a note of it if `trust` accepts damage.
void refuse_damaged(const std::string& what, Trust* trust);

// The first five, and how many more there are.
std::string first_few(const std::vector<std::string>& texts, const char* separator);

}  // namespace whence
