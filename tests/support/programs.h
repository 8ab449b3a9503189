// Running the programs as a user does: started in a folder of their own, killed, waited for, and what they leave.
#pragma once

#include <doctest/doctest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
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

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// How often a text has a part; of "\n": its lines.
inline int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

inline std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
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

// Whether it comes true in that time.
template <class Condition> bool soon(const Condition& condition, int seconds = 60) {
  for (int waited = 0; waited < 1000 * seconds; ++waited) {
    if (condition()) return true;
    usleep(1000);
  }
  return condition();
}

struct Outcome {
  int code;  // exit code, or 128 + signal
  std::string out, err;
};

// A program that runs, whence where no other is named. It dies with this object, unless it was waited for.
class RunningProgram {
 public:
  explicit RunningProgram(const Arguments& arguments, const std::string& program = program_folder() + "/whence") {
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
  explicit RunningProgram(const std::string& line) : RunningProgram(words(line)) {}
  ~RunningProgram() {
    signal(SIGKILL);
    if (child_ > 0) waitpid(child_, nullptr, 0);
    close(out_), close(err_);
  }
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

  pid_t child() const { return child_; }
  void signal(int number) const {
    if (child_ > 0) ::kill(child_, number);
  }
  // The processes that it began and that live.
  std::vector<pid_t> children() const {
    std::vector<pid_t> all;
    std::error_code gone;
    const std::string threads = "/proc/" + std::to_string(child_) + "/task";
    for (const auto& thread : std::filesystem::directory_iterator(threads, gone)) {
      std::istringstream of_thread(text_of(thread.path() / "children"));
      for (pid_t child = 0; of_thread >> child;) all.push_back(child);
    }
    return all;
  }
  std::string out() const { return text_of("/proc/self/fd/" + std::to_string(out_)); }
  std::string err() const { return text_of("/proc/self/fd/" + std::to_string(err_)); }
  bool has_ended() const {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(child_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == child_;
  }
  // Who is not done in `seconds` is ended: code 128 + SIGKILL.
  Outcome finish_within(int seconds) {
    if (!soon([this] { return has_ended(); }, seconds)) signal(SIGKILL);
    int status = 0;
    waitpid(child_, &status, 0);
    child_ = 0;
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), out(), err()};
  }
  Outcome finish() { return finish_within(600); }

 private:
  int out_ = memfd_create("out", MFD_CLOEXEC), err_ = memfd_create("err", MFD_CLOEXEC);
  pid_t child_ = 0;
};

// From its beginning to its end.
inline Outcome run(const std::string& command, const Arguments& arguments) {
  return RunningProgram(words(command) + arguments).finish();
}
inline Outcome ran(const std::string& line) { return RunningProgram(line).finish(); }  // "train flip_flop --out F"
inline Outcome done(const std::string& line) {                                         // and went well
  Outcome outcome = ran(line);
  REQUIRE_MESSAGE(outcome.code == 0, line, ": ", outcome.err);
  return outcome;
}
inline Outcome shell(const std::string& script) { return RunningProgram({"-c", script}, "/bin/bash").finish(); }

// The program that has a GPU, if only an emulated one: the second, or the only one.
inline std::string program_with_gpu() {
  const std::string second = program_folder() + "/whence_emulated";
  return std::filesystem::exists(second) ? second : program_folder() + "/whence";
}

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

// A folder that is the working one while alive, so that tests and programs name its files as they are.
struct Workplace {
  explicit Workplace(const std::string& name) : scratch(name) { std::filesystem::current_path(scratch.folder); }
  ~Workplace() { std::filesystem::current_path(before); }
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;

  std::filesystem::path before = std::filesystem::current_path();
  Scratch scratch;
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

inline Outcome lab(const Arguments& arguments, const std::string& folder) {
  return run("lab", arguments + Arguments{"--out", folder});
}

// The folder of a run's newest whole checkpoint; empty: there is none.
inline std::string newest_checkpoint(const std::string& folder) {
  return find_latest(folder + "/checkpoints").value_or("");
}

inline std::string log_without_times(const std::string& folder) {
  return std::regex_replace(text_of(folder + "/metrics.jsonl"), std::regex("\"seconds\":[^,}]*"), "\"seconds\":-");
}

}  // namespace whence::test
