#include "examples/whence/language/saved_model.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/machine/memory.h"
#include "examples/whence/run/run_files.h"
#include "examples/whence/run/run_record.h"
#include "nn/io/checkpoint.h"
#include "nn/io/files.h"
#include "tensor/raw.h"

namespace whence::language {
namespace {

// A field of a model's options: its value as text, and a function that reads it back. The function returns what is
// required if the text is unsuitable.
struct Field {
  std::string name, text;
  std::function<std::string(const std::string&)> read;
};

// Limits sizes: a model is built before its weights are read, and a file must not request more than any machine holds.
Field field(const char* name, index_t& value, index_t most = index_t{1} << 24) {
  return {to_text("model.", name), std::to_string(value), [&value, most](const std::string& text) -> std::string {
            const auto number = parse_number<index_t>(text);
            value = number.value_or(0);
            return !number ? "a number" : value < 0 || value > most ? to_text("0 to ", most) : "";
          }};
}
Field field(const char* name, double& value) {
  return {to_text("model.", name), exact(value), [&value](const std::string& text) {
            const auto number = parse_number<double>(text);
            value = number.value_or(0);
            return number ? "" : "a number";
          }};
}
Field field(const char* name, std::string& value) {
  return {to_text("model.", name), value, [&value](const std::string& text) { return value = text, ""; }};
}
// `names`: the enumeration's values, in order.
template <class Enumeration> Field field(const char* name, Enumeration& value, const std::vector<std::string>& names) {
  return {to_text("model.", name), names.at(static_cast<std::size_t>(value)),
      [&value, names](const std::string& text) -> std::string {
        const auto found = std::ranges::find(names, text);
        if (found == names.end()) return "a name such as " + names.front();
        value = static_cast<Enumeration>(found - names.begin());
        return {};
      }};
}
Field field(const char* name, bool& value) { return field(name, value, {"false", "true"}); }

std::vector<Field> fields_of(TransformerOptions& options) {
  return {field("vocabulary", options.vocabulary), field("outputs", options.outputs), field("length", options.length),
      field("dim", options.dim), field("layers", options.layers, 1024), field("heads", options.heads),
      field("kv_heads", options.kv_heads), field("hidden", options.hidden),
      field("activation", options.activation, {"gelu", "gelu_erf", "relu", "swiglu"}),
      field("norm", options.norm, {"layer", "rms"}),
      field("norm_place", options.norm_place, {"before", "after", "parallel"}),
      field("initialisation", options.initialisation, {"gpt2", "neox", "llama", "ram", "che"}),
      field("scheme", options.scheme), field("executor", options.executor), field("causal", options.causal),
      field("bias", options.bias), field("attention_bias", options.attention_bias), field("tied", options.tied),
      field("scale_embedding", options.scale_embedding), field("dropout", options.dropout),
      field("pattern_dropout", options.pattern_dropout), field("hidden_dropout", options.hidden_dropout)};
}

const std::string unsaid = "model.kv_heads";  // absent if 0, as in runs older than the field

bool fits(TransformerOptions options) {
  options.layers = 1;  // one layer is enough for the check
  try {
    (void)planned_parameters(options);
    return true;
  } catch (const InputError&) { return false; }
}

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

Facts language_facts(const TransformerOptions& model, const Tokeniser& tokeniser) {
  Facts facts;
  TransformerOptions options = model;
  for (const Field& each : fields_of(options))
    if (each.name != unsaid || options.kv_heads) facts.emplace_back(each.name, each.text);
  facts.emplace_back("tokeniser.kind", tokeniser.kind());
  facts.emplace_back("tokeniser.sha256", tokeniser.hash());
  return facts;
}

TransformerOptions model_of(const Facts& facts, const std::string& place) {
  const auto refuse = [&](const std::string& name, const std::string& value, const std::string& required) {
    throw FileError(
        place, ": ", name, ": ", in_quotes(value), " found; ", required, " required; is it of another version?");
  };
  TransformerOptions options;
  const std::vector<Field> fields = fields_of(options);
  for (const auto& [name, text, read] : fields) {
    const auto fact = std::ranges::find(facts, name, &Facts::value_type::first);
    if (fact == facts.end() && name == unsaid) continue;
    if (fact == facts.end()) refuse(name, "", "the options of a language model's training");
    const std::string required = read(fact->second);
    if (!required.empty()) refuse(name, fact->second, required);
  }
  // Refuses an option that only another version knows; it would be lost.
  for (const auto& [name, value] : facts)
    if (name.starts_with("model.") && std::ranges::count(fields, name, &Field::name) == 0)
      refuse(name, value, "an option of this version's models");
  return options;
}

void require_same_meaning(const RunRecord& record, const TransformerOptions& model, const std::string& place) {
  TransformerOptions ours = model;
  for (const Field& each : fields_of(ours)) {
    const std::string option = each.name.substr(std::string("model.").size());
    const auto fact = std::ranges::find(record.facts, each.name, &Facts::value_type::first);
    const std::string had = fact == record.facts.end() ? record.option(option) : fact->second;
    for (const char* const name : {"heads", "activation", "norm", "norm_place", "causal", "scale_embedding"})
      if (option == name && !had.empty() && had != each.text)
        throw InputError("--weights-of: ", place, " has ", name, ' ', in_quotes(had), ", the model ",
            in_quotes(each.text), "; the same required");
  }
}

SavedModel language_model_without_weights(const std::string& folder, const std::string& executor) {
  const std::string place = folder + "/run.json", file = folder + '/' + tokeniser_file;
  const RunRecord record = read_run_record(place);
  if (!is_of_text(record))
    throw FileError(folder, ": a run of ", record.subject,
        " given; one of `whence train lm` required, from which text can be drawn");
  const Facts& facts = record.facts;
  TransformerOptions options = model_of(facts, place);
  if (!options.causal) throw FileError(place, ": model.causal: \"false\" found; true required, as text is drawn");
  if (!executor.empty()) options.executor = executor;
  SavedModel saved{nullptr, load_tokeniser(file)};
  const auto hash = std::ranges::find(facts, "tokeniser.sha256", &Facts::value_type::first);
  if (hash == facts.end() || hash->second != saved.tokeniser->hash())
    throw FileError(file, ": tokeniser: another than in training given; the one that ", place, " names required");
  if (saved.tokeniser->vocabulary() != options.vocabulary)
    throw FileError(file, ": tokeniser: it has ", saved.tokeniser->vocabulary(), " tokens and the model ",
        options.vocabulary, "; the tokeniser that the model was trained with required");
  try {
    require_room_for(options, place, folder + "/weights.safetensors");
    saved.model = std::make_unique<Transformer>(options);
  } catch (const FileError&) { throw; } catch (const InputError& unfit) {
    if (!executor.empty() && fits(model_of(facts, place))) throw;  // its own executor fits, so --executor is at fault
    throw FileError(place, ": ", unfit.what());
  }
  return saved;
}

SavedModel load_language_model(const std::string& folder, const std::string& executor) {
  SavedModel saved = language_model_without_weights(folder, executor);
  load_weights(folder + "/weights.safetensors", saved.model->parameters());
  return saved;
}

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
