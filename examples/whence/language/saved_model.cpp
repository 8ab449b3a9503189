#include "examples/whence/language/saved_model.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "examples/whence/cli/fields.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/run/run_files.h"
#include "nn/io/checkpoint.h"
#include "nn/io/files.h"
#include "tensor/raw.h"

namespace whence::language {
namespace {

const std::vector<std::string> norms{"layer", "rms"}, norm_places{"before", "after", "parallel"},
    initialisations{"gpt2", "neox", "llama", "ram", "che"};

// A model's options as fields, whose names and values are a run's facts. Sizes are limited: a model is built before its
// weights are read, and a file must not request more than any machine holds.
class ModelFields : public Fields {
 public:
  explicit ModelFields(const TransformerOptions& model) : Fields("model"), model_(model) {
    const auto size = [this](const char* name, index_t* value, index_t most = index_t{1} << 24) {
      integer(name, value, Range<index_t>{0, most}, {});
    };
    size("vocabulary", &model_.vocabulary), size("outputs", &model_.outputs), size("length", &model_.length);
    size("dim", &model_.dim), size("layers", &model_.layers, 1024), size("heads", &model_.heads);
    size("kv_heads", &model_.kv_heads), size("hidden", &model_.hidden);
    choice("activation", &activation_, {"gelu", "gelu_erf", "relu", "swiglu"}, {}), choice("norm", &norm_, norms, {});
    choice("norm_place", &norm_place_, norm_places, {}), choice("initialisation", &drawn_, initialisations, {});
    text("scheme", &model_.scheme, {}), text("executor", &model_.executor, {});
    flag("causal", &model_.causal, {}), flag("bias", &model_.bias, {});
    flag("attention_bias", &model_.attention_bias, {}), flag("tied", &model_.tied, {});
    flag("scale_embedding", &model_.scale_embedding, {});
    for (const auto& [name, value] : {std::pair("dropout", &model_.dropout),
             {"pattern_dropout", &model_.pattern_dropout}, {"hidden_dropout", &model_.hidden_dropout}})
      number(name, value, {}, {});
  }
  ModelFields(const ModelFields&) = delete;

  TransformerOptions model() const {
    const auto number_in = [](const std::vector<std::string>& names, const std::string& name) {
      return std::ranges::find(names, name) - names.begin();
    };
    TransformerOptions model = model_;
    model.activation = activation_of(activation_);
    model.norm = static_cast<NormKind>(number_in(norms, norm_));
    model.norm_place = static_cast<NormPlace>(number_in(norm_places, norm_place_));
    model.initialisation = static_cast<Initialisation>(number_in(initialisations, drawn_));
    return model;
  }

 private:
  TransformerOptions model_;
  std::string activation_ = to_string(model_.activation), norm_ = norms.at(static_cast<std::size_t>(model_.norm)),
              norm_place_ = norm_places.at(static_cast<std::size_t>(model_.norm_place)),
              drawn_ = initialisations.at(static_cast<std::size_t>(model_.initialisation));
};

bool positional(const std::string& path) {
  return path.starts_with("position.") || path.find(".position.") != std::string::npos;
}

}  // namespace

Facts language_facts(const TransformerOptions& model, const Tokeniser& tokeniser) {
  Facts facts;
  for (const auto& [name, value] : ModelFields(model).values())
    if (name != "kv_heads" || model.kv_heads) facts.emplace_back("model." + name, value);
  facts.emplace_back("tokeniser.kind", tokeniser.kind());
  facts.emplace_back("tokeniser.sha256", tokeniser.hash());
  return facts;
}

TransformerOptions model_of(const Facts& facts, const std::string& place) {
  ModelFields fields({});
  for (const auto& [name, value] : facts) try {
      if (name.starts_with("model.")) fields.set(name.substr(6), value);
    } catch (const InputError& unfit) {
      throw FileError(
          place, ": ", name, ": ", in_quotes(value), " found; ", unfit.what(), "; is it of another version?");
    }
  for (const auto& [name, value] : fields.values())
    if (name != "kv_heads" && !fields.given(name))
      throw FileError(place, ": model.", name, ": none found; the options of a language model's training required");
  return fields.model();
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
    if (!executor.empty()) throw;
    throw FileError(place, ": ", unfit.what());
  }
  return saved;
}

SavedModel load_language_model(const std::string& folder, const std::string& executor) {
  SavedModel saved = language_model_without_weights(folder, executor);
  load_weights(folder + "/weights.safetensors", saved.model->parameters());
  return saved;
}

FirstWeights::FirstWeights(const std::string& folder, const TransformerOptions& model) : folder_(folder) {
  std::error_code unreadable;
  const bool is_run = std::filesystem::exists(folder + "/run.json", unreadable);
  if (!is_run && std::filesystem::exists(folder + "/config.json", unreadable))
    throw InputError("--weights-of: ", folder, " given, a model of Hugging Face; the folder of a run required; ",
        "examples/experiments/convert.py makes one of it");
  const RunRecord record = is_run ? read_run_record(folder + "/run.json") : RunRecord();
  const ModelFields fields(model);
  for (const auto& [name, value] : fields.values()) {
    const auto fact = std::ranges::find(record.facts, "model." + name, &Facts::value_type::first);
    const std::string had = fact == record.facts.end() ? record.option(name) : fact->second;
    for (const char* const each : {"heads", "activation", "norm", "norm_place", "causal", "scale_embedding"})
      if (name == each && !had.empty() && had != value)
        throw InputError("--weights-of: ", folder, " has ", name, ' ', in_quotes(had), ", the model ", in_quotes(value),
            "; the same required");
  }
  tensors_ = read_safetensors(folder + "/weights.safetensors").tensors;
  Sha256 hash;
  for (const auto& [name, tensor] : tensors_) {
    hash.add(to_text(name, ' ', tensor.dtype(), ' ', tensor.shape(), '\n'));
    hash.add({tensor.bytes(), static_cast<std::size_t>(tensor.numel()) * size_of(tensor.dtype())});
  }
  hash_ = hash.hexadecimal();
}

std::string FirstWeights::take(const std::vector<Module::Parameter>& into) const {
  std::map<std::string, Tensor> theirs(tensors_.begin(), tensors_.end());
  std::vector<std::string> dropped, fresh;
  std::vector<std::pair<Tensor, Tensor>> pairs;
  for (const Module::Parameter& parameter : into) {
    const auto entry = theirs.find(parameter.path);
    if (entry != theirs.end() && entry->second.shape() == parameter.tensor.shape()) {
      pairs.emplace_back(entry->second, parameter.tensor.detach());
      theirs.erase(entry);
    } else if (positional(parameter.path)) {
      fresh.push_back(parameter.path);
    } else if (entry == theirs.end()) {
      throw InputError("--weights-of: ", folder_, " has no ", parameter.path, "; the same --layers and kinds required");
    } else {
      throw InputError("--weights-of: ", parameter.path, " of ", folder_, " is ", entry->second.shape(),
          ", the model's is ", parameter.tensor.shape(), "; the same --dim, --heads and --tokeniser required");
    }
  }
  for (const auto& [path, tensor] : theirs) {
    if (!positional(path))
      throw InputError(
          "--weights-of: ", folder_, " has ", path, ", which the model lacks; the same --layers and kinds required");
    dropped.push_back(path);
  }
  for (const auto& [source, target] : pairs) raw::copy_into(raw::to_device(source, target.device()), target);
  const auto list = [](const std::vector<std::string>& names) {
    return names.empty() ? "none" : first_few(names, ", ");
  };
  return to_text("weights: ", pairs.size(), " tensors of ", one_line(folder_), "; dropped: ", list(dropped),
      "; new: ", list(fresh));
}

}  // namespace whence::language
