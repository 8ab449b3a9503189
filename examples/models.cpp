// Prints the named models: their parts and how many parameters they have, with any positional scheme.
#include <iostream>
#include <map>

#include "examples/app/command.h"
#include "examples/app/command_line.h"
#include "examples/app/results.h"
#include "examples/app/scheme_names.h"
#include "nn/models.h"

namespace whence {
namespace {

std::string in_millions(index_t count) { return fixed(static_cast<double>(count) / 1e6, 2); }

// Paths without the number of the block: "blocks.3.mlp.in.weight" counts for "blocks.*.mlp.in.weight".
std::string without_number(std::string path) {
  const std::size_t dot = path.find('.', 7);
  return path.starts_with("blocks.") ? "blocks.*" + path.substr(dot) : path;
}

void print_all(const std::string& scheme) {
  Table table({"model", "layers", "dim", "heads", "vocabulary", "length", "scheme", "parameters", "M", "what it is"});
  for (const NamedModel& named : named_models()) {
    const TransformerOptions options = named_model(named.name, scheme);
    const Transformer model(options);
    table.row({named.name, to_text(options.layers), to_text(options.dim), to_text(options.heads),
        to_text(options.vocabulary), to_text(options.length), model.scheme(), to_text(model.parameter_count()),
        in_millions(model.parameter_count()), named.description});
  }
  std::cout << table.text();
}

void print_one(const std::string& name, const std::string& scheme) {
  const Transformer model(named_model(name, scheme));
  struct Row {
    Shape shape;
    std::string init;
    index_t times = 0, numbers = 0;
  };
  std::vector<std::string> order;
  std::map<std::string, Row> rows;
  for (const Module::Parameter& parameter : model.parameters()) {
    const std::string path = without_number(parameter.path);
    if (!rows.contains(path)) order.push_back(path);
    Row& row = rows[path];
    row.shape = parameter.tensor.shape();
    row.init = parameter.init.text();
    ++row.times;
    row.numbers += parameter.tensor.numel();
  }
  Table table({"parameter", "shape", "times", "numbers", "at first"});
  for (const std::string& path : order) {
    const Row& row = rows[path];
    table.row({path, to_text(row.shape), to_text(row.times), to_text(row.numbers), row.init});
  }
  std::cout << table.text() << name << " with " << model.scheme() << ": " << model.parameter_count() << " parameters ("
            << in_millions(model.parameter_count()) << " M)\nattention: " << model.explain() << '\n';
}

int run(int argc, char** argv) {
  std::string name, scheme;
  std::vector<std::string> names;
  for (const NamedModel& model : named_models()) names.push_back(model.name);
  CommandLine line("whence models", "Prints the named models and how many parameters they have.");
  line.heading("Options")
      .choice("model", &name, names, {.help = "the parameters of this model one by one"})
      .text("scheme", &scheme, {.help = "positional scheme in place of the model's own", .known = scheme_names()})
      .example("whence models", "all of them")
      .example("whence models --model gpt2-124m --scheme 'cope(table=shared)'",
          "CoPE's WikiText-103 model: 123.66 M parameters");
  if (line.shows_page(argc, argv)) return 0;
  name.empty() ? print_all(scheme) : print_one(name, scheme);
  return 0;
}

const RegisterCommand registered{
    {"models", Purpose::learn, "the papers' models, or one with any scheme, parameter by parameter", run}};

}  // namespace
}  // namespace whence
