// models: prints the named models, with any positional scheme: their parts and parameter counts; and plans their training.
#include <algorithm>
#include <iostream>
#include <map>

#include "examples/whence/cli/command.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/machine/memory.h"
#include "examples/whence/machine/models.h"
#include "examples/whence/report/table.h"
#include "nn/scheme.h"

namespace whence {
namespace {

std::string in_millions(double count, int digits = 1) { return fixed(count / 1e6, digits); }
std::string in_giga(std::size_t bytes) { return fixed(static_cast<double>(bytes) / 1e9, 2); }

void print_all(const std::string& scheme) {
  Table table({"model", "layers", "dim", "heads", "vocabulary", "length", "scheme", "parameters", "M", "what it is"});
  for (const NamedModel& named : named_models()) {
    const TransformerOptions options = named_model(named.name, scheme);
    const PlannedModules planned;
    const Transformer model(options);
    table.row({named.name, to_text(options.layers), to_text(options.dim),
        options.kv_heads ? to_text(options.heads, '/', options.kv_heads) : to_text(options.heads),
        to_text(options.vocabulary), to_text(options.length), model.scheme(), to_text(model.parameter_count()),
        in_millions(static_cast<double>(model.parameter_count()), 2), named.description});
  }
  std::cout << table.text();
}

void print_one(const std::string& name, const std::string& scheme) {
  const PlannedModules planned;
  const Transformer model(named_model(name, scheme));
  std::vector<std::pair<std::string, Module::Parameter>> firsts;  // of each path, with * for the number of the block
  std::map<std::string, index_t> times;
  for (const Module::Parameter& parameter : model.parameters()) {
    std::string path = parameter.path;
    if (path.starts_with("blocks.")) path = "blocks.*" + path.substr(path.find('.', 7));
    if (times[path]++ == 0) firsts.emplace_back(path, parameter);
  }
  Table table({"parameter", "shape", "times", "numbers", "at first"});
  for (const auto& [path, first] : firsts)
    table.row({path, to_text(first.tensor.shape()), to_text(times[path]), to_text(times[path] * first.tensor.numel()),
        first.init.text()});
  const auto executor = [&](Device device) {
    return model.attention(0).explain(device, DType::f32, 1, model.options().length, model.options().causal);
  };
  std::cout << table.text() << name << " with " << model.scheme() << ": " << model.parameter_count() << " parameters ("
            << in_millions(static_cast<double>(model.parameter_count()), 2)
            << " M)\nattention of one sequence in f32: on the CPU " << executor(Device::cpu()) << "; on a GPU "
            << executor(Device::cuda(0)) << '\n';
}

struct Options {
  std::string scheme, lengths;
  std::vector<std::string> models;
  std::int64_t batch = 1;
  bool plan = false;
};

void print_plans(const Options& options) {
  Table operations({"model", "scheme", "parameters", "length", "products", "attention", "scheme's", "in all",
      "scheme's %", "one by one"});
  Table memory({"model", "scheme", "length", "numbers", "weights", "gradients", "optimiser", "kept: attention",
      "kept: rest", "peak"});
  const auto add = [&](const std::string& name, const TransformerOptions& model, index_t length) {
    const TrainingOperations found = training_operations(model, length);
    operations.row({name, model.scheme, to_text(planned_parameters(model)), to_text(length),
        in_millions(found.products.sum()), in_millions(found.attention.sum()), in_millions(found.scheme.sum()),
        in_millions(found.sum()), fixed(100 * found.scheme.sum() / found.sum(), 1),
        in_millions(found.products.others + found.attention.others + found.scheme.others)});
    for (const DType precision : {DType::f32, DType::bf16}) {
      PlannedTraining training{model, options.batch, length, Device::cuda(0), precision};
      training.model.length = std::max(model.length, length);
      const TrainingMemory bytes = planned_memory(training);
      memory.row({name, model.scheme, to_text(length), precision == DType::f32 ? "f32" : "bf16, masters f32",
          in_giga(bytes.weights), in_giga(bytes.gradients), in_giga(bytes.optimiser), in_giga(bytes.attention),
          in_giga(bytes.layers + bytes.around), in_giga(bytes.peak)});
    }
  };
  for (const std::string& name : options.models) {
    const TransformerOptions own = named_model(name);
    for (const std::string& scheme : list_of(options.scheme.empty() ? own.scheme : options.scheme))
      for (const std::int64_t length :
          options.lengths.empty() ? std::vector{own.length} : numbers_of(options.lengths, "--lengths"))
        add(name, named_model(name, canonical_text(parse_schemes(scheme))), length);
  }
  std::cout << "Millions of operations per token, forward and backward: two per multiply-add of products and "
               "convolutions, and\none per number of all other steps (also given alone, as \"one by one\"). All pairs "
               "count, masked ones too.\n\n"
            << operations.text() << "\nA training step in GB (10^9 bytes), sequences at a time: " << options.batch
            << ". Kept: for backward. Not all is there at once, so the peak can be less than the sum.\n\n"
            << memory.text();
}

int run(CommandLine& line) {
  Options options;
  line.names("[MODEL...]", &options.models, "models to show parameter by parameter, or to plan")
      .text("scheme", &options.scheme,
          {.help = "positional scheme in place of the model's own; to plan several, with commas between them",
              .known = scheme_names()})
      .flag("plan", &options.plan, {"operations per token, and bytes of a training step by part"})
      .text("lengths", &options.lengths, {.help = "to plan: lengths", .unit = "tokens", .initial = "the model's"})
      .integer("batch", &options.batch, Range<std::int64_t>{1, 65536}, {"to plan: batch size", "sequences"})
      .example(
          "whence models gpt2-124m --scheme 'cope(table=shared)'", "CoPE's WikiText-103 model: 123.66 M parameters")
      .example("whence models --plan neox-2.7b neox-6.7b --scheme 'alibi,cope,cdape(kerple)'",
          "their operations and memory, without training");
  if (line.shows_page()) return 0;
  for (const char* option : {"lengths", "batch"}) line.refuse_unless(option, options.plan, "--plan");
  if (options.plan) {
    if (options.models.empty())
      for (const NamedModel& model : named_models()) options.models.push_back(model.name);
    print_plans(options);
  } else if (options.models.empty()) {
    print_all(options.scheme);
  } else {
    for (const std::string& model : options.models) print_one(model, options.scheme);
  }
  return 0;
}

const RegisterCommand registered{
    {"models", Purpose::learn, "the papers' models: one parameter by parameter, or the cost of training", run}};

}  // namespace
}  // namespace whence
