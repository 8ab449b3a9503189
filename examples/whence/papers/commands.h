// The commands of a table: what other parts of whence show of it, run with the user's files.
#pragma once

#include <filesystem>
#include <string>

#include "examples/whence/papers/record.h"

namespace whence::papers {

// What the words RUN, TEXT, CODE and OUT/NAME of a command stand for.
struct Places {
  std::filesystem::path run, out;  // folders
  std::string text, code;          // the user's files
};

// Does the command have the word?
[[nodiscard]] bool names(const std::string& command, const std::string& word);

// The words behind `whence`, as paper_table.h has them; what it says on standard output is kept in Places::out
// meanwhile. In what is said, folders have the names of their words again, and the user's files none of their folders.
// Interrupted.
[[nodiscard]] Said run_command(const std::string& command, const Places& places);

}  // namespace whence::papers
