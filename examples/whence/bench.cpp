// bench: one command for all benches of examples/whence/bench/.
#include "examples/whence/bench/bench.h"

#include <algorithm>

#include "examples/whence/cli/command.h"
#include "tensor/error.h"

namespace whence {
namespace {

struct Kind {
  std::string name;
  void (*run)(const bench::Options& options, const Placement& placement);
  std::vector<std::string> options;  // besides those of all benches
};

const std::vector<Kind> kinds{
    {"attention", bench::attention, {"schemes", "executors", "lengths", "batch", "gates", "heads", "head-dim"}},
    {"step", bench::step, {"schemes", "executors", "lengths", "batch", "models", "cuda-graph", "profile"}},
    {"ops", bench::ops, {"scale"}}, {"decode", bench::decode, {"schemes", "lengths", "tokens"}}};

void declare(CommandLine& line, bench::Options& options, std::vector<std::string>& names) {
  using Count = Range<std::int64_t>;
  line.names("WHAT", &names,
          "attention, by scheme, executor and length; step: training, and where its time goes; ops: single ones, and "
          "their cost above a kernel; decode: tokens that a GPT-2 draws one by one, as a share of what the machine "
          "reads")
      .heading("Cases")
      .text("schemes", &options.schemes, {.help = "positional schemes, not for ops", .initial = "the bench's"})
      .text("executors", &options.executors,
          {.help = "how attention is computed: names, or all; for step one", .initial = "all, for step auto"})
      .text("lengths", &options.lengths,
          {.help = "sequence lengths, not for ops; decode reads so many first",
              .unit = "tokens",
              .initial = "the bench's"})
      .integer("batch", &options.batch, Count{0, 65536}, {"for attention and step; 0: the bench's", "sequences"})
      .choice("gates", &options.gates, {"initial", "sparse", "both"},
          {"attention: gates of CoPE and sticks around 1/2, as before training, or around 0.02, as in trained models"})
      .integer("heads", &options.heads, Count{1, 1024}, {"attention: heads"})
      .integer("head-dim", &options.head_dim, Count{1, 4096}, {"attention: numbers per head"})
      .text("models", &options.models,
          {"step: gpt2-124m, gpt2-124m-long (batch 1, length 1024), flip_flop (256/4/4), toy (dim 16), or all"})
      .flag("cuda-graph", &options.recorded, {"step, on a GPU: recorded once and replayed"})
      .flag("profile", &options.profile, {"step, on the CPU: time by part and op"})
      .number("scale", &options.scale, Range<double>{0, 1, true},
          {"ops: scale of the sizes of a GPT-2 of 124M parameters, 16 sequences of 512 tokens"})
      .integer("tokens", &options.tokens, Count{1, 65536}, {"decode: drawn one by one", "tokens"})
      .heading("Measuring")
      .integer("repetitions", &options.repetitions, Range<int>{1, 1000}, {"after one to warm up; the median counts"})
      .flag("json", &options.json, {"a line of JSON per measurement instead of tables"});
  declare(line, options.machine);
  line.example("whence bench attention --schemes none,cope --lengths 512", "each executor, on this machine")
      .example("whence bench step --models gpt2-124m --schemes alibi --profile", "where a step of GPT-2 goes");
}

int run(CommandLine& line) {
  bench::Options options;
  std::vector<std::string> names, known;
  declare(line, options, names);
  if (line.shows_page()) return 0;
  for (const Kind& kind : kinds) known.push_back(kind.name);
  if (names.size() != 1) throw InputError(names.size(), " benches given; one of ", joined(known), " required");
  const auto kind = std::ranges::find(kinds, names[0], &Kind::name);
  if (kind == kinds.end()) refuse_name("WHAT", names[0], known);
  for (const Kind& each : kinds)
    for (const std::string& option : each.options)
      line.refuse_unless(option, std::ranges::count(kind->options, option) > 0, "beside bench " + kind->name);
  const Placement placement = placement_of(options.machine);
  line.refuse_unless("cuda-graph", placement.device.is_gpu(), "a GPU");
  line.refuse_unless("profile", placement.device.is_cpu() && placement.precision == DType::f32, "the CPU and f32");
  kind->run(options, placement);
  return 0;
}

const RegisterCommand registered{
    {"bench", Purpose::machine, "time and memory of attention, training steps, single ops, and tokens drawn", run}};

}  // namespace
}  // namespace whence
