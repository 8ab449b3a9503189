#include "examples/whence/papers/commands.h"

#include <algorithm>

#include "examples/whence/cli/child.h"
#include "examples/whence/cli/interrupt.h"
#include "examples/whence/cli/progress.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/papers/runs.h"
#include "examples/whence/run/run_files.h"
#include "nn/io/files.h"
#include "tensor/error.h"

namespace whence::papers {
namespace {

namespace fs = std::filesystem;

// Words at blanks; what stands between single quotes is one.
std::vector<std::string> words_of(const std::string& command) {
  std::vector<std::string> words(1);
  bool quoted = false;
  for (const char c : command)
    if (c == '\'')
      quoted = !quoted;
    else if (c == ' ' && !quoted)
      words.emplace_back();
    else
      words.back() += c;
  return words;
}

// `text` with `word` in place of a folder's name.
std::string with(std::string text, const std::string& folder, const std::string& word) {
  for (std::size_t at = 0; !folder.empty() && (at = text.find(folder, at)) != std::string::npos; at += word.size())
    text.replace(at, folder.size(), word);
  return text;
}

// What a word stands for; nothing: itself.
std::string meaning(const std::string& word, const Places& places) {
  if (word == "RUN") return places.run.string();
  if (word == "TEXT") return places.text;
  if (word == "CODE") return places.code;
  return word.starts_with("OUT/") ? (places.out / word.substr(4)).string() : "";
}

}  // namespace

bool names(const std::string& command, const std::string& word) {
  return std::ranges::count(words_of(command), word) > 0;
}

Said run_command(const std::string& command, const Places& places) {
  std::vector<std::string> arguments{"/proc/self/exe"}, shown{"whence"};
  Said said;
  for (const std::string& word : words_of(command)) {
    const std::string file = meaning(word, places);
    arguments.push_back(file.empty() ? word : file);
    const bool of_the_user = word == "TEXT" || word == "CODE";
    shown.push_back(of_the_user ? fs::path(file).filename().string() : word);
    if (word.starts_with("OUT/") && word.ends_with(".svg")) said.figures.push_back(word.substr(4));
  }
  said.command = shell_command(shown);
  const std::string output = (places.out / "said.txt").string();
  const double started = steady_seconds();
  said.exit_code = wait_for_child(start_child(std::move(arguments), output, Errors::as_ours));
  if (interrupt_requested())
    throw Interrupted("stopped at: whence " + command + "; the same words run this table's commands again");
  said.seconds = steady_seconds() - started;
  said.output = with(with(read_file(output), places.out.string(), "OUT"), places.run.string(), "RUN");
  if (said.exit_code != 0) said.figures.clear();
  return said;
}

}  // namespace whence::papers
