#include "examples/whence/papers/commands.h"

#include <algorithm>
#include <map>

#include "examples/whence/cli/child.h"
#include "examples/whence/cli/interrupt.h"
#include "examples/whence/cli/progress.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/cli/words.h"
#include "examples/whence/run/run_files.h"
#include "nn/io/files.h"
#include "tensor/error.h"

namespace whence::papers {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> split(const std::string& command) {
  std::vector<std::string> words;
  for (const Word& word : whence::words_of(command, command))
    words.push_back(word.name.empty() ? word.value : word.name + "=" + word.value);
  return words;
}

}  // namespace

std::vector<std::string> words_of(const std::string& command, const Places& places) {
  std::vector<std::string> words = split(command);
  for (std::string& word : words) {
    const std::map<std::string, std::string> meanings{
        {"RUN", places.run.string()}, {"TEXT", places.text}, {"CODE", places.code}};
    if (const auto found = meanings.find(word); found != meanings.end()) word = found->second;
    if (word.starts_with("OUT/")) word = (places.out / word.substr(4)).string();
  }
  return words;
}

bool names(const std::string& command, const std::string& word) { return std::ranges::count(split(command), word) > 0; }

Said run_command(const std::string& command, const Places& places) {
  std::vector<std::string> words = words_of(command, places);
  Said said{.command = "whence " + shell_command(words), .output = {}};
  for (const std::string& word : split(command))
    if (word.starts_with("OUT/") && word.ends_with(".svg")) said.figures.push_back(word.substr(4));
  words.insert(words.begin(), "/proc/self/exe");
  const std::string output = (places.out / "said.txt").string();
  const double started = steady_seconds();
  said.exit_code = wait_for_child(start_child(std::move(words), output, Errors::as_ours));
  if (interrupt_requested())
    throw Interrupted("stopped at: " + said.command + "; the same words run this table's commands again");
  said.seconds = steady_seconds() - started;
  said.output = read_file(output);
  if (said.exit_code != 0) said.figures.clear();
  return said;
}

}  // namespace whence::papers
