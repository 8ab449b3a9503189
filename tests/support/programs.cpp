#include "tests/support/programs.h"

#include <spawn.h>
#include <sys/mman.h>
#include <regex>
#include "nn/io/checkpoint.h"
#include "tests/support/json.h"

template class nlohmann::detail::serializer<nlohmann::json>;

namespace fs = std::filesystem;

namespace whence::test {

const std::string& source_folder() {
  static const std::string folder = WHENCE_SOURCE_DIR;
  return folder;
}

const std::string& program_folder() {
  static const std::string folder = WHENCE_PROGRAM_DIR;
  return folder;
}

std::vector<std::string> documents() {
  std::vector<std::string> found;
  for (auto entry = fs::recursive_directory_iterator(source_folder()); entry != fs::end(entry); ++entry) {
    const std::string name = entry->path().filename();
    if (name == "build" || name == "runs" || name == ".git") entry.disable_recursion_pending();
    if (name.ends_with(".md")) found.push_back(fs::relative(entry->path(), source_folder()));
  }
  return found;
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

std::vector<std::vector<std::string>> all_matches(const std::string& text, const std::string& pattern) {
  const std::regex wanted(pattern, std::regex::multiline);
  std::vector<std::vector<std::string>> all;
  for (std::sregex_iterator found(text.begin(), text.end(), wanted), end; found != end; ++found)
    all.emplace_back(found->begin(), found->end());
  return all;
}

std::string replaced(const std::string& text, const std::string& pattern, const std::string& by) {
  return std::regex_replace(text, std::regex(pattern, std::regex::multiline), by);
}

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

nlohmann::json json_of(const std::string& text) { return nlohmann::json::parse(text); }

std::vector<nlohmann::json> json_lines(const std::string& text) {
  std::vector<nlohmann::json> read;
  for (const std::string& line : lines_of(text)) read.push_back(json_of(line));
  return read;
}

Arguments operator+(Arguments left, const Arguments& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

Arguments words(const std::string& line) {
  Arguments found;
  bool quoted = false, inside = false;
  int depth = 0;
  for (const char c : line) {
    if (c == '\'') quoted = !quoted;
    if (!quoted) depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    const bool blank = c == ' ' && !quoted && depth == 0;
    if (!blank && !inside) found.emplace_back();
    if (!blank && c != '\'') found.back() += c;
    inside = !blank;
  }
  return found;
}

RunningProgram::RunningProgram(const Arguments& arguments, const std::string& program)
    : out_(memfd_create("out", MFD_CLOEXEC)), err_(memfd_create("err", MFD_CLOEXEC)) {
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, out_, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, err_, STDERR_FILENO);
  REQUIRE(posix_spawn(&child_, program.c_str(), &files, nullptr, argv.data(), environ) == 0);
  posix_spawn_file_actions_destroy(&files);
}

RunningProgram::~RunningProgram() {
  signal(SIGKILL);
  if (child_ > 0) waitpid(child_, nullptr, 0);
  close(out_), close(err_);
}

void RunningProgram::signal(int number) const {
  if (child_ > 0) ::kill(child_, number);
}

bool RunningProgram::has_ended() const {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(child_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == child_;
}

Outcome RunningProgram::finish_within(int seconds) {
  if (!soon([this] { return has_ended(); }, seconds)) signal(SIGKILL);
  int status = 0;
  waitpid(child_, &status, 0);
  child_ = 0;
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), out(), err()};
}

Outcome run(const std::string& command, const Arguments& arguments) {
  return RunningProgram(words(command) + arguments).finish();
}
Outcome ran(const std::string& line) { return RunningProgram(line).finish(); }
Outcome done(const std::string& command, const Arguments& arguments) {
  Outcome outcome = run(command, arguments);
  REQUIRE_MESSAGE(outcome.code == 0, command, ": ", outcome.err);
  return outcome;
}
Outcome done(const std::string& line) { return done(line, {}); }
Outcome shell(const std::string& script) { return RunningProgram({"-c", script}, "/bin/bash").finish(); }

std::string program_with_gpu() {
  const std::string second = program_folder() + "/whence_emulated";
  return fs::exists(second) ? second : program_folder() + "/whence";
}

std::string newest_checkpoint(const std::string& folder) { return find_latest(folder + "/checkpoints").value_or(""); }

std::string log_without_times(const std::string& folder) {
  return replaced(text_of(folder + "/metrics.jsonl"), "\"seconds\":[^,}]*", "\"seconds\":-");
}

}  // namespace whence::test
