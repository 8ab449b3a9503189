// whence_inject: runs a command, numbers the system calls by which it and its children touch files, and kills it at one
// or fails one.
//   whence_inject [--log FILE] [--after TEXT] [--kill N | --fail N ERRNO [--lasting]] -- COMMAND...
// --log: a line "N call path" each, and "end: exited 0" or "end: signal 9". --after: numbers begin with the first call
// whose path holds TEXT, so that what the loader reads stays whole. --lasting: calls of the same name fail from there
// on, as on a full disk. Ends as the command did (128 + signal), with 137 where it killed it, with 77 where the machine
// does not let it.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <vector>

#if defined(__linux__) && defined(__x86_64__)
#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

enum class Where { path_first, path_second, descriptor, mapping };
struct Call {
  const char* name;
  Where where;
};

const std::map<long, Call>& calls() {
  using enum Where;
  static const std::map<long, Call> known = {{SYS_open, {"open", path_first}}, {SYS_openat, {"openat", path_second}},
      {SYS_creat, {"creat", path_first}}, {SYS_read, {"read", descriptor}}, {SYS_pread64, {"pread", descriptor}},
      {SYS_write, {"write", descriptor}}, {SYS_pwrite64, {"pwrite", descriptor}}, {SYS_writev, {"writev", descriptor}},
      {SYS_fsync, {"fsync", descriptor}}, {SYS_fdatasync, {"fdatasync", descriptor}},
      {SYS_close, {"close", descriptor}}, {SYS_flock, {"flock", descriptor}},
      {SYS_ftruncate, {"ftruncate", descriptor}}, {SYS_truncate, {"truncate", path_first}},
      {SYS_lseek, {"lseek", descriptor}}, {SYS_getdents64, {"getdents", descriptor}},
      {SYS_fstat, {"fstat", descriptor}}, {SYS_stat, {"stat", path_first}}, {SYS_lstat, {"lstat", path_first}},
      {SYS_newfstatat, {"newfstatat", path_second}}, {SYS_statx, {"statx", path_second}},
      {SYS_rename, {"rename", path_first}}, {SYS_renameat, {"renameat", path_second}},
      {SYS_renameat2, {"renameat2", path_second}}, {SYS_unlink, {"unlink", path_first}},
      {SYS_unlinkat, {"unlinkat", path_second}}, {SYS_rmdir, {"rmdir", path_first}}, {SYS_mkdir, {"mkdir", path_first}},
      {SYS_mkdirat, {"mkdirat", path_second}}, {SYS_link, {"link", path_first}}, {SYS_linkat, {"linkat", path_second}},
      {SYS_symlink, {"symlink", path_first}}, {SYS_access, {"access", path_first}},
      {SYS_copy_file_range, {"copy_file_range", descriptor}}, {SYS_sendfile, {"sendfile", descriptor}},
      {SYS_mmap, {"mmap", mapping}}};
  return known;
}

const std::map<std::string, int> errors = {{"ENOSPC", ENOSPC}, {"EIO", EIO}, {"EACCES", EACCES}, {"EMFILE", EMFILE},
    {"EINTR", EINTR}, {"ENOMEM", ENOMEM}, {"EROFS", EROFS}, {"EDQUOT", EDQUOT}};

struct Wanted {
  std::string log, after, error;
  long kill = 0, fail = 0;
  bool lasting = false;
  std::vector<char*> command;
};

// The text at an address of a stopped process; what lies behind the end of its page is not asked for.
std::string text_at(pid_t process, unsigned long long address) {
  std::string text;
  while (text.size() < 4096 && text.find('\0') == std::string::npos) {
    char part[256];
    const std::size_t size = sizeof part - static_cast<std::size_t>(address % sizeof part);
    iovec here = {part, size}, there = {reinterpret_cast<void*>(address), size};
    const ssize_t got = process_vm_readv(process, &here, 1, &there, 1, 0);
    if (got <= 0) break;
    text.append(part, static_cast<std::size_t>(got));
    address += static_cast<unsigned long long>(got);
  }
  return text.substr(0, text.find('\0'));
}

std::string path_of(pid_t process, const Call& call, const user_regs_struct& at) {
  if (call.where == Where::path_first) return text_at(process, at.rdi);
  if (call.where == Where::path_second) return text_at(process, at.rsi);
  const int descriptor = static_cast<int>(call.where == Where::mapping ? at.r8 : at.rdi);
  if (descriptor < 0) return {};
  std::error_code none;
  return std::filesystem::read_symlink("/proc/" + std::to_string(process) + "/fd/" + std::to_string(descriptor), none)
      .string();
}

class Injector {
 public:
  explicit Injector(Wanted wanted) : wanted_(std::move(wanted)), log_(wanted_.log), counting_(wanted_.after.empty()) {}

  int run() {
    first_ = fork();
    if (first_ < 0) return 77;
    if (first_ == 0) {
      if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(77);
      raise(SIGSTOP);
      execvp(wanted_.command[0], wanted_.command.data());
      _exit(127);
    }
    int status = 0;
    if (waitpid(first_, &status, 0) < 0 || !WIFSTOPPED(status)) return 77;
    const long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE |
                         PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
    if (ptrace(PTRACE_SETOPTIONS, first_, nullptr, options) != 0) return 77;
    ptrace(PTRACE_SYSCALL, first_, nullptr, 0);
    int result = 77;
    for (pid_t process; (process = waitpid(-1, &status, __WALL)) > 0;)
      if (WIFSTOPPED(status)) {
        all_.insert(process);
        stopped(process, status);
      } else if (process == first_) {
        result = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        if (WIFEXITED(status))
          log_ << "end: exited " << result << '\n';
        else
          log_ << "end: signal " << WTERMSIG(status) << '\n';
      }
    return result;
  }

 private:
  void stopped(pid_t process, int status) {
    int signal = WSTOPSIG(status);
    if (signal == (SIGTRAP | 0x80)) {
      in_call_[process] = !in_call_[process];
      if (in_call_[process])
        entered(process);
      else if (failing_.erase(process) != 0)
        answer(process);
      signal = 0;
    } else if (signal == SIGTRAP || signal == SIGSTOP) {  // of ptrace itself: a new process, a new program
      signal = 0;
    }
    ptrace(PTRACE_SYSCALL, process, nullptr, signal);
  }

  void entered(pid_t process) {
    user_regs_struct at{};
    if (ptrace(PTRACE_GETREGS, process, nullptr, &at) != 0) return;
    const auto call = calls().find(static_cast<long>(at.orig_rax));
    if (call == calls().end()) return;
    const std::string path = path_of(process, call->second, at);
    if (path.empty()) return;  // memory alone
    // What the program has to say of its failure must get out; and UBSan asks by a pipe of its own what may be read.
    const bool is_pipe = path.starts_with("pipe:");
    if (call->second.where == Where::descriptor && (is_pipe || at.rdi == STDERR_FILENO)) return;
    counting_ = counting_ || path.find(wanted_.after) != std::string::npos;
    if (!counting_) return;
    ++count_;
    log_ << count_ << ' ' << call->second.name << ' ' << path << '\n';
    if (count_ == wanted_.kill)
      for (const pid_t each : all_) kill(each, SIGKILL);
    if (count_ == wanted_.fail) failing_call_ = call->second.name;
    if (count_ == wanted_.fail || (wanted_.lasting && count_ > wanted_.fail && failing_call_ == call->second.name)) {
      at.orig_rax = static_cast<unsigned long long>(-1);
      ptrace(PTRACE_SETREGS, process, nullptr, &at);
      failing_.insert(process);
    }
  }

  void answer(pid_t process) {
    user_regs_struct at{};
    ptrace(PTRACE_GETREGS, process, nullptr, &at);
    at.rax = static_cast<unsigned long long>(-static_cast<long long>(errors.at(wanted_.error)));
    ptrace(PTRACE_SETREGS, process, nullptr, &at);
  }

  Wanted wanted_;
  std::ofstream log_;
  bool counting_;
  pid_t first_ = 0;
  long count_ = 0;
  std::string failing_call_ = "none";
  std::set<pid_t> all_, failing_;
  std::map<pid_t, bool> in_call_;
};

}  // namespace

int main(int count, char** arguments) {
  Wanted wanted;
  int k = 1;
  for (; k < count && std::strcmp(arguments[k], "--") != 0; ++k) {
    const std::string name = arguments[k];
    const auto value = [&]() -> std::string { return ++k < count ? arguments[k] : ""; };
    if (name == "--log")
      wanted.log = value();
    else if (name == "--after")
      wanted.after = value();
    else if (name == "--kill")
      wanted.kill = std::atol(value().c_str());
    else if (name == "--lasting")
      wanted.lasting = true;
    else if (name == "--fail")
      wanted.fail = std::atol(value().c_str()), wanted.error = value();
    else
      k = count;
  }
  wanted.command.assign(arguments + std::min(k + 1, count), arguments + count);
  if (wanted.command.empty() || (wanted.fail != 0 && !errors.contains(wanted.error))) {
    std::cerr << "whence_inject: [--log FILE] [--after TEXT] [--kill N | --fail N ERRNO [--lasting]] -- COMMAND... "
                 "required\n";
    return 2;
  }
  wanted.command.push_back(nullptr);
  return Injector(std::move(wanted)).run();
}
#else
int main() {
  std::cerr << "whence_inject: Linux on x86-64 required\n";
  return 77;
}
#endif
