// probe: runs any scheme on tensors from a file: queries, keys, values and parameters go in; every intermediate and
// every gradient comes out.
#include <filesystem>
#include <iostream>
#include <map>
#include <optional>
#include <ranges>

#include "examples/whence/cli/command.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/machine/memory.h"
#include "examples/whence/machine/placement.h"
#include "examples/whence/run/run_files.h"
#include "examples/whence/verify/probe_run.h"
#include "nn/attention/plan.h"
#include "tensor/error.h"

namespace whence {
namespace {

struct Options {
  std::string scheme, in, out, executor = "auto", dtype, describe, device = "auto";
  std::string sizes = "heads=4 head-dim=16 length=16 batch=1";
  bool bidirectional = false;
  double scale = 1;
  std::uint64_t init = 0;
};

void declare_options(CommandLine& line, Options& options) {
  line.heading("Pass")
      .text("scheme", &options.scheme,
          {.help = "positional scheme, e.g. \"dape(kerple, width=8)\"", .known = scheme_names()})
      .text(
          "in", &options.in, {"safetensors file with q k v (or x), parameters by name, and cotangents; see --describe"})
      .text("out", &options.out,
          {"safetensors file to write: output, logits, pattern, intermediates, gradient.NAME; `whence compare` holds "
           "yours against it"});
  line.heading("Method")
      .choice("executor", &options.executor, executor_names(), {"auto is reference, which alone shows intermediates"})
      .choice("dtype", &options.dtype, {"f64", "f32", "bf16", "f16"},
          {"cast all numbers to this dtype; else as in the file"})
      .flag("bidirectional", &options.bidirectional, {"no causal mask"})
      .number("scale", &options.scale, Range<double>{}, {.help = "scale of q.k", .initial = "1/sqrt(d)"})
      .integer(
          "init", &options.init, Range<std::uint64_t>{}, {"draw the parameters that the file lacks from this seed"});
  declare_device(line, &options.device);
  line.heading("Contents of a file")
      .text("describe", &options.describe,
          {.help = "print the tensors, parameters, claims and probes of this scheme as JSON, and end",
              .known = scheme_names()})
      .text("sizes", &options.sizes, {"for --describe: of q, and of k and v if they have fewer heads"});
  line.example("whence probe --describe \"dape(kerple)\"", "names, shapes and first distributions");
  line.example("whence probe --scheme \"cope(p_max=8)\" --in in.safetensors --out out.safetensors",
      "one pass, and backward if the file has a cotangent");
  line.example("whence probe --scheme alibi --dtype bf16 --executor strips --in in.safetensors --out out.safetensors",
      "another executor and dtype");
}

void refuse_options_without_effect(const CommandLine& line, const Options& options) {
  const bool describes = line.given("describe");
  line.refuse_unless("sizes", describes, "--describe");
  for (const char* name : {"scheme", "in", "out", "executor", "dtype", "bidirectional", "scale", "init", "device"})
    line.refuse_unless(name, !describes, "beside --describe, which only prints");
  if (describes) return;
  for (const char* name : {"scheme", "in", "out"})
    if (!line.given(name)) throw InputError("--", name, ": nothing given; some text required; see whence probe --help");
  std::error_code not_there;
  if (std::filesystem::equivalent(options.in, options.out, not_there))
    line.refuse(
        "out", "another file than the one that is read", "results would take the place of what they were made from");
  ensure_output_file(options.out);
}

// Refuses options that have no effect with this scheme or this file.
void refuse_for(const ProbeInput& input, const CommandLine& line, const Options& options) {
  const BareAttention& scheme = *input.scheme;
  for (const char* name : {"executor", "bidirectional", "scale"})
    line.refuse_unless(name, scheme.attends(), "a scheme that acts in attention");
  if (options.bidirectional) scheme.require_bidirectional("--bidirectional:");
}

// Runs the pass. An error about positions or draws of the file names the file.
SafetensorsFile run_on(const ProbeInput& input, const AttendPlan& plan, const Options& options) {
  try {
    return run_probe(input, plan);
  } catch (const OutOfMemory&) { throw; } catch (const Error& error) {
    if (input.has_positions) throw FileError(options.in, ": tensor positions: ", error.what());
    for (const auto& [name, given] : input.draws)
      if (given.defined()) throw FileError(options.in, ": tensor ", name, ": ", error.what());
    throw;
  }
}

// Prints what was written, and what a user might miss in it.
void report(const ProbeInput& input, Executor executor, const Options& options, const SafetensorsFile& result) {
  const BareAttention& scheme = *input.scheme;
  std::cout << scheme.text() << ", " << input.dtype();
  if (scheme.attends())
    std::cout << (options.bidirectional ? ", bidirectional" : ", causal") << ", executor " << name_of(executor);
  std::cout << '\n';
  for (const std::string& name : input.drawn) std::cout << "drawn by --init: " << one_line(name) << '\n';
  std::cout << "written: " << one_line(options.out) << ", " << result.tensors.size() << " tensors:";
  for (const auto& [name, tensor] : result.tensors) std::cout << ' ' << one_line(name);
  std::cout << '\n';
  if (executor != Executor::reference)
    std::cout << "not written: logits, pattern and intermediates, which " << name_of(executor)
              << " never holds as a whole\n";
  if (!input.cotangent.defined() && !input.cotangent_logits.defined())
    std::cout << "not written: gradients; the file has neither cotangent nor cotangent_logits\n";
}

ProbeInput read_input(const CommandLine& line, const Options& options) {
  std::optional<DType> dtype;
  std::optional<std::uint64_t> init;
  if (line.given("dtype")) dtype = chosen("dtype", options.dtype, {DType::f64, DType::f32, DType::bf16, DType::f16});
  if (line.given("init")) init = options.init;
  (void)parse_schemes(options.scheme);  // refuses a wrong text first, with the shorter error
  ProbeInput input = probe_input_of(options.in, read_safetensors(options.in).tensors, options.scheme, dtype, init);
  input.given.sequence.causal = !options.bidirectional;
  if (line.given("scale")) input.given.scale = options.scale;
  return input;
}

int run_file(const CommandLine& line, const Options& options) {
  ProbeInput input = read_input(line, options);
  refuse_for(input, line, options);
  const DeviceChoice choice = choose_device(options.device);
  input.to(choice.device);
  const AttendPlan plan = input.plan(options.executor);
  ProbeInput planned = read_input(line, options);  // planning reads the same file and runs the same pass
  planned.to(Device::planned(Device::cpu()));
  const std::size_t peak = planned_peak([&] { (void)run_on(planned, plan, options); });
  std::cerr << require_shown_memory("all that the scheme computes", peak, free_memory(Device::cpu()),
                   "shorter sequences, or fewer of them, take less")
            << '\n';
  const SafetensorsFile result = run_on(input, plan, options);
  write_safetensors(options.out, result);
  report(input, plan.executor, options, result);
  if (line.given("device")) std::cout << choice.sentence << '\n';
  return 0;
}

void describe(const Options& options) {
  std::map<std::string, std::int64_t> sizes{
      {"heads", 4}, {"kv-heads", 0}, {"head-dim", 16}, {"length", 16}, {"batch", 1}};
  for (const Word& word : words_of(options.sizes)) {
    const auto size = sizes.find(word.name);
    if (size == sizes.end())
      throw InputError("--sizes: '", word.name.empty() ? word.value : word.name, "' given; ",
          joined(std::views::keys(sizes)), " required, as in heads=4");
    size->second = word.whole("--sizes", word.name == "kv-heads" ? 0 : 1, 1 << 20);
  }
  const PlannedModules planned;  // a planned model takes no memory
  const BareAttention scheme(options.describe, {.dim = sizes["heads"] * sizes["head-dim"],
                                                   .heads = sizes["heads"],
                                                   .length = sizes["length"],
                                                   .kv_heads = sizes["kv-heads"]});
  try {
    std::cout << describe_scheme(scheme, sizes["batch"]);
  } catch (const OutOfMemory&) { throw; } catch (const Error& error) {
    throw InputError("--describe: ", error.what());  // for instance, rows for fewer positions than the length
  }
}

int run(CommandLine& line) {
  Options options;
  declare_options(line, options);
  if (line.shows_page()) return 0;
  refuse_options_without_effect(line, options);
  if (!line.given("describe")) return run_file(line, options);
  describe(options);
  return 0;
}

const RegisterCommand registered{
    {"probe", Purpose::check, "a scheme on the tensors of a file: every intermediate and gradient", run}};

}  // namespace
}  // namespace whence
