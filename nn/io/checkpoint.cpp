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
#include <nlohmann/json.hpp>

#include "nn/io/files.h"
#include "nn/io/safetensors.h"
#include "tensor/raw.h"

namespace whence {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

constexpr std::int64_t format_version = 1;
constexpr std::uint64_t state_limit = 16 << 20;

// ---- Names of folders

std::string folder_name(index_t step) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "step-%06lld", static_cast<long long>(step));
  return digits;
}

// The step of a complete checkpoint's folder; nothing for temporary and foreign names.
std::optional<index_t> step_of(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  std::error_code ignored;
  if (!name.starts_with("step-") || !entry.is_directory(ignored)) return {};
  index_t step = 0;
  const char* const end = name.data() + name.size();
  const auto [stop, problem] = std::from_chars(name.data() + 5, end, step);
  return problem == std::errc() && stop == end && step >= 0 ? std::optional(step) : std::nullopt;
}

std::vector<std::pair<index_t, fs::path>> checkpoints_in(const std::string& root) {
  std::vector<std::pair<index_t, fs::path>> found;
  std::error_code problem;
  for (const fs::directory_entry& entry : fs::directory_iterator(root, problem))
    if (const auto step = step_of(entry)) found.emplace_back(*step, entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

fs::path temporary_name(const fs::path& folder) { return to_text(folder.string(), ".tmp-", ::getpid()); }

// Renamed first: a kill half-way leaves a temporary name, not half a checkpoint.
void remove_checkpoint(const fs::path& folder) {
  const fs::path condemned = temporary_name(folder);
  fs::rename(folder, condemned);
  fs::remove_all(condemned);
}

// ---- What is saved

NamedTensors named(const std::vector<Module::Parameter>& parameters) {
  NamedTensors weights;
  for (const Module::Parameter& parameter : parameters) weights.emplace_back(parameter.path, parameter.tensor);
  return weights;
}

NamedTensors moments_of(const Adam& optimizer) {
  NamedTensors moments;
  for (std::size_t k = 0; k < optimizer.parameters().size(); ++k) {
    moments.emplace_back("first." + optimizer.parameters()[k].path, optimizer.moments()[k].first);
    moments.emplace_back("second." + optimizer.parameters()[k].path, optimizer.moments()[k].second);
  }
  return moments;
}

void require_finite(const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) {
    const Tensor numbers = raw::contiguous(raw::cast(raw::to_device(tensor.detach(), Device::cpu()), DType::f64));
    const double* const begin = numbers.data<double>();
    const double* const end = begin + numbers.numel();
    const double* const wrong = std::find_if(begin, end, [](double x) { return !std::isfinite(x); });
    if (wrong == end) continue;
    fail("checkpoint", name, " ", tensor.shape(), " holds ", *wrong, " at element ", wrong - begin,
        "; finite numbers required; the checkpoints saved before are kept");
  }
}

void write_state(const fs::path& path, const TrainingState& state) {
  Json json = {{"format", format_version}, {"step", state.step}, {"seed", state.seed}, {"facts", state.facts}};
  if (state.skipped > 0) json["skipped"] = state.skipped;
  std::string text;
  try {
    text = json.dump(2) + "\n";
  } catch (const Json::exception& problem) {
    fail("checkpoint", "a fact is not UTF-8; UTF-8 required (", problem.what(), ")");
  }
  write_file(path.string(), {std::as_bytes(std::span(text))});
}

void write_folder(
    const fs::path& folder, const NamedTensors& weights, const Adam& optimizer, const TrainingState& state) {
  const std::vector<std::pair<std::string, std::string>> metadata{{"whence.step", std::to_string(state.step)}};
  write_safetensors((folder / "weights.safetensors").string(), {weights, metadata});
  write_safetensors((folder / "optimizer.safetensors").string(), {moments_of(optimizer), metadata});
  write_state(folder / "state.json", state);
  sync_folder(folder.string());
}

// ---- What is loaded

// One tensor of a file beside the tensor it goes to.
struct Restored {
  Tensor from, to;
};

// Collects all that does not fit, so that one error can list it.
struct Comparison {
  std::vector<Restored> matched;
  std::string problems;

  void note(const std::string& problem) { problems += (problems.empty() ? "" : "; ") + problem; }

  void match(const std::string& file, const NamedTensors& given, const NamedTensors& wanted) {
    const std::map<std::string, Tensor> found(given.begin(), given.end());
    const std::map<std::string, Tensor> names(wanted.begin(), wanted.end());
    for (const auto& [name, tensor] : wanted) {
      const auto entry = found.find(name);
      if (entry == found.end()) {
        note(to_text(file, " lacks ", name, " ", tensor.dtype(), " ", tensor.shape()));
      } else if (!(entry->second.shape() == tensor.shape()) || entry->second.dtype() != tensor.dtype()) {
        note(to_text(name, " is ", entry->second.dtype(), " ", entry->second.shape(), " in ", file, " and ",
            tensor.dtype(), " ", tensor.shape(), " here"));
      } else {
        matched.push_back({entry->second, tensor});
      }
    }
    for (const auto& [name, tensor] : given)
      if (!names.count(name)) note(to_text(file, " has ", name, " ", tensor.shape(), ", which this run has not"));
  }

  void require_none(const std::string& place) const {
    if (!problems.empty())
      throw InputError(place, ": checkpoint: does not fit: ", problems, "; load it with the options it was made with");
  }

  void apply() const {
    for (const Restored& tensor : matched) raw::copy_into(raw::to_device(tensor.from, tensor.to.device()), tensor.to);
  }
};

// The file's tensors; notes when the file belongs to another step than state.json, as after copying files by hand.
NamedTensors read_part(const fs::path& folder, const char* name, const TrainingState& state, Comparison& comparison) {
  SafetensorsFile file = read_safetensors((folder / name).string());
  const std::pair<std::string, std::string> expected{"whence.step", std::to_string(state.step)};
  if (std::find(file.metadata.begin(), file.metadata.end(), expected) == file.metadata.end())
    comparison.note(to_text(name, " is not of step ", state.step, ", as state.json is"));
  return std::move(file.tensors);
}

}  // namespace

CheckpointFolder::CheckpointFolder(const std::string& root, std::int64_t keep) : root_(root), keep_(keep) {
  if (keep < 0) throw InputError(root, ": checkpoint: ", keep, " checkpoints to keep given; 0 (all) or more required");
  std::error_code problem;
  fs::create_directories(root, problem);
  const std::string lock = (fs::path(root) / "lock").string();
  lock_ = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock_ < 0)
    throw InputError(root, ": checkpoint: cannot write: ", std::strerror(errno), "; another folder required");
  if (::flock(lock_, LOCK_EX | LOCK_NB) == 0) {
    remove_leftovers();
    return;
  }
  ::close(lock_);
  throw InputError(root, ": checkpoint: another process is saving here; wait for it, stop it, or give another folder");
}

CheckpointFolder::~CheckpointFolder() { ::close(lock_); }

// One that cannot be removed does no harm: its name is never taken for a checkpoint's.
void CheckpointFolder::remove_leftovers() const {
  std::vector<fs::path> leftovers;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(root_, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step-") && name.find(".tmp-") != std::string::npos) leftovers.push_back(entry.path());
  }
  for (const fs::path& leftover : leftovers) fs::remove_all(leftover, ignored);
}

void CheckpointFolder::remove_old(const std::string& newest) const {
  if (keep_ == 0) return;
  std::int64_t kept = 1;
  auto checkpoints = checkpoints_in(root_);
  std::reverse(checkpoints.begin(), checkpoints.end());
  for (const auto& [step, folder] : checkpoints) {
    if (folder == newest || kept++ < keep_) continue;
    remove_checkpoint(folder);
  }
}

std::string CheckpointFolder::save(
    const std::vector<Module::Parameter>& weights, const Adam& optimizer, const TrainingState& state) const {
  if (state.updates() != optimizer.steps()) {
    fail("checkpoint", "step ", state.step, " given",
        state.skipped ? to_text(", ", state.skipped, " of them skipped,") : "", " and the optimiser has taken ",
        optimizer.steps(), "; the same required");
  }
  require_finite(named(weights));
  require_finite(moments_of(optimizer));
  const fs::path folder = fs::path(root_) / folder_name(state.step), temporary = temporary_name(folder);
  try {
    fs::remove_all(temporary);
    fs::create_directory(temporary);
    write_folder(temporary, named(weights), optimizer, state);
    // A rename cannot replace a folder that holds files; an exchange can, without an instant at which neither is there.
    const unsigned exchange = fs::exists(folder) ? RENAME_EXCHANGE : 0;
    if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, folder.c_str(), exchange) != 0)
      throw Error(folder.string(), ": checkpoint: cannot publish: ", std::strerror(errno));
    fs::remove_all(temporary);  // after an exchange: the old one
    sync_folder(root_);
    remove_old(folder.string());
  } catch (const fs::filesystem_error& problem) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    throw Error(folder.string(), ": checkpoint: cannot save: ", problem.code().message());
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    throw;
  }
  return folder.string();
}

std::optional<std::string> find_latest(const std::string& root) {
  const auto checkpoints = checkpoints_in(root);
  if (checkpoints.empty()) return {};
  return checkpoints.back().second.string();
}

TrainingState read_training_state(const std::string& folder) {
  const std::string path = (fs::path(folder) / "state.json").string();
  const Json json = Json::parse(InputFile(path).text(state_limit), nullptr, false);
  if (json.is_discarded() || !json.is_object())
    throw InputError(path, ": checkpoint: is no JSON object; is the file damaged?");
  const auto format = json.find("format");
  if (format != json.end() && format->is_number_integer() && *format != format_version)
    throw InputError(path, ": checkpoint: has format ", format->dump(), "; this build reads format ", format_version);
  const auto is_count = [&](const char* key) { return json.contains(key) && json[key].is_number_unsigned(); };
  const bool counts =
      is_count("format") && is_count("step") && is_count("seed") && json["step"].get<std::uint64_t>() <= INT64_MAX;
  if (!counts || !json.contains("facts") || !json["facts"].is_object())
    throw InputError(path, ": checkpoint: lacks format, step, seed or facts; whole numbers and an object required");
  TrainingState state{.step = json["step"].get<index_t>(), .seed = json["seed"].get<std::uint64_t>()};
  if (is_count("skipped")) state.skipped = std::min(json["skipped"].get<index_t>(), state.step);
  for (const auto& [key, value] : json["facts"].items()) {
    if (!value.is_string())
      throw InputError(path, ": checkpoint: fact '", key, "' is ", value.type_name(), "; text required");
    state.facts[key] = value.get<std::string>();
  }
  return state;
}

TrainingState load_checkpoint(
    const std::string& folder, const std::vector<Module::Parameter>& weights, Adam* optimizer) {
  TrainingState state = read_training_state(folder);
  Comparison comparison;
  comparison.match("weights.safetensors", read_part(folder, "weights.safetensors", state, comparison), named(weights));
  if (optimizer)
    comparison.match(
        "optimizer.safetensors", read_part(folder, "optimizer.safetensors", state, comparison), moments_of(*optimizer));
  comparison.require_none(folder);
  comparison.apply();
  if (optimizer) optimizer->set_steps(state.updates());
  return state;
}

void save_weights(const std::string& path, const std::vector<Module::Parameter>& weights) {
  require_finite(named(weights));
  write_safetensors(path, {named(weights), {}});
}

void load_weights(const std::string& path, const std::vector<Module::Parameter>& weights) {
  Comparison comparison;
  comparison.match("the file", read_safetensors(path).tensors, named(weights));
  comparison.require_none(path);
  comparison.apply();
}

}  // namespace whence
