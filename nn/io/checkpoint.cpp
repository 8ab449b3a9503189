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
#include "nn/io/json_text.h"
#include "nn/io/safetensors.h"
#include "nn/io/safetensors_header.h"
#include "nn/io/sha256.h"
#include "tensor/raw.h"

namespace whence {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

constexpr std::int64_t format_version = 2, format_without_checksums = 1;
constexpr std::uint64_t state_limit = 16 << 20;
constexpr const char *weights_file = "weights.safetensors", *optimizer_file = "optimizer.safetensors";

// ---- Names of folders

std::string folder_name(index_t step) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "step-%06lld", static_cast<long long>(step));
  return digits;
}

// The step of a complete checkpoint's folder; nothing for temporary and foreign names.
std::optional<index_t> step_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  std::error_code ignored;
  if (!name.starts_with("step-") || !fs::is_directory(folder, ignored)) return {};
  index_t step = 0;
  const char* const end = name.data() + name.size();
  const auto [stop, problem] = std::from_chars(name.data() + 5, end, step);
  return problem == std::errc() && stop == end && step >= 0 ? std::optional(step) : std::nullopt;
}

std::vector<std::pair<index_t, fs::path>> checkpoints_in(const std::string& root) {
  std::vector<std::pair<index_t, fs::path>> found;
  for (const std::string& name : names_in(root)) {
    const fs::path folder = fs::path(root) / name;
    if (const auto step = step_of(folder)) found.emplace_back(*step, folder);
  }
  std::sort(found.begin(), found.end());
  return found;
}

fs::path temporary_name(const fs::path& folder) { return to_text(folder.string(), ".tmp-", ::getpid()); }

// Renamed first: a kill half-way leaves a temporary name, not half a checkpoint.
void remove_checkpoint(const fs::path& folder) {
  const fs::path condemned = temporary_name(folder);
  fs::rename(folder, condemned);
  remove_whole(condemned.string());
}

void try_to_remove(const fs::path& path) {
  try {
    remove_whole(path.string());
  } catch (const std::exception&) {  // what stays does no harm: its name is never taken for a checkpoint's
  }
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

// Of one tensor, those that are NaN or infinite.
struct NotFiniteNumbers {
  index_t count = 0, first = 0;
  double example = 0;
};

NotFiniteNumbers not_finite_in(const Tensor& tensor) {
  const Tensor numbers = raw::contiguous(raw::cast(raw::to_device(tensor.detach(), Device::cpu()), DType::f64));
  const std::span all(numbers.data<double>(), static_cast<std::size_t>(numbers.numel()));
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

// Of the text without the line of its own hash: `grep -v '^  "sha256": ' state.json | sha256sum`.
struct StateHash {
  std::string found, said;  // said: empty when no line says it
};

constexpr std::string_view hash_line = "\n  \"sha256\": \"";

StateHash hash_of_state(std::string_view text) {
  StateHash hash;
  Sha256 rest;
  const std::size_t begin = text.find(hash_line), end = text.find('\n', begin == text.npos ? begin : begin + 1);
  if (end != text.npos) {
    const std::string_view line = text.substr(begin, end - begin), value = line.substr(hash_line.size());
    if (value.size() == 66 && value.ends_with("\",")) hash.said = value.substr(0, 64);
    rest.add(text.substr(0, begin));
    text.remove_prefix(end);
  }
  rest.add(text);
  hash.found = rest.hexadecimal();
  return hash;
}

using Hashes = std::map<std::string, std::string>;  // of files, by their names

// Fields in the order of their names.
std::string text_of(const TrainingState& state, const Hashes& files) {
  const auto object = [](const auto& texts) {
    JsonFields fields;
    for (const auto& [name, text] : texts) fields.emplace_back(name, json_string(text, BrokenUtf8::refused));
    return json_object(fields, JsonLayout::page, BrokenUtf8::refused);
  };
  JsonFields fields{{"facts", object(state.facts)}, {"files", object(files)},
      {"format", std::to_string(format_version)}, {"seed", std::to_string(state.seed)},
      {"sha256", json_string(std::string(64, '0'))}};
  if (state.skipped > 0) fields.emplace_back("skipped", std::to_string(state.skipped));
  fields.emplace_back("step", std::to_string(state.step));
  return json_object(fields, JsonLayout::page) + "\n";
}

void write_state(const fs::path& path, const TrainingState& state, const Hashes& files) {
  std::string text;
  try {
    text = text_of(state, files);
  } catch (const Json::exception& problem) {
    fail("checkpoint", "a fact is not UTF-8; UTF-8 required (", problem.what(), ")");
  }
  text.replace(text.find(hash_line) + hash_line.size(), 64, hash_of_state(text).found);
  write_file(path.string(), text);
}

void write_folder(
    const fs::path& folder, const NamedTensors& weights, const Adam& optimizer, const TrainingState& state) {
  const std::vector<std::pair<std::string, std::string>> metadata{{"whence.step", std::to_string(state.step)}};
  Hashes files;
  const auto write = [&](const char* name, const NamedTensors& tensors) {
    files[name] = write_hashed_safetensors((folder / name).string(), {tensors, metadata});
  };
  write(weights_file, weights);
  write(optimizer_file, moments_of(optimizer));
  write_state(folder / "state.json", state, files);
  sync_folder(folder.string());
}

// ---- What is loaded

// One tensor of a file beside the tensor it goes to.
struct Restored {
  Tensor from, to;
};

// Collects all that does not fit, so that one error can list it: the first few and how many more.
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

// state.json, believed as far as it proves itself.
struct State {
  TrainingState training;
  Hashes files;  // empty where it was written before checksums
};

Hashes checked_hashes(const std::string& path, const std::string& text, const Json& json, Trust* trust) {
  const StateHash hash = hash_of_state(text);
  require_sha256(path, hash.found, hash.said, "its line sha256", trust);
  Hashes files;
  for (const char* const name : {weights_file, optimizer_file}) {
    const auto list = json.find("files");
    const auto said = list != json.end() && list->is_object() ? list->find(name) : json.end();
    if (list == json.end() || !list->is_object() || said == list->end() || !said->is_string())
      throw FileError(path, ": checkpoint: lacks the SHA-256 of ", name, "; that of each file required");
    files[name] = said->get<std::string>();
  }
  return files;
}

State read_state(const std::string& folder, Trust* trust) {
  const std::string path = (fs::path(folder) / "state.json").string();
  const std::string text = InputFile(path).text(state_limit);
  require_json_text(path + ": checkpoint", text);
  const JsonRead<Json> read(Json::parse(text, nullptr, false));
  const Json& json = read.value;
  if (json.is_discarded() || !json.is_object())
    throw FileError(path, ": checkpoint: is no JSON object; is the file damaged?");
  const auto is_count = [&](const char* key) { return json.contains(key) && json[key].is_number_unsigned(); };
  const auto format = is_count("format") ? json["format"].get<std::int64_t>() : 0;
  if (format > format_version) {
    throw DoesNotFit(path, ": checkpoint: has format ", format, "; this build reads formats ", format_without_checksums,
        " to ", format_version, "; load it with the version that wrote it");
  }
  const bool counts =
      format > 0 && is_count("step") && is_count("seed") && json["step"].get<std::uint64_t>() <= INT64_MAX;
  if (!counts || !json.contains("facts") || !json["facts"].is_object())
    throw FileError(path, ": checkpoint: lacks format, step, seed or facts; whole numbers and an object required");
  State state{{.step = json["step"].get<index_t>(), .seed = json["seed"].get<std::uint64_t>()}, {}};
  if (is_count("skipped")) state.training.skipped = std::min(json["skipped"].get<index_t>(), state.training.step);
  for (const auto& [key, value] : json["facts"].items()) {
    if (!value.is_string())
      throw FileError(path, ": checkpoint: fact ", printable(key), " is ", value.type_name(), "; text required");
    state.training.facts[key] = value.get<std::string>();
  }
  if (format > format_without_checksums || json.contains("sha256") || json.contains("files"))
    state.files = checked_hashes(path, text, json, trust);
  else if (trust)
    trust->notes.push_back(
        folder + ": was written before checksums; whether its bytes are as they were cannot be told");
  return state;
}

// The file's tensors; a problem when it belongs to another step than state.json, as after copying files by hand.
NamedTensors read_part(
    const fs::path& folder, const char* name, const State& state, Comparison& comparison, Trust* trust) {
  const std::string path = (folder / name).string();
  const auto hash = state.files.find(name);
  SafetensorsFile file = read_safetensors(path, trust, hash == state.files.end() ? "" : hash->second);
  const std::pair<std::string, std::string> expected{"whence.step", std::to_string(state.training.step)};
  if (std::find(file.metadata.begin(), file.metadata.end(), expected) == file.metadata.end())
    comparison.problems.push_back(to_text(name, " is not of step ", state.training.step, ", as state.json is"));
  note_not_finite(path, file.tensors, trust);
  return std::move(file.tensors);
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
    remove_whole(temporary.string());
    fs::create_directory(temporary);
    write_folder(temporary, named(weights), optimizer, state);
    // A rename cannot replace a folder that holds files; an exchange can, without an instant at which neither is there.
    const unsigned exchange = fs::exists(folder) ? RENAME_EXCHANGE : 0;
    if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, folder.c_str(), exchange) != 0)
      throw SystemError(folder.string(), ": checkpoint: cannot publish: ", std::strerror(errno));
    remove_whole(temporary.string());  // after an exchange: the old one
    sync_folder(root_);
    remove_old(folder.string());
  } catch (const fs::filesystem_error& problem) {
    try_to_remove(temporary);
    throw SystemError(folder.string(), ": checkpoint: cannot save: ", problem.code().message());
  } catch (...) {
    try_to_remove(temporary);
    throw;
  }
  return folder.string();
}

std::optional<std::string> find_latest(const std::string& root) {
  const auto checkpoints = checkpoints_in(root);
  if (checkpoints.empty()) return {};
  return checkpoints.back().second.string();
}

TrainingState read_training_state(const std::string& folder, Trust* trust) {
  return read_state(folder, trust).training;
}

TrainingState load_checkpoint(
    const std::string& folder, const std::vector<Module::Parameter>& weights, Adam* optimizer, Trust* trust) {
  const State state = read_state(folder, trust);
  Comparison comparison;
  const auto match = [&](const char* file, const NamedTensors& wanted) {
    comparison.match(file, read_part(folder, file, state, comparison, trust), wanted);
  };
  match(weights_file, named(weights));
  if (optimizer) match(optimizer_file, moments_of(*optimizer));
  comparison.require_none(folder);
  comparison.apply();
  if (optimizer) optimizer->set_steps(state.training.updates());
  return state.training;
}

void save_weights(const std::string& path, const std::vector<Module::Parameter>& weights) {
  require_finite(named(weights));
  write_safetensors(path, {named(weights), {{content_sha256_key, ""}}});
}

void load_weights(const std::string& path, const std::vector<Module::Parameter>& weights, Trust* trust) {
  Comparison comparison;
  const SafetensorsFile file = read_safetensors(path, trust);
  comparison.match("the file", file.tensors, named(weights));
  comparison.require_none(path);
  comparison.apply();
  if (trust && !file.proven) {
    trust->notes.push_back(to_text(path, ": holds no checksum (metadata ", content_sha256_key,
        "); whether its bytes are as they were cannot be told"));
  }
  note_not_finite(path, file.tensors, trust);
}

}  // namespace whence
