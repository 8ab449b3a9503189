#include "nn/io/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <new>
#include <utility>

namespace whence {
namespace {

[[noreturn]] void system_refused(const std::string& path, const char* what, int error = errno) {
  throw SystemError(path, ": ", what, ": ", std::strerror(error));
}

// A file that is removed at the end unless the rename succeeded. Its name is that of no other process, nor of another
// thread that writes the same file. A dead process with our id may have left one; what appears after that is not opened.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& target) : target_(target) {
    static std::atomic<std::uint64_t> count = 0;
    path_ = to_text(target, ".tmp-", ::getpid(), '-', count++);
    std::error_code ignored;
    if (std::filesystem::exists(target, ignored) && !std::filesystem::is_regular_file(target, ignored))
      throw SystemError(target, ": cannot write: exists and is not a regular file; another path required");
    ::unlink(path_.c_str());
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (descriptor_ < 0) system_refused(target, "cannot write");
  }
  ~TemporaryFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!renamed_) ::unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void write(std::span<const std::byte> bytes) { write_all(descriptor_, bytes, target_); }
  void commit() {
    if (::fsync(descriptor_) != 0) system_refused(target_, "cannot sync");
    if (::close(std::exchange(descriptor_, -1)) != 0) system_refused(target_, "cannot close");
    if (std::rename(path_.c_str(), target_.c_str()) != 0) system_refused(target_, "cannot replace");
    renamed_ = true;
  }

 private:
  std::string target_, path_;
  int descriptor_ = -1;
  bool renamed_ = false;
};

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
std::array<std::uint32_t, 64> sha256_constants() {
  std::array<std::uint32_t, 64> found{};
  for (int prime = 2, k = 0; k < 64; ++prime) {
    bool divides = false;
    for (int by = 2; by * by <= prime; ++by) divides = divides || prime % by == 0;
    const double root = std::cbrt(prime);
    if (!divides) found[static_cast<std::size_t>(k++)] = static_cast<std::uint32_t>((root - std::floor(root)) * 0x1p32);
  }
  return found;
}

std::uint32_t sigma(std::uint32_t x, int a, int b, int c) {
  return std::rotr(x, a) ^ std::rotr(x, b) ^ std::rotr(x, c);
}

}  // namespace

// Without O_NONBLOCK, opening a pipe would wait for a writer.
InputFile::InputFile(const std::string& path)
    : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
  if (descriptor_ < 0) system_refused(path, "cannot read");
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    throw SystemError(path, ": cannot read: not a regular file; a file required");
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t count =
        ::pread(descriptor_, out.data(), std::min<std::size_t>(out.size(), 1u << 30), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) system_refused(path_, "cannot read");
    if (count == 0)
      throw FileError(path_, ": cannot read: ended at byte ", offset, " while ", size_, " bytes were announced");
    out = out.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
}

std::string InputFile::text(std::uint64_t limit) const {
  if (size_ > limit) throw FileError(path_, ": ", size_, " bytes; at most ", limit, " required");
  std::string text(static_cast<std::size_t>(size_), '\0');
  read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void write_all(int descriptor, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor, bytes.data(), std::min<std::size_t>(bytes.size(), 1u << 30));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) system_refused(path, "cannot write");
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void require_writable(const std::string& path) { (void)TemporaryFile(path); }

void write_file(const std::string& path, const std::vector<std::span<const std::byte>>& parts) {
  TemporaryFile file(path);
  for (const auto part : parts) file.write(part);
  file.commit();
  sync_folder(std::filesystem::path(path).parent_path().string());
}

void write_file(const std::string& path, std::string_view text) {
  write_file(path, {std::as_bytes(std::span(text.data(), text.size()))});
}

void sync_folder(const std::string& folder) {
  const std::string path = folder.empty() ? "." : folder;
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) system_refused(path, "cannot open");
  const int error = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);  // safe: the descriptor was not written
  if (error != 0 && error != EINVAL)
    system_refused(path, "cannot sync", error);  // EINVAL: a file system whose folders need no sync
}

std::vector<std::string> names_in(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder.c_str()), ::closedir);
  if (!open && errno == ENOMEM) throw std::bad_alloc();
  if (!open && (errno == ENOENT || errno == ENOTDIR)) return {};
  if (!open) system_refused(folder, "cannot list");
  std::vector<std::string> names;
  for (errno = 0; const dirent* const entry = ::readdir(open.get()); errno = 0)
    if (const std::string_view name = entry->d_name; name != "." && name != "..") names.emplace_back(name);
  if (errno != 0) system_refused(folder, "cannot list");  // an incomplete list would look complete
  return names;
}

void remove_whole(const std::string& path) {
  if (std::filesystem::is_directory(std::filesystem::symlink_status(path)))
    for (const std::string& name : names_in(path)) remove_whole(to_text(path, '/', name));
  std::filesystem::remove(path);
}

void Sha256::add_block(const char* bytes) {
  static const std::array<std::uint32_t, 64> constants = sha256_constants();
  std::uint32_t w[64] = {};
  for (int t = 0; t < 64; ++t) w[t / 4] = w[t / 4] << 8 | static_cast<unsigned char>(bytes[t]);
  for (int t = 16; t < 64; ++t) {
    const std::uint32_t s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ w[t - 15] >> 3;
    const std::uint32_t s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ w[t - 2] >> 10;
    w[t] = w[t - 16] + s0 + w[t - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (std::size_t t = 0; t < 64; ++t) {
    const std::uint32_t t1 = h + sigma(e, 6, 11, 25) + ((e & f) ^ (~e & g)) + constants[t] + w[t];
    const std::uint32_t t2 = sigma(a, 2, 13, 22) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const std::uint32_t after[8] = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < 8; ++i) state_[i] += after[i];
}

void Sha256::add(std::string_view bytes) {
  size_ += bytes.size();
  if (!rest_.empty()) {
    const std::size_t taken = std::min(64 - rest_.size(), bytes.size());
    rest_.append(bytes.substr(0, taken));
    bytes.remove_prefix(taken);
    if (rest_.size() < 64) return;
    add_block(rest_.data());
  }
  for (; bytes.size() >= 64; bytes.remove_prefix(64)) add_block(bytes.data());
  rest_ = std::string(bytes);
}

// The message ends with a one, zeros, and its length in bits.
std::string Sha256::hexadecimal() const {
  Sha256 copy = *this;
  std::string end(1, static_cast<char>(0x80));
  end.resize(1 + (119 - rest_.size()) % 64, '\0');
  for (int k = 7; k >= 0; --k) end += static_cast<char>(size_ * 8 >> 8 * k & 0xFF);
  copy.add(end);
  std::string text;
  for (const std::uint32_t word : copy.state_)
    for (int k = 28; k >= 0; k -= 4) text += "0123456789abcdef"[word >> k & 15];
  return text;
}

std::string sha256(std::string_view bytes) {
  Sha256 hash;
  hash.add(bytes);
  return hash.hexadecimal();
}

Sha256 hash_around_seal(std::string text, const std::string& seal) {
  if (const std::size_t at = text.find(seal); at != text.npos) text.replace(at, seal.size(), 64, '0');
  Sha256 hash;
  hash.add(text);
  return hash;
}

void say_of_file(const std::string& note) {
  if (on_damage.say) on_damage.say(note);
}

void refuse_damaged(const std::string& what) {
  if (!on_damage.accept) throw FileError(what, "; restore it from a copy");
  say_of_file(what + "; it is used all the same");
}

}  // namespace whence
