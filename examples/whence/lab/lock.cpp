// One laboratory at a time in a folder, by a lock that ends with whoever holds it.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <span>
#include <system_error>
#include <thread>

#include "examples/whence/cli/text.h"
#include "examples/whence/lab/run.h"
#include "examples/whence/run/run_files.h"
#include "nn/io/files.h"
#include "tensor/error.h"

namespace whence {
namespace {

// "process 4711 on gpu-3, since 2026-11-24 13:05 UTC"
std::string this_process() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  std::array<char, 32> date{};
  const std::time_t now = std::time(nullptr);
  std::strftime(date.data(), date.size(), "%F %R UTC", std::gmtime(&now));
  return to_text("process ", getpid(), " on ", host.data(), ", since ", date.data());
}

}  // namespace

FolderLock::FolderLock(const std::filesystem::path& folder) {
  const std::string path = (folder / "lab.lock").string();
  // Not closed in the runs that are started: those of a laboratory that was killed may take a moment to die, and hold it.
  file_ = open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, 0666);
  if (file_ < 0) throw SystemError(path, " cannot be written: ", std::generic_category().message(errno));
  constexpr int tries = 20;  // over two seconds
  for (int k = 1; flock(file_, LOCK_EX | LOCK_NB) != 0; ++k) {
    if (k < tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      continue;
    }
    const int why = errno;
    close(file_);
    if (why != EWOULDBLOCK) throw SystemError(path, " cannot be locked: ", std::generic_category().message(why));
    throw SystemError("--out: another laboratory runs in ", folder.string(), ": ", message_line(read_file(path)),
        "; wait for it, choose another folder, or see what is done with --collect");
  }
  const std::string owner = this_process();
  if (ftruncate(file_, 0) == 0) write_all(file_, std::as_bytes(std::span(owner)), path);
}

FolderLock::~FolderLock() { close(file_); }

}  // namespace whence
