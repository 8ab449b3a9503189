// How much is believed of files that carry checksums, and what is to be said about it. Nothing in nn prints.
#pragma once

#include <string>
#include <vector>

namespace whence {

struct Trust {
  bool accept_damaged = false;          // bytes whose SHA-256 is wrong are taken all the same, with a note
  std::vector<std::string> notes = {};  // "FILE: what is to be known of it", a line each, for people; added to
};

// Unless the hashes are the same: FileError with the file's name and both, or a note of the same text if `trust`
// accepts that. `source`: who says what is wanted.
void require_sha256(
    const std::string& path, const std::string& found, const std::string& wanted, const char* source, Trust* trust);

// The first five, and how many more there are.
std::string first_few(const std::vector<std::string>& texts, const char* separator);

}  // namespace whence
