// flip_flop: trains a decoder with any positional scheme on flip-flop language modelling and tests it in and out of
// distribution.
#include <iostream>

#include "autograd/inspect.h"
#include "examples/app/command.h"
#include "examples/app/command_line.h"
#include "examples/app/interrupt.h"
#include "examples/app/placement.h"
#include "examples/app/progress.h"
#include "examples/app/results.h"
#include "examples/tasks/flip_flop_model.h"
#include "nn/io/files.h"

namespace whence {
namespace {

struct Options {
  tasks::FlipFlopModelOptions model;
  TrainingOptions training;
  std::string out = "runs/flip_flop";
  MachineOptions machine;
  bool list_schemes = false, describe = false;
  std::string graph;
};

void declare_options(CommandLine& line, Options& options) {
  using Count = Range<std::int64_t>;
  auto& model = options.model;
  line.heading("Model")
      .text("scheme", &model.scheme, {"positional scheme, e.g. \"cope(p_max=64) + rope\"; --list-schemes lists them"})
      .integer("dim", &model.dim, Count{1, 16384}, {"model dim, a multiple of --heads"})
      .integer("layers", &model.layers, Count{1, 64}, {"decoder blocks", "", "choose at least one layer"})
      .integer("heads", &model.heads, Count{1, 256}, {"attention heads per layer"})
      .choice("activation", &model.activation, {"gelu", "gelu_erf", "relu"}, {"of the MLP, which is 4 dim wide"})
      .number("dropout", &model.dropout, Range<double>{0, 1, false, true}, {"share of numbers dropped in training"})
      .choice("executor", &model.executor, {"auto", "reference", "strips"}, {"how attention is computed"});
  line.heading("Task")
      .integer("length", &model.length, Count{4, 65536}, {"of a string, an even number", "tokens"})
      .integer("batch", &model.batch, Count{1, 65536}, {"per step", "strings"})
      .choice("targets", &model.targets, {"reads", "all"}, {"where the loss is taken: at reads, or at all positions"})
      .choice("answers", &model.answers, {"vocabulary", "bits"}, {"what a prediction may be in the tests"})
      .integer("test-strings", &model.test_strings, Count{1, 10000000}, {"in each of the three test sets", "strings"});
  declare(line, options.training);
  line.text("out", &options.out, {"folder for checkpoints, logs and results"});
  declare(line, options.machine);
  line.heading("Looking inside")
      .flag("list-schemes", &options.list_schemes, {"print every scheme with its options, and end"})
      .flag("describe", &options.describe,
          {"print the parameters and what one training step keeps for backward, by op and line, and end"})
      .text("graph", &options.graph, {"write the graph of one training step to this file for Graphviz, and end"});
  line.example("whence flip_flop --scheme cope", "the paper's model and task: 10 000 steps, hours on a laptop");
  line.example("whence flip_flop --scheme rope --length 64 --dim 64 --layers 2 --steps 800 --lr 1e-3", "a minute");
  line.example("whence flip_flop --scheme cope --out runs/a --resume", "goes on where it was interrupted");
  line.example("whence flip_flop --scheme cope --describe", "parameters, and memory by op and line");
}

void write_results(
    const Options& options, const TrainingResult& trained, const std::vector<tasks::FlipFlopScore>& scores) {
  Table table({"test set", "p_ignore", "read error %", "strings with an error %", "reads", "best trivial guess %"});
  JsonLog log(options.training.folder / "results.jsonl", JsonLog::Mode::fresh);
  for (const tasks::FlipFlopScore& score : scores) {
    table.row({std::string(score.set.name), fixed(score.set.p_ignore, 2), fixed(score.model.error_percent(), 3),
        fixed(score.model.sequence_error_percent(), 2), std::to_string(score.model.reads),
        fixed(score.best_guess_percent(), 1)});
    LogRecord record{{"scheme", options.model.scheme}, {"seed", std::to_string(options.training.seed)},
        {"steps", trained.steps}, {"test_set", std::string(score.set.name)},
        {"error_percent", score.model.error_percent()},
        {"sequence_error_percent", score.model.sequence_error_percent()}, {"reads", score.model.reads}};
    if (trained.loss_scale > 0) record.push_back({"skipped_steps", trained.skipped});
    for (const auto& [name, errors] : score.baselines) record.push_back({"guess: " + name, errors.error_percent()});
    log.append(record);
  }
  write_file((options.training.folder / "results.csv").string(), table.csv());
  std::cout << table.text();
}

void describe(const Transformer& model) {
  Table table({"parameter", "shape", "initial", "decays"});
  for (const Module::Parameter& parameter : model.parameters()) {
    table.row(
        {parameter.path, to_string(parameter.tensor.shape()), parameter.init.text(), parameter.decays ? "yes" : "no"});
  }
  std::cout << table.text();
}

// One step's loss, looked at instead of trained on.
void look_inside(Transformer& model, const Options& options) {
  model.initialise(options.training.seed);
  model.to(options.training.device);
  const Tensor loss = tasks::flip_flop_loss(model, options.model, options.training.seed, 1);
  if (options.describe) {
    describe(model);
    std::cout << '\n' << memory_report(loss).text();
  }
  if (!options.graph.empty()) {
    write_file(options.graph, to_dot(loss));
    std::cout << "written: " << options.graph << "; dot -Tsvg turns it into a picture\n";
  }
}

int run(int argc, char** argv) {
  Options options;
  CommandLine line("whence flip_flop",
      "Trains a decoder on flip-flop language modelling (Liu et al. 2023; CoPE paper, section 5.1).", WHENCE_VERSION);
  declare_options(line, options);
  if (const auto page = line.parse(argc, argv)) {
    std::cout << *page;
    return 0;
  }
  if (options.list_schemes) {
    std::cout << describe_schemes();
    return 0;
  }
  if (options.model.length % 2)
    line.refuse("length", "an even number", "a string is pairs of an instruction and a bit");
  if (options.model.dim % options.model.heads)
    line.refuse("heads", "a divisor of --dim", "4 heads suit dims of 64 and more");
  if (line.given("warm-up") && options.training.warm_up > options.training.steps)
    line.refuse("warm-up", "at most --steps", "shorten it");
  options.training.warm_up =
      std::min(options.training.warm_up, options.training.steps);  // the default, for a very short run
  options.model.scheme = canonical_text(parse_schemes(options.model.scheme));
  line.refuse_unless("loss-scale-growth", options.machine.precision == "f16", "--precision f16");
  options.training.folder = options.out;
  const Placement placement = placement_of(options.machine);
  options.training.device = placement.device, options.training.precision = placement.precision;
  install_interrupt_handler();

  Transformer model(tasks::transformer_options(options.model));
  std::cout << "model: " << model.scheme() << ", " << model.parameter_count() << " parameters, executor "
            << model.explain() << std::endl;
  std::cout << placement.text << std::endl;
  if (options.describe || !options.graph.empty()) {
    look_inside(model, options);
    return 0;
  }
  const TrainingResult trained = tasks::train_flip_flop(model, options.model, options.training);
  std::cout << "trained: " << trained.steps << " steps, " << duration_text(trained.seconds) << " here, "
            << rate_text(trained.tokens_per_second) << " tokens/s" << skipped_text(trained) << '\n';
  write_results(
      options, trained, tasks::test_flip_flop(model, options.model, options.training.seed, options.training.quiet));
  std::cout << "written: " << options.out
            << "/{weights.safetensors, metrics.jsonl, results.jsonl, results.csv, checkpoints/}\n";
  return 0;
}

const RegisterCommand registered{{"flip_flop", Purpose::train, "any scheme on flip-flop", run}};

}  // namespace
}  // namespace whence
