#include "examples/whence/lab/claim.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <system_error>

#include "examples/whence/cli/progress.h"
#include "examples/whence/cli/text.h"
#include "nn/io/files.h"
#include "tensor/error.h"

namespace whence {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view prefix = "claim-";

fs::path claim_file(const fs::path& folder, int number) { return folder / to_text(prefix, number); }

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Where processes are told apart by their numbers: a machine since it was started, or a container of it.
const std::string& this_boot() {
  static const std::string boot = [] {
    std::error_code none;
    return first_line("/proc/sys/kernel/random/boot_id") + fs::read_symlink("/proc/self/ns/pid", none).string();
  }();
  return boot;
}

// In the kernel's ticks: with its number it names a process for as long as the machine is up. Empty: there is none, or it
// has ended and nobody has asked how.
std::string beginning_of_process(int process) {
  const std::string line = first_line(to_text("/proc/", process, "/stat"));
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream fields(line.substr(name_end + 1));
  std::string field;
  fields >> field;
  if (field == "Z" || field == "X") return {};
  for (int k = 0; k < 19; ++k) fields >> field;
  return field;
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

}  // namespace

Claim::Standing Claim::standing(const fs::path& folder) {
  Standing found;
  for (const std::string& name : names_in(folder.string()))
    if (name.starts_with(prefix))
      if (const auto number = parse_number<int>(name.substr(prefix.size())); number && *number > found.number)
        found.number = *number;
  if (found.number == 0) return found;
  std::ostringstream text;
  text << std::ifstream(claim_file(folder, found.number)).rdbuf();
  found.text = text.str();
  std::istringstream lines(found.text);
  std::string host, process, boot, beginning;
  std::getline(lines, host), std::getline(lines, process), std::getline(lines, boot), std::getline(lines, beginning);
  std::getline(lines, found.state);
  found.owner = one_line(to_text(host, ":", process));
  if (found.state.empty()) found.state = "held";  // the owner is about to write it
  const auto number = parse_number<int>(process);
  found.ended = number && boot == this_boot() && beginning_of_process(*number) != beginning;
  return found;
}

std::optional<Claim> Claim::take(const fs::path& folder, const Standing& seen) {
  const std::string path = claim_file(folder, seen.number + 1).string();
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (file < 0 && errno == EEXIST) return std::nullopt;
  if (file < 0) throw SystemError(path, " cannot be made: ", std::generic_category().message(errno));
  ::close(file);
  Claim claim(folder, seen.number + 1);
  claim.write("held");
  return claim;
}

void Claim::write(const std::string& state) {
  const std::string path = claim_file(folder_, number_).string();
  const std::string text = to_text(host_name(), '\n', getpid(), '\n', this_boot(), '\n', beginning_of_process(getpid()),
      '\n', one_line(state), '\n', ++beats_, '\n');
  // Not O_CREAT: a claim that is gone is not made again.
  const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
  const bool written = file >= 0 && ::pwrite(file, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()) &&
                       ::ftruncate(file, static_cast<off_t>(text.size())) == 0;
  const int problem = errno;
  const bool closed = file < 0 || ::close(file) == 0;
  if (!written || !closed)
    throw SystemError(path, " cannot be written: ", std::generic_category().message(written ? errno : problem),
        "; the folder that workers share required");
}

bool Claim::beat() {
  if (fs::exists(claim_file(folder_, number_ + 1))) return false;
  if (!fs::exists(claim_file(folder_, number_)) && fs::exists(folder_)) return false;  // another has ended the run
  write("held");
  return true;
}

void Claim::give_back(const std::string& failure) {
  if (fs::exists(claim_file(folder_, number_)) && !fs::exists(claim_file(folder_, number_ + 1)))
    write(failure.empty() ? "free" : "failed: " + failure);
}

void Claim::remove_all(const fs::path& folder) noexcept try {
  for (const std::string& name : names_in(folder.string()))
    if (name.starts_with(prefix)) ::unlink((folder / name).c_str());
} catch (...) {  // what is left says nothing, as the run is done
}

bool ClaimWatch::abandoned(const fs::path& folder, const Claim::Standing& seen) {
  if (seen.number == 0 || seen.state != "held" || seen.ended) return true;
  const double now = steady_seconds();
  const auto [place, fresh] = seen_.try_emplace(folder, Seen{seen.text, now});
  if (!fresh && place->second.text != seen.text) place->second = {seen.text, now};
  return now - place->second.since > limit_;
}

}  // namespace whence
