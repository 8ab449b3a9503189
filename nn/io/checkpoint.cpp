#include "nn/io/checkpoint.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "nn/io/files.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t format_version = 3;
constexpr const char *weights_file = "weights.safetensors", *optimizer_file = "optimizer.safetensors";
constexpr const char *format_key = "whence.format", *step_key = "whence.step", *seed_key = "whence.seed",
                     *skipped_key = "whence.skipped", *optimizer_key = "whence.optimizer", *fact_prefix = "fact.";

// Returns nothing unless the text is a whole number from 0 to `most`.
std::optional<std::uint64_t> whole_number(std::string_view text, std::uint64_t most) {
  std::uint64_t number = 0;
  const auto [stop, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = problem == std::errc() && stop == text.data() + text.size() && number <= most;
  return whole ? std::optional(number) : std::nullopt;
}

// Returns the complete checkpoints, by step, without temporary and foreign names.
std::map<std::uint64_t, fs::path> checkpoints_in(const std::string& root) {
  std::map<std::uint64_t, fs::path> found;
  for (const std::string_view name : names_in(root)) {
    const fs::path folder = fs::path(root) / name;
    std::error_code ignored;
    if (!name.starts_with("step-") || !fs::is_directory(folder, ignored)) continue;
    if (const auto step = whole_number(name.substr(5), INT64_MAX)) found.emplace(*step, folder);
  }
  return found;
}

fs::path temporary_folder(const fs::path& folder) { return to_text(folder.string(), ".tmp-", ::getpid()); }

void try_to_remove(const fs::path& path) {
  try {
    remove_whole(path.string());
  } catch (const std::exception&) {}  // leftovers are harmless: such a name is never taken for a checkpoint
}

// ---- Saving

NamedTensors named(const std::vector<Module::Parameter>& parameters) {
  NamedTensors weights;
  for (const Module::Parameter& parameter : parameters) weights.emplace_back(parameter.path, parameter.tensor);
  return weights;
}

NamedTensors moments_of(const Optimizer& optimizer) {
  NamedTensors moments;
  for (std::size_t k = 0; k < optimizer.parameters().size(); ++k) {
    moments.emplace_back("first." + optimizer.parameters()[k].path, optimizer.moments()[k].first);
    moments.emplace_back("second." + optimizer.parameters()[k].path, optimizer.moments()[k].second);
  }
  std::erase_if(moments, [](const auto& moment) { return !moment.second.defined(); });
  return moments;
}

bool is_not_finite(double number) { return !std::isfinite(number); }

void require_finite(const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) {
    const std::vector<double> numbers = tensor.to_vector();
    if (const auto first = std::ranges::find_if(numbers, is_not_finite); first != numbers.end())
      throw NotFinite(error_at_call_site(
          "checkpoint", to_text(name, " ", tensor.shape(), " holds ", *first, " at element ", first - numbers.begin(),
                            "; finite numbers required; the checkpoints saved before are kept")));
  }
}

// A rename cannot replace a folder that is not empty. An exchange can, and at every instant one of the two is there.
void publish(const fs::path& temporary, const fs::path& folder) {
#ifdef RENAME_EXCHANGE
  const unsigned exchange = fs::exists(folder) ? RENAME_EXCHANGE : 0;
  if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, folder.c_str(), exchange) != 0)
    throw SystemError(folder.string(), ": checkpoint: cannot publish: ", std::strerror(errno));
#else
  fs::remove_all(folder);
  fs::rename(temporary, folder);
#endif
}

// ---- Loading

// Copies tensors of files to tensors here, all or none: one error lists the first few differences.
class Comparison {
 public:
  void match(const std::string& file, const NamedTensors& given, const NamedTensors& wanted) {
    std::map<std::string, Tensor> found(given.begin(), given.end());
    for (const auto& [name, tensor] : wanted) {
      const auto entry = found.extract(name);
      if (!entry)
        problems_.push_back(to_text(file, " lacks ", plain(name), " ", tensor.dtype(), " ", tensor.shape()));
      else if (const Tensor& theirs = entry.mapped();
               !(theirs.shape() == tensor.shape()) || theirs.dtype() != tensor.dtype())
        problems_.push_back(to_text(plain(name), " is ", theirs.dtype(), " ", theirs.shape(), " in ", file, " and ",
            tensor.dtype(), " ", tensor.shape(), " here"));
      else
        matched_.emplace_back(theirs, tensor);
    }
    for (const auto& [name, tensor] : found)
      problems_.push_back(to_text(file, " has ", plain(name), " ", tensor.shape(), ", which this run has not"));
  }

  void copy(const std::string& place) const {
    if (!problems_.empty())
      throw DoesNotFit(place, ": checkpoint: does not fit: ", first_few(problems_, "; "),
          "; load it with the options it was made with");
    for (const auto& [from, to] : matched_) raw::copy_into(raw::to_device(from, to.device()), to);
  }

 private:
  std::vector<std::pair<Tensor, Tensor>> matched_;
  std::vector<std::string> problems_;
};

void say_not_finite(const std::string& path, const NamedTensors& tensors) {
  if (!on_damage.say) return;
  std::vector<std::string> all;
  for (const auto& [name, tensor] : tensors) {
    const std::vector<double> numbers = tensor.to_vector();
    if (const auto count = std::ranges::count_if(numbers, is_not_finite); count > 0)
      all.push_back(to_text(plain(name), " holds ", count, ", the first at element ",
          std::ranges::find_if(numbers, is_not_finite) - numbers.begin()));
  }
  if (!all.empty()) say_of_file(path + ": has numbers that are not finite: " + first_few(all, "; "));
}

SafetensorsFile read_sealed(const std::string& path) {
  SafetensorsFile file = read_safetensors(path);
  if (file.seal.empty())
    refuse_damaged(to_text(path, ": is damaged: no metadata ", seal_key, " proves it; it required"));
  return file;
}

// weights.safetensors and its metadata.
struct WeightsFile {
  std::string path;
  SafetensorsFile file = read_sealed(path);
  TrainingState state = {};

  const std::string& text(const char* key) const {
    const auto found = file.metadata.find(key);
    if (found == file.metadata.end())
      throw FileError(path, ": checkpoint: lacks metadata ", key, "; weights that a checkpoint saved required");
    return found->second;
  }
  std::uint64_t number(const char* key, std::uint64_t most) const {
    if (const auto value = whole_number(text(key), most)) return *value;
    throw FileError(path, ": checkpoint: metadata ", key, " is ", printable(text(key)), "; a whole number from 0 to ",
        most, " required");
  }
};

WeightsFile read_weights(const std::string& folder) {
  WeightsFile weights{(fs::path(folder) / weights_file).string()};
  if (const std::uint64_t format = weights.number(format_key, UINT64_MAX); format != format_version)
    throw DoesNotFit(weights.path, ": checkpoint: has format ", format, "; this build reads format ", format_version,
        "; load it with the version that wrote it");
  TrainingState& state = weights.state;
  state.step = static_cast<index_t>(weights.number(step_key, INT64_MAX));
  state.seed = weights.number(seed_key, UINT64_MAX);
  state.skipped = static_cast<index_t>(weights.number(skipped_key, static_cast<std::uint64_t>(state.step)));
  (void)weights.text(optimizer_key);
  for (const auto& [key, fact] : weights.file.metadata)
    if (key.starts_with(fact_prefix)) state.facts[key.substr(std::strlen(fact_prefix))] = fact;
  return weights;
}

// Returns the moments saved with these weights. Refuses others, as after copying files by hand.
NamedTensors read_moments(const std::string& folder, const WeightsFile& weights) {
  const std::string path = (fs::path(folder) / optimizer_file).string();
  const SafetensorsFile file = read_sealed(path);
  if (file.seal != weights.text(optimizer_key))
    refuse_damaged(to_text(path, ": is damaged: its metadata ", seal_key, " is not what ", weights_file,
        " says; the two files of one save required"));
  say_not_finite(path, file.tensors);
  return file.tensors;
}

}  // namespace

CheckpointFolder::CheckpointFolder(const std::string& root, std::int64_t keep) : root_(root), keep_(keep) {
  if (keep < 0) throw InputError(root, ": checkpoint: ", keep, " checkpoints to keep given; 0 (all) or more required");
  std::error_code problem;
  fs::create_directories(root, problem);
  const std::string lock = (fs::path(root) / "lock").string();
  lock_ = ::open(lock.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
  if (lock_ < 0)
    throw SystemError(root, ": checkpoint: cannot write: ", std::strerror(errno), "; another folder required");
  try {
    if (::flock(lock_, LOCK_EX | LOCK_NB) != 0)
      throw SystemError(
          root, ": checkpoint: another process is saving here; wait for it, stop it, or give another folder");
    for (const std::string& name : names_in(root))  // half-saved
      if (name.starts_with("step-") && name.find(".tmp-") != name.npos) try_to_remove(fs::path(root) / name);
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

CheckpointFolder::~CheckpointFolder() { ::close(lock_); }

std::string CheckpointFolder::save(
    const std::vector<Module::Parameter>& weights, const Optimizer& optimizer, const TrainingState& state) const {
  if (state.updates() != optimizer.steps()) {
    fail("checkpoint", "step ", state.step, " given",
        state.skipped ? to_text(", ", state.skipped, " of them skipped,") : "", " and the optimiser has taken ",
        optimizer.steps(), "; the same required");
  }
  require_finite(named(weights));
  require_finite(moments_of(optimizer));
  char name[32];
  std::snprintf(name, sizeof name, "step-%06lld", static_cast<long long>(state.step));
  const fs::path folder = fs::path(root_) / name, temporary = temporary_folder(folder);
  const struct Leftover {  // after an exchange: the old checkpoint
    const fs::path& path;
    ~Leftover() { try_to_remove(path); }
  } leftover{temporary};
  try {
    remove_whole(temporary.string());
    fs::create_directory(temporary);
    const std::string seal = write_safetensors(
        (temporary / optimizer_file).string(), {moments_of(optimizer), {{step_key, std::to_string(state.step)}}});
    Metadata metadata{{format_key, std::to_string(format_version)}, {step_key, std::to_string(state.step)},
        {seed_key, std::to_string(state.seed)}, {skipped_key, std::to_string(state.skipped)}, {optimizer_key, seal}};
    for (const auto& [key, fact] : state.facts) metadata.emplace(fact_prefix + key, fact);
    write_safetensors((temporary / weights_file).string(), {named(weights), metadata});
    publish(temporary, folder);
    sync_folder(root_);
  } catch (const fs::filesystem_error& problem) {
    throw SystemError(folder.string(), ": checkpoint: cannot save: ", problem.code().message());
  }
  auto old = checkpoints_in(root_);
  std::erase_if(old, [&](const auto& each) { return each.second == folder; });
  while (keep_ > 0 && std::ssize(old) >= keep_) {
    // Renamed first: a kill half-way leaves a temporary name, not half a checkpoint.
    const fs::path oldest = old.extract(old.begin()).mapped(), condemned = temporary_folder(oldest);
    std::error_code held;  // then the next save tries again
    fs::rename(oldest, condemned, held);
    if (!held) try_to_remove(condemned);
  }
  return folder.string();
}

std::optional<std::string> find_latest(const std::string& root) {
  const auto checkpoints = checkpoints_in(root);
  if (checkpoints.empty()) return {};
  return checkpoints.rbegin()->second.string();
}

TrainingState read_training_state(const std::string& folder) { return read_weights(folder).state; }

TrainingState load_checkpoint(
    const std::string& folder, const std::vector<Module::Parameter>& weights, Optimizer* optimizer) {
  const WeightsFile saved = read_weights(folder);
  say_not_finite(saved.path, saved.file.tensors);
  Comparison comparison;
  comparison.match(weights_file, saved.file.tensors, named(weights));
  if (optimizer) comparison.match(optimizer_file, read_moments(folder, saved), moments_of(*optimizer));
  comparison.copy(folder);
  if (optimizer) optimizer->set_steps(saved.state.updates());
  return saved.state;
}

void save_weights(const std::string& path, const std::vector<Module::Parameter>& weights) {
  require_finite(named(weights));
  write_safetensors(path, {named(weights)});
}

void load_weights(const std::string& path, const std::vector<Module::Parameter>& weights) {
  Comparison comparison;
  const SafetensorsFile file = read_safetensors(path);
  comparison.match("the file", file.tensors, named(weights));
  comparison.copy(path);
  if (file.seal.empty())
    say_of_file(to_text(
        path, ": holds no checksum (metadata ", seal_key, "); whether its bytes are as they were cannot be told"));
  say_not_finite(path, file.tensors);
}

}  // namespace whence
