#include "examples/whence/language/first_weights.h"

#include <filesystem>
#include <map>

#include "nn/io/files.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence::language {
namespace {

bool positional(const std::string& path) {
  return path.starts_with("position.") || path.find(".position.") != std::string::npos;
}

// Names the option that decides a size.
std::string option_of(const std::string& path) {
  if (path == "embedding.weight" || path == "head.weight") return "--tokeniser, whose tokens are the rows, and --dim";
  if (path.find(".attention.key.") != std::string::npos || path.find(".attention.value.") != std::string::npos)
    return "--dim, --heads and --kv-heads";
  return path.find(".mlp.") != std::string::npos ? "--dim, which the MLP's size follows," : "--dim";
}

}  // namespace

FirstWeights read_first_weights(const std::string& folder) {
  std::error_code unreadable;
  if (std::filesystem::exists(folder + "/config.json", unreadable) &&
      !std::filesystem::exists(folder + "/run.json", unreadable))
    throw InputError("--weights-of: ", folder, " given, a model of Hugging Face; the folder of a run required; ",
        "examples/experiments/convert.py makes one of it");
  FirstWeights found{read_safetensors(folder + "/weights.safetensors").tensors, {}};
  Sha256 hash;
  for (const auto& [name, tensor] : found.tensors) {
    hash.add(to_text(name, ' ', tensor.dtype(), ' ', tensor.shape(), '\n'));
    hash.add({tensor.bytes(), static_cast<std::size_t>(tensor.numel()) * size_of(tensor.dtype())});
  }
  found.sha256 = hash.hexadecimal();
  return found;
}

Taken take_weights(const NamedTensors& from, const std::vector<Module::Parameter>& into, const std::string& place) {
  std::map<std::string, Tensor> theirs(from.begin(), from.end());
  Taken found;
  std::vector<std::pair<Tensor, Tensor>> pairs;
  for (const Module::Parameter& parameter : into) {
    const auto entry = theirs.find(parameter.path);
    if (entry != theirs.end() && entry->second.shape() == parameter.tensor.shape()) {
      pairs.emplace_back(entry->second, parameter.tensor.detach());
      theirs.erase(entry);
    } else if (positional(parameter.path)) {
      found.fresh.push_back(parameter.path);
    } else if (entry == theirs.end()) {
      throw InputError("--weights-of: ", place, " has no ", parameter.path, "; the same --layers and kinds required");
    } else {
      throw InputError("--weights-of: ", parameter.path, " of ", place, " is ", entry->second.shape(),
          ", the model's is ", parameter.tensor.shape(), "; the same required: ", option_of(parameter.path));
    }
  }
  for (const auto& [path, tensor] : theirs) {
    if (!positional(path))
      throw InputError(
          "--weights-of: ", place, " has ", path, ", which the model lacks; the same --layers and kinds required");
    found.dropped.push_back(path);
  }
  for (const auto& [source, target] : pairs) raw::copy_into(raw::to_device(source, target.device()), target);
  found.taken = pairs.size();
  return found;
}

}  // namespace whence::language
