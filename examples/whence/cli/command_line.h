// A command line: words that set options (fields.h), and the --help page that the same declarations give.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "examples/whence/cli/fields.h"

namespace whence {

class CommandLine : public Fields {
 public:
  // `words`: those after the program's name.
  CommandLine(std::string program, std::string purpose, std::vector<std::string> words = {})
      : Fields(std::move(program)), purpose_(std::move(purpose)), words_(std::move(words)) {}
  [[nodiscard]] const std::vector<std::string>& words() const { return words_; }

  // Reads the words into the variables. Returns a page to print before ending with 0 (--help, --version),
  // or nothing. A typed value replaces one that was set before.
  [[nodiscard]] std::optional<std::string> parse(const std::vector<std::string>& words);
  // Reads words(), and prints such a page: true if there was one.
  [[nodiscard]] bool shows_page();

  [[nodiscard]] std::string help(bool all = false) const;

 private:
  void take_names(const std::vector<std::string>& others);
  [[nodiscard]] static std::string describe(const Option& option);

  std::string purpose_;
  std::vector<std::string> words_;
};

}  // namespace whence
