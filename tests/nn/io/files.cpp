// Files: errors of the system are reported and leave the old file; only our own files are written; hashes.
#include "nn/io/files.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "examples/whence/cli/json_lines.h"
#include "examples/whence/run/run_files.h"
#include "nn/io/safetensors.h"
#include "tests/support/programs.h"
#include "tests/support/tensors.h"

namespace {

// The call that must fail, for this thread, with this error: the n-th next call of that name. 0: none.
struct Fault {
  const char* call = "";
  int countdown = 0, error = 0;
};
thread_local constinit Fault fault;
thread_local std::string renamed_last;  // old name of this thread's last rename

bool fails(const char* call) {
  if (fault.countdown == 0 || std::strcmp(fault.call, call) != 0 || --fault.countdown > 0) return false;
  errno = fault.error;
  return true;
}

}  // namespace

// Replacements of the C library's functions for our own objects (--wrap of the linker, tests/CMakeLists.txt). Other code
// keeps the originals.
extern "C" {
ssize_t __real_write(int descriptor, const void* bytes, std::size_t size);
int __real_fsync(int descriptor);
int __real_rename(const char* from, const char* to);
int __real_close(int descriptor);

ssize_t __wrap_write(int descriptor, const void* bytes, std::size_t size);
int __wrap_fsync(int descriptor);
int __wrap_rename(const char* from, const char* to);
int __wrap_close(int descriptor);

ssize_t __wrap_write(int descriptor, const void* bytes, std::size_t size) {
  return fails("write") ? -1 : __real_write(descriptor, bytes, size);
}
int __wrap_fsync(int descriptor) { return fails("fsync") ? -1 : __real_fsync(descriptor); }
int __wrap_rename(const char* from, const char* to) {
  renamed_last = from;
  return fails("rename") ? -1 : __real_rename(from, to);
}
int __wrap_close(int descriptor) {
  const int closed = __real_close(descriptor);
  return fails("close") ? -1 : closed;
}
}

using namespace whence;
using namespace whence::test;

namespace {

namespace fs = std::filesystem;

std::size_t entries(const Scratch& scratch) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(scratch.folder), fs::directory_iterator()));
}

}  // namespace

TEST_CASE("what the system refuses names the file and the reason, leaves the old file and no temporary one") {
  const Scratch scratch("refused");
  const std::string path = scratch / "file";
  const Tensor numbers = Tensor::ones({3});
  const std::pair<const char*, std::function<void()>> writers[] = {
      {"text", [&] { write_file(path, "new"); }}, {"tensors", [&] {
                                                     write_safetensors(path, {{{"x", numbers}}});
                                                   }}};
  for (const auto& writer : writers) {
    for (const Fault wanted :
        {Fault{"write", 1, ENOSPC}, Fault{"write", 1, EIO}, Fault{"fsync", 1, EIO}, Fault{"fsync", 1, ENOSPC},
            Fault{"close", 1, EIO}, Fault{"close", 1, ENOSPC}, Fault{"rename", 1, EIO}, Fault{"rename", 1, ENOSPC}}) {
      INFO(writer.first, ", call ", wanted.call);
      write_file(path, "old");
      fault = wanted;
      const std::string message = error_text<SystemError>(writer.second);
      CHECK(fault.countdown == 0);
      fault = {};
      CHECK(message.starts_with(path + ": cannot "));
      CHECK(message.ends_with(std::strerror(wanted.error)));
      CHECK(read_file(path) == "old");
      CHECK(entries(scratch) == 1);
    }
  }
  fault = {"write", 1, EINTR};
  write_file(path, "whole");
  CHECK(read_file(path) == "whole");
  fault = {"fsync", 2, EIO};  // fsync of the folder: the new file exists
  CHECK(error_text<SystemError>(writers[0].second).find("cannot sync") != std::string::npos);
  CHECK(read_file(path) == "new");
}

TEST_CASE("a file has its new content or its old, never a part; what is no file is neither written nor read") {
  const Scratch scratch("whole");
  const std::string path = scratch / "file", taken = scratch / "taken", absent = scratch / "absent/file";
  for (const std::string& bytes : {std::string("old"), std::string("a\0b\r\n", 5), std::string()}) {
    write_file(path, bytes);
    CHECK(read_file(path) == bytes);
  }
  {  // a disk that takes only the beginning; the signal of the limit would end this program
    const auto signal_before = std::signal(SIGXFSZ, SIG_IGN);
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    const rlimit limit{4096, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
    const std::string message = error_text<SystemError>([&] { write_file(path, std::string(10000, 'x')); });
    setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, signal_before);
    CHECK((message.starts_with(path) && has(message, "too large")));
  }
  CHECK(read_file(path).empty());
  fs::create_directory(taken);
  for (const std::string& wrong : {taken, absent}) {
    const std::string message = error_text<InputError>([&] { write_file(wrong, "x"); });
    CHECK_MESSAGE(message.starts_with(wrong + ": cannot write: "), message);
  }
  CHECK(entries(scratch) == 2);
  CHECK_THROWS_WITH_AS((void)read_file(absent), doctest::Contains("cannot read:"), InputError);
  CHECK_THROWS_WITH_AS((void)read_file(scratch.folder), doctest::Contains("regular file"), InputError);
}

TEST_CASE("a log is written to a file of ours alone: no link is followed, no pipe waited for") {
  const Scratch scratch("log");
  const fs::path log = scratch / "metrics.jsonl";
  write_file(scratch / "precious", "precious");
  const auto refused = [&](const char* reason) {
    for (const JsonLog::Mode mode : {JsonLog::Mode::fresh, JsonLog::Mode::append}) {
      const std::string message = error_text<SystemError>([&] {
        JsonLog(log, mode).append({{"step", std::int64_t{1}}});
      });
      CAPTURE(message);
      CHECK(message.find(log.string() + ": cannot write: ") == 0);
      CHECK(has(message, reason));
    }
    fs::remove(log);
  };
  REQUIRE(mkfifo(log.c_str(), 0600) == 0);
  refused("not a regular file");
  REQUIRE(mkfifo(log.c_str(), 0600) == 0);
  const int reader = ::open(log.c_str(), O_RDONLY | O_NONBLOCK);
  refused("not a regular file");
  ::close(reader);
  fs::create_symlink(scratch / "precious", log);
  refused("not a regular file");
  fs::create_hard_link(scratch / "precious", log);
  refused("with one name");
  fs::create_directory(log);
  refused("Is a directory");
  fs::remove(log);
  CHECK(read_file(scratch / "precious") == "precious");
}

TEST_CASE("a temporary name that is taken is not written through") {
  const Scratch scratch("taken");
  write_file(scratch / "precious", "precious");
  const auto next_name = [] {
    const std::size_t dash = renamed_last.rfind('-') + 1;
    return renamed_last.substr(0, dash) + std::to_string(std::stoul(renamed_last.substr(dash)) + 1);
  };
  write_file(scratch / "file", "old");
  fs::create_hard_link(scratch / "precious", next_name());
  write_file(scratch / "file", "new");
  fs::create_symlink(scratch / "precious", next_name());
  write_file(scratch / "file", "newer");
  CHECK(read_file(scratch / "precious") == "precious");
  CHECK(read_file(scratch / "file") == "newer");
}

TEST_CASE("threads that write one file leave the whole of what one of them wrote, and nothing else") {
  const Scratch scratch("threads");
  const std::string path = scratch / "file";
  std::atomic<int> failed = 0;
  const auto write_often = [&](char letter) {
    try {
      for (int k = 0; k < 50; ++k) write_file(path, std::string(1 << 16, letter));
    } catch (const SystemError&) { ++failed; }
  };
  { const std::jthread a(write_often, 'a'), b(write_often, 'b'); }
  CHECK(failed == 0);
  const std::string text = read_file(path);
  CHECK(text == std::string(1 << 16, text.at(0)));
  CHECK(entries(scratch) == 1);
}

TEST_CASE("temporary files of dead processes are swept, and nothing else") {
  const Scratch scratch("sweep");
  const pid_t dead = fork();
  if (dead == 0) _exit(0);
  REQUIRE(waitpid(dead, nullptr, 0) == dead);
  const pid_t ended = fork();
  if (ended == 0) _exit(0);
  siginfo_t not_waited_for;
  REQUIRE(waitid(P_PID, static_cast<id_t>(ended), &not_waited_for, WEXITED | WNOWAIT) == 0);
  const pid_t ours = ::getpid(), living = ::getppid();
  std::vector<std::string> kept, swept;
  for (const auto& [stem, count] : {std::pair("best.safetensors.tmp-", "-0"), std::pair("run.json.tmp-", "-17"),
           std::pair(".written-by-1.tmp-", "-0"), std::pair(".written-by-", "")}) {
    swept.push_back(to_text(stem, dead, count)), swept.push_back(to_text(stem, ours, count));
    swept.push_back(to_text(stem, ended, count));
    for (const std::string& end : {to_text(living), to_text(1), to_text(0, dead), to_text(dead, 'x'), to_text(-1),
             std::string(), std::string("99999999999")})
      kept.push_back(stem + end + count);
  }
  kept.push_back(to_text(".tmp-", dead, "-0")), kept.push_back(to_text("written-by-", dead));
  kept.push_back(to_text("a.tmp-", dead)), kept.push_back(to_text("a.tmp-", dead, "-x"));
  for (const auto& names : {kept, swept})
    for (const std::string& name : names) write_file(scratch / name, "");
  kept.push_back(to_text("folder.tmp-", dead, "-0")), fs::create_directory(scratch / kept.back());
  kept.push_back(to_text("link.tmp-", dead, "-0")), fs::create_symlink("folder", scratch / kept.back());
  ensure_output_file(scratch / "best.safetensors");  // removes temporary files of this file alone
  CHECK_FALSE(fs::exists(scratch / swept[0]));
  CHECK(fs::exists(scratch / swept[3]));
  remove_leftovers(scratch.folder.string());
  for (const std::string& name : swept) CHECK_FALSE(fs::exists(fs::symlink_status(scratch / name)));
  for (const std::string& name : kept) CHECK_MESSAGE(fs::exists(fs::symlink_status(scratch / name)), name);
  REQUIRE(waitpid(ended, nullptr, 0) == ended);
}

TEST_CASE("SHA-256: the standard's examples, however the bytes come") {
  CHECK(sha256("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256(std::string(1000000, 'a')) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  std::string text;
  for (std::size_t size = 0; size < 400; ++size, text += static_cast<char>(size * 37)) {
    Sha256 in_parts;
    in_parts.add(text.substr(0, size / 3)), in_parts.add(text.substr(size / 3));
    CHECK(in_parts.hexadecimal() == sha256(text));
  }
}
