// Runs the programs as a user does: starts them in their own folder, kills them, waits for them, and reads their files.
#pragma once

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/has.h"

namespace whence::test {

const std::string& source_folder();
const std::string& program_folder();   // of the built programs
std::vector<std::string> documents();  // every *.md of the sources, from their folder

int count(const std::string& text, const std::string& part);  // how often a text has a part; of "\n": its lines
// Returns the matches of a regular expression: each the whole match, then its groups. ^ is the beginning of a line.
std::vector<std::vector<std::string>> all_matches(const std::string& text, const std::string& pattern);
std::string replaced(const std::string& text, const std::string& pattern, const std::string& by);

std::string text_of(const std::string& path);
std::vector<std::string> lines_of(const std::string& text);

using Arguments = std::vector<std::string>;
Arguments operator+(Arguments left, const Arguments& right);
Arguments words(const std::string& line);  // splits at blanks outside parentheses and single quotes

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

// A running program, whence by default. It is killed with this object, unless it was waited for.
class RunningProgram {
 public:
  explicit RunningProgram(const Arguments& arguments, const std::string& program = program_folder() + "/whence");
  explicit RunningProgram(const std::string& line) : RunningProgram(words(line)) {}
  ~RunningProgram();
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

  pid_t child() const { return child_; }
  void signal(int number) const;
  std::string out() const { return text_of("/proc/self/fd/" + std::to_string(out_)); }
  std::string err() const { return text_of("/proc/self/fd/" + std::to_string(err_)); }
  bool has_ended() const;
  Outcome finish_within(int seconds);  // then kills it: code 128 + SIGKILL
  Outcome finish() { return finish_within(600); }

 private:
  int out_, err_;
  pid_t child_ = 0;
};

Outcome run(const std::string& command, const Arguments& arguments);
Outcome ran(const std::string& line);                                  // "train flip_flop --out F"
Outcome done(const std::string& line);                                 // must end with 0
Outcome done(const std::string& command, const Arguments& arguments);  // too
Outcome shell(const std::string& script);

// The program with a GPU, perhaps an emulated one: the second program, or the only one.
std::string program_with_gpu();

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

// A folder that is the working folder during its lifetime, so that tests and programs name its files without a path.
struct Workplace {
  explicit Workplace(const std::string& name) : scratch(name) { std::filesystem::current_path(scratch.folder); }
  ~Workplace() { std::filesystem::current_path(before); }
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;

  std::filesystem::path before = std::filesystem::current_path();
  Scratch scratch;
};

// Flips bit number `bit` of the file, counted from its first byte's lowest, during its lifetime.
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

std::string newest_checkpoint(const std::string& folder);  // the newest whole checkpoint of a run, or empty
std::string log_without_times(const std::string& folder);

}  // namespace whence::test
