// Prints the named models, with any positional scheme: their parts and parameter counts; and plans their training.
#include <algorithm>
#include <iostream>
#include <map>

#include "examples/whence/cli/command.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/words.h"
#include "examples/whence/machine/model_plan.h"
#include "examples/whence/machine/named_models.h"
#include "examples/whence/report/table.h"
#include "nn/attention/plan.h"
#include "tensor/error.h"

namespace whence {
namespace {

std::string in_millions(index_t count) { return fixed(static_cast<double>(count) / 1e6, 2); }

// Replaces the number of the block: "blocks.3.mlp.in.weight" counts for "blocks.*.mlp.in.weight".
std::string without_number(std::string path) {
  const std::size_t dot = path.find('.', 7);
  return path.starts_with("blocks.") ? "blocks.*" + path.substr(dot) : path;
}

void print_all(const std::string& scheme) {
  Table table({"model", "layers", "dim", "heads", "vocabulary", "length", "scheme", "parameters", "M", "what it is"});
  for (const NamedModel& named : named_models()) {
    const TransformerOptions options = named_model(named.name, scheme);
    const PlannedModules planned;
    const Transformer model(options);
    table.row({named.name, to_text(options.layers), to_text(options.dim),
        options.kv_heads ? to_text(options.heads, '/', options.kv_heads) : to_text(options.heads),
        to_text(options.vocabulary), to_text(options.length), model.scheme(), to_text(model.parameter_count()),
        in_millions(model.parameter_count()), named.description});
  }
  std::cout << table.text();
}

void print_one(const std::string& name, const std::string& scheme) {
  const PlannedModules planned;
  const Transformer model(named_model(name, scheme));
  std::vector<Module::Parameter> firsts;  // the first parameter of each path
  std::map<std::string, index_t> times;
  for (const Module::Parameter& parameter : model.parameters())
    if (times[without_number(parameter.path)]++ == 0) firsts.push_back(parameter);
  Table table({"parameter", "shape", "times", "numbers", "at first"});
  for (const Module::Parameter& first : firsts) {
    const std::string path = without_number(first.path);
    table.row({path, to_text(first.tensor.shape()), to_text(times[path]), to_text(times[path] * first.tensor.numel()),
        first.init.text()});
  }
  const auto executor = [&](Device device) {
    return model.attention(0).explain(device, DType::f32, 1, model.options().length, model.options().causal);
  };
  std::cout << table.text() << name << " with " << model.scheme() << ": " << model.parameter_count() << " parameters ("
            << in_millions(model.parameter_count()) << " M)\nattention of one sequence in f32: on the CPU "
            << executor(Device::cpu()) << "; on a GPU " << executor(Device::cuda(0)) << '\n';
}

struct Options {
  std::string scheme, lengths, executor = "auto";
  std::vector<std::string> models;
  std::int64_t batch = 1;
  bool plan = false;
};

// Refuses a name that is given twice.
template <class T> std::vector<T> once(const char* what, const std::vector<T>& list) {
  for (auto each = list.begin(); each != list.end(); ++each)
    if (std::find(list.begin(), each, *each) != each)
      throw InputError(what, ": ", *each, " given twice; once required; remove one of them");
  return list;
}

std::vector<std::string> schemes_of(const std::string& text) {
  std::vector<std::string> schemes;
  for (const std::string& scheme : list_of(text)) schemes.push_back(canonical_text(parse_schemes(scheme)));
  return once("--scheme", schemes);
}

std::vector<PlannedModel> planned_models(const Options& options) {
  std::vector<PlannedModel> models;
  for (const std::string& name : once("MODEL", options.models)) {
    const TransformerOptions own = named_model(name);
    const std::string lengths = options.lengths.empty() ? to_text(own.length) : options.lengths;
    for (const std::string& scheme : schemes_of(options.scheme.empty() ? own.scheme : options.scheme)) {
      for (const std::int64_t length : once("--lengths", numbers_of(lengths, "--lengths"))) {
        models.push_back({name, named_model(name, scheme), length, options.batch});
        models.back().options.executor = options.executor;
      }
    }
  }
  return models;
}

void declare_options(CommandLine& line, Options& options) {
  line.names("[MODEL...]", &options.models, "models to show parameter by parameter, or to plan")
      .text("scheme", &options.scheme,
          {.help = "positional scheme in place of the model's own; to plan several, with commas between them",
              .known = scheme_names()});
  line.heading("Planning")
      .flag("plan", &options.plan, {"operations per token, and bytes of a training step by part"})
      .text("lengths", &options.lengths, {.help = "sequence lengths", .unit = "tokens", .initial = "the model's"})
      .integer("batch", &options.batch, Range<std::int64_t>{1, 65536}, {"batch size", "sequences"})
      .choice("executor", &options.executor, executor_names(), {"how attention is computed"});
  line.example("whence models", "all of them")
      .example(
          "whence models gpt2-124m --scheme 'cope(table=shared)'", "CoPE's WikiText-103 model: 123.66 M parameters")
      .example("whence models --plan neox-2.7b neox-6.7b --scheme 'alibi,cope,cdape(kerple)'",
          "their operations and memory, without training");
}

int run(CommandLine& line) {
  Options options;
  declare_options(line, options);
  if (line.shows_page()) return 0;
  for (const char* option : {"lengths", "batch", "executor"}) line.refuse_unless(option, options.plan, "--plan");
  if (options.plan) {
    if (options.models.empty())
      for (const NamedModel& model : named_models()) options.models.push_back(model.name);
    std::cout << plan_text(planned_models(options));
  } else if (options.models.empty()) {
    print_all(options.scheme);
  } else {
    for (const std::string& model : once("MODEL", options.models)) print_one(model, options.scheme);
  }
  return 0;
}

const RegisterCommand registered{
    {"models", Purpose::learn, "the papers' models: one parameter by parameter, or the cost of training", run}};

}  // namespace
}  // namespace whence
