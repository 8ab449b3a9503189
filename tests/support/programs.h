// Running the programs as a user does: started in a folder of their own, killed, waited for, and what they leave.
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>
#include "nn/io/checkpoint.h"
#include "tests/support/places.h"

namespace whence::test {

struct Outcome {
  int code;  // exit code, or 128 + signal
  std::string out, err;
};

inline std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// A command of whence that runs; its output goes to LOG.out and LOG.err.
class RunningProgram {
 public:
  RunningProgram(const std::string& command, const std::vector<std::string>& arguments, std::string log,
      const std::string& path = program_folder() + "/whence")
      : log_(std::move(log)) {
    child_ = fork();
    if (child_ != 0) return;
    dup2(open((log_ + ".out").c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0644), 1);
    dup2(open((log_ + ".err").c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0644), 2);
    const std::string word = command.substr(0, command.find(' '));
    std::vector<char*> argv{const_cast<char*>(path.c_str()), const_cast<char*>(word.c_str())};
    if (word != command) argv.push_back(const_cast<char*>(command.c_str() + word.size() + 1));  // "bench attention"
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    execv(path.c_str(), argv.data());
    _exit(127);
  }
  pid_t child() const { return child_; }
  void signal(int number) const { ::kill(child_, number); }
  // Who is not done in `seconds` is ended: code 128 + SIGKILL.
  Outcome finish_within(int seconds) const {
    for (int waited = 0; waited < 100 * seconds; ++waited) {
      siginfo_t info{};
      if (waitid(P_PID, static_cast<id_t>(child_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == child_)
        return finish();
      usleep(10000);
    }
    signal(SIGKILL);
    return finish();
  }
  Outcome finish() const {
    int status = 0;
    waitpid(child_, &status, 0);
    const Outcome outcome{WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), text_of(log_ + ".out"),
        text_of(log_ + ".err")};
    for (const char* kind : {".out", ".err"}) std::filesystem::remove(log_ + kind);
    return outcome;
  }

 private:
  std::string log_;
  pid_t child_;
};

// From its beginning to its end.
inline Outcome run(const std::string& command, const std::vector<std::string>& arguments, int seconds = 600) {
  static int number = 0;
  const std::string log = "whence-" + std::to_string(getpid()) + "-" + std::to_string(++number);
  return RunningProgram(command, arguments, std::filesystem::temp_directory_path() / log).finish_within(seconds);
}

using Arguments = std::vector<std::string>;
inline Arguments operator+(Arguments left, const Arguments& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

// A line cut at its blanks, but for those in parentheses and between single quotes.
inline Arguments words(const std::string& line) {
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

// The command of a line, such as "train flip_flop --out F"; `done`: it must end with 0.
inline Outcome ran(const std::string& line) {
  const Arguments all = words(line);
  return run(all.front(), {all.begin() + 1, all.end()});
}
inline Outcome done(const std::string& line) {
  Outcome outcome = ran(line);
  REQUIRE_MESSAGE(outcome.code == 0, line, ": ", outcome.err);
  return outcome;
}

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

struct Scratch {
  explicit Scratch(const std::string& name) : folder(std::filesystem::absolute("scratch-" + name)) {
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
  }
  ~Scratch() { std::filesystem::remove_all(folder); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::string operator/(const std::string& name) const { return (folder / name).string(); }

  std::filesystem::path folder;
};

// While alive, bit number `bit` of the file, counted from its first byte's lowest, is another.
class FlippedBit {
 public:
  FlippedBit(const std::string& path, std::size_t bit) : path_(path), bit_(bit) { flip(); }
  ~FlippedBit() { flip(); }
  FlippedBit(const FlippedBit&) = delete;
  FlippedBit& operator=(const FlippedBit&) = delete;

 private:
  void flip() const {
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(static_cast<std::streamoff>(bit_ / 8));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(bit_ / 8));
    file.put(static_cast<char>(byte ^ 1 << bit_ % 8));
  }
  std::string path_;
  std::size_t bit_;
};

inline const std::vector<std::string> small_grid{"flip_flop", "--schemes", "cope(p_max=8),rope", "--seeds", "2",
    "--jobs", "2", "--quiet", "--set",
    "length=8 dim=8 layers=1 heads=2 steps=60 batch=4 test-sequences=20 save-every=5"};

inline Outcome lab(std::vector<std::string> arguments, const std::string& folder) {
  arguments.push_back("--out");
  arguments.push_back(folder);
  return RunningProgram("lab", arguments, folder + "_log").finish();
}

// The folder of a run's newest whole checkpoint; empty: there is none.
inline std::string newest_checkpoint(const std::string& folder) {
  return find_latest(folder + "/checkpoints").value_or("");
}

inline std::string log_without_times(const std::string& folder) {
  return std::regex_replace(text_of(folder + "/metrics.jsonl"), std::regex("\"seconds\":[^,}]*"), "\"seconds\":-");
}

}  // namespace whence::test
