// Refused command lines: properties of each, and the folder in which they run.
#pragma once

#include <algorithm>
#include <map>

#include "nn/io/files.h"
#include "tests/support/programs.h"

namespace whence::test {

// Returns every name in the working folder with the content of regular files, without locks, which a command may leave.
inline std::map<std::string, std::string> all_files() {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(".")) {
    const std::string name = entry.path();
    if (!name.ends_with("lock")) files[name] = entry.is_regular_file() ? text_of(name) : "";
  }
  return files;
}

// A command line, its exit code, and a part of its error line: the name and the value that it refuses.
struct Refusal {
  std::string line;
  int code;
  std::string says;
};

// Checks a refusal: in one line, without results, and with no file made or changed. Lines such as "memory: ..." may come
// before. Returns the error line.
inline std::string check_refused(const Refusal& row) {
  CAPTURE(row.line);
  const std::string stated =
      "^(memory|tests|ranks|sizes|model|device|training|validation|test|tokeniser|note|warning): [^\n]*\n";
  const auto before = all_files();
  const Outcome outcome = ran(row.line);
  const std::string error = replaced(outcome.err, stated, "");
  CHECK(outcome.code == row.code);
  CHECK_MESSAGE((error.starts_with("whence") && has(error, row.says)), outcome.err);
  CHECK_MESSAGE(std::ranges::count(error, '\n') == 1, outcome.err);
  CHECK_MESSAGE(replaced(outcome.out, stated, "").empty(), outcome.out);
  std::vector<std::pair<std::string, std::string>> changed;
  std::ranges::set_symmetric_difference(before, all_files(), std::back_inserter(changed));
  CHECK_MESSAGE(changed.empty(), (changed.empty() ? "" : changed[0].first));
  return error;
}

}  // namespace whence::test
