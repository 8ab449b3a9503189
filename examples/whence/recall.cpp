// recall: one attention head without positions solves associative recall by construction (DAPE V2, appendix A), and so
// do two plain layers with positions.
#include <algorithm>
#include <iostream>

#include "autograd/recording.h"
#include "examples/whence/cli/command.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/machine/placement.h"
#include "examples/whence/report/table.h"
#include "examples/whence/tasks/recall_construction.h"
#include "nn/attention/plan.h"
#include "tensor/device/planned.h"
#include "tensor/raw.h"

namespace whence {
namespace {

struct Options {
  std::int64_t length = 512, sequences = 100;
  std::string trigger = "anywhere";
  std::uint64_t seed = 0;
  MachineOptions machine;
};

std::vector<index_t> lengths_up_to(index_t longest) {
  std::vector<index_t> lengths;
  for (index_t length = 8; length < longest; length *= 2) lengths.push_back(length);
  lengths.push_back(longest);
  return lengths;
}

constexpr index_t at_once = 16;  // sequences per pass, so that memory does not grow with their number

// Runs all sequences of one length, a few at a time.
template <class Recall> tasks::RecallOutcome outcome_of(const Options& options, index_t length, const Recall& recall) {
  const auto task =
      tasks::make_task("associative_recall", {"--length", std::to_string(length), "--vocabulary",
                                                 std::to_string(options.length), "--trigger", options.trigger});
  tasks::RecallOutcome total;
  for (index_t first = 0; first < options.sequences; first += at_once) {
    const tasks::Batch batch =
        task->test_batch(0, options.seed, first, std::min<index_t>(at_once, options.sequences - first));
    const tasks::RecallOutcome part = recall(batch);
    total.errors.tokens += part.errors.tokens, total.errors.wrong_tokens += part.errors.wrong_tokens;
    total.least_mass = std::min(total.least_mass, part.least_mass);
  }
  return total;
}

// Prints a line for each length, form and executor.
Table by_construction(const Options& options, const Placement& placement) {
  Table table({"length", "convolution", "scores kept", "executor", "right %", "least mass on the answer"});
  for (const index_t length : lengths_up_to(options.length)) {
    for (const tasks::KernelForm form : {tasks::KernelForm::linear, tasks::KernelForm::module}) {
      for (const bool residual : {true, false}) {
        for (const Executor executor : {Executor::reference, Executor::strips}) {
          const tasks::RecallOutcome outcome = outcome_of(options, length, [&](const tasks::Batch& batch) {
            return tasks::recall_by_construction(
                batch, options.length, form, residual, {executor, placement.device, placement.precision});
          });
          table.row({std::to_string(length),
              form == tasks::KernelForm::linear ? "linear (1, -1)" : "cdape(none, width=2, kernel=3)",
              residual ? "yes" : "no", name_of(executor), fixed(100 - outcome.errors.token_percent(), 1),
              fixed(outcome.least_mass, 4)});
        }
      }
    }
  }
  return table;
}

Table by_two_layers(const Options& options, const Placement& placement) {
  Table table({"length", "second layer's key", "executor", "right %", "least mass on the answer"});
  for (const index_t length : lengths_up_to(options.length)) {
    for (const tasks::SecondKey key : {tasks::SecondKey::previous_less_own, tasks::SecondKey::as_printed}) {
      for (const Executor executor : {Executor::reference, Executor::strips}) {
        const tasks::RecallOutcome outcome = outcome_of(options, length, [&](const tasks::Batch& batch) {
          return tasks::recall_by_two_layers(
              batch, options.length, key, {executor, placement.device, placement.precision});
        });
        table.row({std::to_string(length),
            key == tasks::SecondKey::as_printed ? "the token before, as printed" : "the token before less its own",
            name_of(executor), fixed(100 - outcome.errors.token_percent(), 1), fixed(outcome.least_mass, 4)});
      }
    }
  }
  return table;
}

// Prints both constructions as whole models of this vocabulary and length.
Table costs(index_t longest) {
  Table table({"construction", "layers", "positions", "dim", "parameters", "operations per token, M"});
  const Device planned = Device::planned(Device::cpu());  // counts operations, computes nothing
  for (const int layers : {1, 2}) {
    tasks::RecallModel model(layers, longest, longest, "reference");
    const index_t parameters = model.parameter_count();
    model.to(planned);
    const double before = planned_operations().sum();
    (void)model(raw::to_device(Tensor::zeros({1, longest}, DType::i64), planned));
    table.row({layers == 1 ? "cdape(none, width=2, kernel=3)" : "plain attention", std::to_string(layers),
        layers == 1 ? "none" : "absolute", std::to_string(2 * layers * longest), std::to_string(parameters),
        fixed((planned_operations().sum() - before) / static_cast<double>(longest) / 1e6, 2)});
  }
  return table;
}

int run(CommandLine& line) {
  Options options;
  line.integer("length", &options.length, Range<std::int64_t>{8, 4096},
          {"longest sequences; shorter ones are tried too", "tokens"})
      .integer("sequences", &options.sequences, Range<std::int64_t>{1, 100000}, {"per length", "sequences"})
      .choice("trigger", &options.trigger, {"anywhere", "first"}, {"place where the last token was seen before"})
      .integer("seed", &options.seed, Range<std::uint64_t>{0, ~std::uint64_t{0}}, {"seed of the sequences"});
  declare(line, options.machine);
  line.example("whence train associative_recall", "the same task learned from data");
  if (line.shows_page()) return 0;
  const Placement placement = placement_of(options.machine);
  const NoGrad no_grad;
  std::cout << placement.text << "\n\nProposition 3: one layer whose scores are convolved, without positions\n"
            << by_construction(options, placement).text()
            << "\nProposition 2: two layers of plain attention, with positions\n"
            << by_two_layers(options, placement).text() << "\nAs whole models, " << options.length
            << " tokens and kinds of tokens, forward\n"
            << costs(options.length).text();
  return 0;
}

const RegisterCommand registered{
    {"recall", Purpose::learn, "DAPE V2's associative recall by construction: weights that need no training", run}};

}  // namespace
}  // namespace whence
