// The commands of a table: what other parts of whence show of it, run with the user's files.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace whence::papers {

// What the words RUN, TEXT, CODE and OUT/NAME of a command stand for.
struct Places {
  std::filesystem::path run, out;  // folders
  std::string text, code;          // the user's files
};

// What a command of a table said.
struct Said {
  std::string command, output;
  int exit_code = 0;
  double seconds = 0;
  std::vector<std::string> figures = {};  // files that it drew, none where it failed
};

// The words behind `whence` with what they stand for in their places.
[[nodiscard]] std::vector<std::string> words_of(const std::string& command, const Places& places);

// Does the command have the word?
[[nodiscard]] bool names(const std::string& command, const std::string& word);

// Runs it; what it says on standard output goes to Places::out/said.txt meanwhile. Interrupted.
[[nodiscard]] Said run_command(const std::string& command, const Places& places);

}  // namespace whence::papers
