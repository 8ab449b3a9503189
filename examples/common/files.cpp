// Whole files on disk through POSIX calls, because the C++ streams have no fsync and lose the reason of a failure.
#include "examples/common/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

#include "tensor/error.h"

namespace whence {
namespace {

namespace fs = std::filesystem;

std::string reason(int error_number) { return std::generic_category().message(error_number); }

// A file descriptor that closes itself.
class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags) : number_(open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  [[nodiscard]] bool is_open() const { return number_ >= 0; }
  [[nodiscard]] int number() const { return number_; }

  // Some file systems report a full disk only here.
  [[nodiscard]] bool close_now() {
    const int closing = number_;
    number_ = -1;
    return close(closing) == 0;
  }

 private:
  int number_;
};

// All of `bytes`, in as many writes as the system wants.
bool write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

// Makes the rename itself survive a power failure. A file system that cannot do it for folders says EINVAL; that is accepted.
void sync_folder(const fs::path& folder) {
  const Descriptor descriptor(folder, O_RDONLY | O_DIRECTORY);
  if (descriptor.is_open() && (fsync(descriptor.number()) == 0 || errno == EINVAL || errno == ENOTSUP)) return;
  throw Error(concat(folder.string(), ": fsync: ", reason(errno), "; a folder that can be synced required; check the disk"));
}

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

// A name beside `path` that no other process and no other thread of this one uses.
fs::path temporary_beside(const fs::path& path) {
  static std::atomic<unsigned> counter = 0;
  const std::string ending = concat(".partial.", getpid(), ".", counter.fetch_add(1));
  return folder_of(path) / (path.filename().string() + ending);
}

// Writes, fsyncs and renames, or says at which of these steps it failed, with errno set.
const char* failed_step(const fs::path& temporary, const fs::path& path, Descriptor& file, std::string_view bytes) {
  if (!write_all(file.number(), bytes)) return "write";
  if (fsync(file.number()) != 0) return "fsync";
  if (!file.close_now()) return "close";
  if (std::rename(temporary.c_str(), path.c_str()) != 0) return "rename";
  return nullptr;
}

}  // namespace

std::string read_file(const fs::path& path) {
  // An ifstream opens a folder without complaint, and then reads nothing.
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) throw InputError(concat(path.string(), ": read: a folder given; a file required; check the path"));
  std::ifstream file(path, std::ios::binary);
  if (!file) throw InputError(concat(path.string(), ": read: ", reason(errno), "; a readable file required; check the path"));
  std::ostringstream bytes;
  bytes << file.rdbuf();
  if (file.bad()) throw Error(concat(path.string(), ": read: ", reason(errno), "; a readable file required; check the disk"));
  return std::move(bytes).str();
}

void write_file_atomically(const fs::path& path, std::string_view bytes) {
  const fs::path temporary = temporary_beside(path);
  Descriptor file(temporary, O_WRONLY | O_CREAT | O_EXCL);
  if (!file.is_open()) {
    throw InputError(concat(path.string(), ": create: ", reason(errno), "; a writable folder required; check the path"));
  }
  if (const char* step = failed_step(temporary, path, file, bytes)) {
    const int error_number = errno;
    unlink(temporary.c_str());
    const std::string problem = concat(path.string(), ": ", step, ": ", reason(error_number), "; ");
    if (error_number == EISDIR) throw InputError(problem + "a path to a file required; name a file, not a folder");
    throw Error(concat(problem, "room for ", bytes.size(), " bytes required; check the disk"));
  }
  sync_folder(folder_of(path));
}

void ensure_output_folder(const fs::path& folder) {
  const auto refuse = [&folder](const std::string& why) {
    throw InputError(concat(folder.string(), ": output folder: ", why, "; a folder that can be written required; choose another"));
  };
  if (folder.empty()) refuse("empty name");
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) refuse(error.message());
  if (!fs::is_directory(folder, error)) refuse("not a folder");
  const fs::path probe = temporary_beside(folder / "probe");
  Descriptor file(probe, O_WRONLY | O_CREAT | O_EXCL);
  if (!file.is_open()) refuse(reason(errno));
  const bool written = write_all(file.number(), "probe\n");
  const int error_number = errno;
  unlink(probe.c_str());
  if (!written) refuse(reason(error_number));
}

std::int64_t truncate_jsonl_after(const fs::path& path, std::int64_t step) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return 0;
  const std::string before = read_file(path);
  std::string kept;
  std::int64_t kept_lines = 0, line_number = 0;
  for (std::size_t begin = 0; begin < before.size();) {
    const std::size_t newline = before.find('\n', begin);
    if (newline == std::string::npos) break;  // torn: every whole line ends in a newline
    const std::string_view line(before.data() + begin, newline - begin);
    begin = newline + 1;
    ++line_number;
    const auto value = nlohmann::json::parse(line, nullptr, false);
    if (!value.is_object()) {
      if (begin == before.size()) break;
      throw InputError(
          concat(path.string(), ": line ", line_number, " is not a JSON object; one object per line required; restore the log"));
    }
    const auto found = value.find("step");
    if (found != value.end() && found->is_number() && found->get<double>() > static_cast<double>(step)) continue;
    kept.append(line).push_back('\n');
    ++kept_lines;
  }
  if (kept.size() != before.size()) write_file_atomically(path, kept);
  return kept_lines;
}

}  // namespace whence
