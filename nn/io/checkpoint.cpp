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
#include <ranges>

#include "nn/io/files.h"
#include "nn/io/safetensors_header.h"
#include "tensor/raw.h"
#include "tensor/suggest.h"

namespace whence {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t format_version = 3;  // versions 1 and 2 had a third file, state.json, for the metadata
constexpr const char *weights_file = "weights.safetensors", *optimizer_file = "optimizer.safetensors";

// ---- Names of folders

std::string folder_name(index_t step) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "step-%06lld", static_cast<long long>(step));
  return digits;
}

// Returns nothing unless the text is a whole number from 0 to `most`.
std::optional<std::uint64_t> whole_number(std::string_view text, std::uint64_t most) {
  std::uint64_t number = 0;
  const auto [stop, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = problem == std::errc() && stop == text.data() + text.size() && number <= most;
  return whole ? std::optional(number) : std::nullopt;
}

// Returns the complete checkpoints, by step, without temporary and foreign names.
std::vector<std::pair<std::uint64_t, fs::path>> checkpoints_in(const std::string& root) {
  std::vector<std::pair<std::uint64_t, fs::path>> found;
  for (const std::string_view name : names_in(root)) {
    const fs::path folder = fs::path(root) / name;
    std::error_code ignored;
    if (!name.starts_with("step-") || !fs::is_directory(folder, ignored)) continue;
    if (const auto step = whole_number(name.substr(5), INT64_MAX)) found.emplace_back(*step, folder);
  }
  std::sort(found.begin(), found.end());
  return found;
}

fs::path temporary_folder(const fs::path& folder) { return to_text(folder.string(), ".tmp-", ::getpid()); }

void try_to_remove(const fs::path& path) {
  try {
    remove_whole(path.string());
  } catch (const std::exception&) {  // leftovers are harmless: such a name is never taken for a checkpoint
  }
}
// Renames first: a kill half-way leaves a temporary name, not half a checkpoint.
void try_to_remove_checkpoint(const fs::path& folder) {
  const fs::path condemned = temporary_folder(folder);
  std::error_code held;  // then the next save tries again
  fs::rename(folder, condemned, held);
  if (!held) try_to_remove(condemned);
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

// Counts the numbers of one tensor that are NaN or infinite.
struct NotFiniteNumbers {
  index_t count = 0, first = 0;
  double example = 0;
};

NotFiniteNumbers not_finite_in(const Tensor& tensor) {
  const std::vector<double> all = tensor.to_vector();
  const auto wrong = [](double x) { return !std::isfinite(x); };
  const auto first = std::ranges::find_if(all, wrong);
  if (first == all.end()) return {};
  return {std::count_if(first, all.end(), wrong), first - all.begin(), *first};
}

void require_finite(const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) {
    const NotFiniteNumbers found = not_finite_in(tensor);
    if (found.count == 0) continue;
    throw NotFinite(error_at_call_site(
        "checkpoint", to_text(name, " ", tensor.shape(), " holds ", found.example, " at element ", found.first,
                          "; finite numbers required; the checkpoints saved before are kept")));
  }
}

constexpr const char *format_key = "whence.format", *step_key = "whence.step", *seed_key = "whence.seed",
                     *skipped_key = "whence.skipped", *optimizer_key = "whence.optimizer", *fact_prefix = "fact.";

Metadata metadata_of(const TrainingState& state, const std::string& optimizer_seal) {
  Metadata metadata{{format_key, std::to_string(format_version)}, {step_key, std::to_string(state.step)},
      {seed_key, std::to_string(state.seed)}, {skipped_key, std::to_string(state.skipped)},
      {optimizer_key, optimizer_seal}};
  for (const auto& [name, fact] : state.facts) metadata.emplace(fact_prefix + name, fact);
  return metadata;
}

// ---- Loading

// A tensor of a file, and the tensor to copy it to.
struct Restored {
  Tensor from, to;
};

// Collects all differences, so that one error lists the first few and the number of the rest.
struct Comparison {
  std::vector<Restored> matched;
  std::vector<std::string> problems;

  void match(const std::string& file, const NamedTensors& given, const NamedTensors& wanted) {
    const std::map<std::string, Tensor> found(given.begin(), given.end());
    const std::map<std::string, Tensor> names(wanted.begin(), wanted.end());
    for (const auto& [name, tensor] : wanted) {
      const auto entry = found.find(name);
      if (entry == found.end()) {
        problems.push_back(to_text(file, " lacks ", plain(name), " ", tensor.dtype(), " ", tensor.shape()));
      } else if (!(entry->second.shape() == tensor.shape()) || entry->second.dtype() != tensor.dtype()) {
        problems.push_back(to_text(plain(name), " is ", entry->second.dtype(), " ", entry->second.shape(), " in ", file,
            " and ", tensor.dtype(), " ", tensor.shape(), " here"));
      } else {
        matched.push_back({entry->second, tensor});
      }
    }
    for (const auto& [name, tensor] : given)
      if (!names.count(name))
        problems.push_back(to_text(file, " has ", plain(name), " ", tensor.shape(), ", which this run has not"));
  }

  void require_none(const std::string& place) const {
    if (problems.empty()) return;
    throw DoesNotFit(place, ": checkpoint: does not fit: ", first_few(problems, "; "),
        "; load it with the options it was made with");
  }

  void apply() const {
    for (const Restored& tensor : matched) raw::copy_into(raw::to_device(tensor.from, tensor.to.device()), tensor.to);
  }
};

void note_not_finite(const std::string& path, const NamedTensors& tensors, Trust* trust) {
  if (!trust) return;
  std::vector<std::string> found;
  for (const auto& [name, tensor] : tensors)
    if (const NotFiniteNumbers wrong = not_finite_in(tensor); wrong.count > 0)
      found.push_back(to_text(plain(name), " holds ", wrong.count, ", the first at element ", wrong.first));
  if (!found.empty()) trust->notes.push_back(path + ": has numbers that are not finite: " + first_few(found, "; "));
}

SafetensorsFile read_sealed(const std::string& path, Trust* trust) {
  SafetensorsFile file = read_safetensors(path, trust);
  if (file.seal.empty())
    refuse_damaged(to_text(path, ": is damaged: no metadata ", seal_key, " proves it; it required"), trust);
  return file;
}

// weights.safetensors and its metadata.
struct WeightsFile {
  SafetensorsFile file;
  TrainingState state;
  std::string optimizer_seal;
};

WeightsFile read_weights(const std::string& folder, Trust* trust) {
  if (fs::exists(fs::path(folder) / "state.json")) {
    throw DoesNotFit(folder, ": checkpoint: was saved by an earlier version, which kept its step and options in ",
        "state.json; load it with the version that wrote it");
  }
  const std::string path = (fs::path(folder) / weights_file).string();
  WeightsFile weights{read_sealed(path, trust), {}, {}};
  const auto text = [&](const char* key) -> const std::string& {
    const auto found = weights.file.metadata.find(key);
    if (found == weights.file.metadata.end())
      throw FileError(path, ": checkpoint: lacks metadata ", key, "; weights that a checkpoint saved required");
    return found->second;
  };
  const auto number = [&](const char* key, std::uint64_t most) {
    const std::optional<std::uint64_t> value = whole_number(text(key), most);
    if (!value) {
      throw FileError(path, ": checkpoint: metadata ", key, " is ", printable(text(key)), "; a whole number from 0 to ",
          most, " required");
    }
    return *value;
  };
  if (const std::uint64_t format = number(format_key, UINT64_MAX); format != format_version) {
    throw DoesNotFit(path, ": checkpoint: has format ", format, "; this build reads format ", format_version,
        "; load it with the version that wrote it");
  }
  TrainingState& state = weights.state;
  state.step = static_cast<index_t>(number(step_key, INT64_MAX));
  state.seed = number(seed_key, UINT64_MAX);
  state.skipped = static_cast<index_t>(number(skipped_key, static_cast<std::uint64_t>(state.step)));
  weights.optimizer_seal = text(optimizer_key);
  for (const auto& [key, fact] : weights.file.metadata)
    if (key.starts_with(fact_prefix)) state.facts[key.substr(std::strlen(fact_prefix))] = fact;
  return weights;
}

// Returns the moments saved with these weights. Refuses others, as after copying files by hand.
NamedTensors read_moments(const std::string& folder, const WeightsFile& weights, Trust* trust) {
  const std::string path = (fs::path(folder) / optimizer_file).string();
  SafetensorsFile file = read_sealed(path, trust);
  if (file.seal != weights.optimizer_seal) {
    refuse_damaged(to_text(path, ": is damaged: its metadata ", seal_key, " is not what ", weights_file,
                       " says; the two files of one save required"),
        trust);
  }
  note_not_finite(path, file.tensors, trust);
  return std::move(file.tensors);
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
    remove_half_saved();
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

CheckpointFolder::~CheckpointFolder() { ::close(lock_); }

void CheckpointFolder::remove_half_saved() const {
  for (const std::string& name : names_in(root_))
    if (name.starts_with("step-") && name.find(".tmp-") != std::string::npos) try_to_remove(fs::path(root_) / name);
}

void CheckpointFolder::remove_old(const std::string& newest) const {
  if (keep_ == 0) return;
  std::int64_t kept = 1;
  const auto checkpoints = checkpoints_in(root_);
  for (const auto& [step, folder] : std::views::reverse(checkpoints))
    if (folder != newest && kept++ >= keep_) try_to_remove_checkpoint(folder);
}

std::string CheckpointFolder::save(
    const std::vector<Module::Parameter>& weights, const Optimizer& optimizer, const TrainingState& state) const {
  if (state.updates() != optimizer.steps()) {
    fail("checkpoint", "step ", state.step, " given",
        state.skipped ? to_text(", ", state.skipped, " of them skipped,") : "", " and the optimiser has taken ",
        optimizer.steps(), "; the same required");
  }
  require_finite(named(weights));
  require_finite(moments_of(optimizer));
  const fs::path folder = fs::path(root_) / folder_name(state.step), temporary = temporary_folder(folder);
  try {
    remove_whole(temporary.string());
    fs::create_directory(temporary);
    const std::string seal = write_safetensors(
        (temporary / optimizer_file).string(), {moments_of(optimizer), {{step_key, std::to_string(state.step)}}});
    write_safetensors((temporary / weights_file).string(), {named(weights), metadata_of(state, seal)});
    sync_folder(temporary.string());
    publish(temporary, folder);
    sync_folder(root_);
  } catch (const fs::filesystem_error& problem) {
    try_to_remove(temporary);
    throw SystemError(folder.string(), ": checkpoint: cannot save: ", problem.code().message());
  } catch (...) {
    try_to_remove(temporary);
    throw;
  }
  try_to_remove(temporary);  // after an exchange: the old checkpoint
  remove_old(folder.string());
  return folder.string();
}

std::optional<std::string> find_latest(const std::string& root) {
  const auto checkpoints = checkpoints_in(root);
  if (checkpoints.empty()) return {};
  return checkpoints.back().second.string();
}

TrainingState read_training_state(const std::string& folder, Trust* trust) { return read_weights(folder, trust).state; }

TrainingState load_checkpoint(
    const std::string& folder, const std::vector<Module::Parameter>& weights, Optimizer* optimizer, Trust* trust) {
  const WeightsFile saved = read_weights(folder, trust);
  note_not_finite((fs::path(folder) / weights_file).string(), saved.file.tensors, trust);
  Comparison comparison;
  comparison.match(weights_file, saved.file.tensors, named(weights));
  if (optimizer) comparison.match(optimizer_file, read_moments(folder, saved, trust), moments_of(*optimizer));
  comparison.require_none(folder);
  comparison.apply();
  if (optimizer) optimizer->set_steps(saved.state.updates());
  return saved.state;
}

void save_weights(const std::string& path, const std::vector<Module::Parameter>& weights) {
  require_finite(named(weights));
  write_safetensors(path, {named(weights)});
}

void load_weights(const std::string& path, const std::vector<Module::Parameter>& weights, Trust* trust) {
  Comparison comparison;
  const SafetensorsFile file = read_safetensors(path, trust);
  comparison.match("the file", file.tensors, named(weights));
  comparison.require_none(path);
  comparison.apply();
  if (trust && file.seal.empty()) {
    trust->notes.push_back(to_text(
        path, ": holds no checksum (metadata ", seal_key, "); whether its bytes are as they were cannot be told"));
  }
  note_not_finite(path, file.tensors, trust);
}

}  // namespace whence
