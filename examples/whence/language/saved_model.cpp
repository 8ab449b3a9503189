#include "examples/whence/language/saved_model.h"

#include <algorithm>
#include <set>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/machine/memory_plan.h"
#include "examples/whence/run/loading.h"
#include "examples/whence/run/run_record.h"
#include "nn/io/checkpoint.h"

namespace whence::language {
namespace {

// Enumerations by name, in the order of their declarations.
const std::vector<std::string> activations{"gelu", "gelu_erf", "relu", "swiglu"};
const std::vector<std::string> norms{"layer", "rms"};
const std::vector<std::string> places{"before", "after", "parallel"};
const std::vector<std::string> initialisations{"gpt2", "neox", "llama", "ram", "che"};

// Walks over all fields once, in either direction:
// `Visitor` takes (name, field) and (name, field, names of an enumeration).
template <class Visitor, class Options> void visit_fields(Options& options, Visitor&& visitor) {
  visitor("vocabulary", options.vocabulary), visitor("outputs", options.outputs), visitor("length", options.length);
  visitor("dim", options.dim), visitor("layers", options.layers), visitor("heads", options.heads),
      visitor("hidden", options.hidden);
  visitor("activation", options.activation, activations), visitor("norm", options.norm, norms);
  visitor("norm_place", options.norm_place, places), visitor("initialisation", options.initialisation, initialisations);
  visitor("scheme", options.scheme), visitor("executor", options.executor);
  visitor("causal", options.causal), visitor("bias", options.bias), visitor("attention_bias", options.attention_bias);
  visitor("tied", options.tied), visitor("scale_embedding", options.scale_embedding);
  visitor("dropout", options.dropout), visitor("pattern_dropout", options.pattern_dropout);
  visitor("hidden_dropout", options.hidden_dropout);
}

// One fact for each field, as text that reads back as the same value.
struct ToFacts {
  Facts& facts;

  void add(const char* name, std::string text) const { facts.emplace_back(to_text("model.", name), std::move(text)); }
  void operator()(const char* name, index_t value) const { add(name, std::to_string(value)); }
  void operator()(const char* name, double value) const { add(name, exact(value)); }
  void operator()(const char* name, bool value) const { add(name, value ? "true" : "false"); }
  void operator()(const char* name, const std::string& value) const { add(name, value); }
  template <class Enumeration>
  void operator()(const char* name, Enumeration value, const std::vector<std::string>& names) const {
    add(name, names.at(static_cast<std::size_t>(value)));
  }
};

// Reads each field from its fact, and knows in the end which facts nobody read.
class FromFacts {
 public:
  FromFacts(const Facts& facts, const std::string& place) : facts_(facts), place_(place) {}

  // A model is built before its weights are read: a file must not ask for more than any machine holds.
  void operator()(const char* name, index_t& value) {
    take(parse_number<index_t>(text_of(name)), name, value);
    const index_t most = name == std::string_view("layers") ? 1024 : index_t{1} << 24;
    if (value < 0 || value > most) refuse(to_text("model.", name), text_of(name), to_text("0 to ", most));
  }
  void operator()(const char* name, double& value) { take(parse_number<double>(text_of(name)), name, value); }
  void operator()(const char* name, bool& value) { value = choose(name, {"false", "true"}) == 1; }
  void operator()(const char* name, std::string& value) { value = text_of(name); }
  template <class Enumeration>
  void operator()(const char* name, Enumeration& value, const std::vector<std::string>& names) {
    value = static_cast<Enumeration>(choose(name, names));
  }

  // What another version of the program knew more of would be lost.
  void refuse_unread() const {
    for (const auto& [name, value] : facts_)
      if (name.starts_with("model.") && !read_.contains(name))
        refuse(name, value, "an option of this version's models");
  }

 private:
  [[noreturn]] void refuse(const std::string& name, const std::string& value, const std::string& required) const {
    throw FileError(
        place_, ": ", name, ": ", in_quotes(value), " found; ", required, " required; is it of another version?");
  }

  const std::string& text_of(const char* name) {
    const std::string whole = to_text("model.", name);
    read_.insert(whole);
    const auto found = std::ranges::find(facts_, whole, &Facts::value_type::first);
    if (found == facts_.end()) refuse(whole, "", "the options of a language model's training");
    return found->second;
  }

  template <class Number> void take(const std::optional<Number>& read, const char* name, Number& value) {
    if (!read) refuse(to_text("model.", name), text_of(name), "a number");
    value = *read;
  }

  std::size_t choose(const char* name, const std::vector<std::string>& names) {
    const auto found = std::ranges::find(names, text_of(name));
    if (found == names.end()) refuse(to_text("model.", name), text_of(name), to_text("a name such as ", names.front()));
    return static_cast<std::size_t>(found - names.begin());
  }

  const Facts& facts_;
  const std::string& place_;
  std::set<std::string> read_;
};

bool fits(TransformerOptions options) {
  options.layers = 1;  // as good as all of them
  try {
    const Transformer trial(options);
    return true;
  } catch (const InputError&) { return false; }
}

}  // namespace

Facts language_facts(const TransformerOptions& model, const Tokeniser& tokeniser) {
  Facts facts;
  visit_fields(model, ToFacts{facts});
  facts.emplace_back("tokeniser.kind", tokeniser.kind());
  facts.emplace_back("tokeniser.sha256", tokeniser.hash());
  return facts;
}

TransformerOptions model_of(const Facts& facts, const std::string& place) {
  TransformerOptions options;
  FromFacts reader(facts, place);
  visit_fields(options, reader);
  reader.refuse_unread();
  return options;
}

SavedModel language_model_without_weights(const std::string& folder, const std::string& executor) {
  const std::string place = folder + "/run.json", file = folder + '/' + tokeniser_file;
  const RunRecord record = read_run_record(place);
  if (record.subject != "lm")
    throw FileError(folder, ": a run of ", record.subject,
        " given; one of `whence train lm` required, which leaves text to draw from");
  const Facts& facts = record.facts;
  TransformerOptions options = model_of(facts, place);
  if (!options.causal) throw FileError(place, ": model.causal: \"false\" found; true required, as text is drawn");
  if (!executor.empty()) options.executor = executor;
  SavedModel saved{nullptr, load_tokeniser(file)};
  const auto hash = std::ranges::find(facts, "tokeniser.sha256", &Facts::value_type::first);
  if (hash == facts.end() || hash->second != saved.tokeniser->hash())
    throw FileError(file, ": tokeniser: another than in training given; the one that ", place, " names required");
  require_same_vocabulary(*saved.tokeniser, options.vocabulary);
  require_weights_of(options, place, folder + "/weights.safetensors");
  require_memory(options, Device::cpu(), 1);
  try {
    saved.model = std::make_unique<Transformer>(options);
  } catch (const InputError& unfit) {
    if (!executor.empty() && fits(model_of(facts, place))) throw;  // with its own executor: --executor is at fault
    throw FileError(place, ": ", unfit.what());
  }
  return saved;
}

SavedModel load_language_model(const std::string& folder, const std::string& executor, bool accept_damaged) {
  SavedModel saved = language_model_without_weights(folder, executor);
  load(folder + "/weights.safetensors", saved.model->parameters(), accept_damaged);
  return saved;
}

}  // namespace whence::language
