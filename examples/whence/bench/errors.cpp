// bench errors: measures how far one attention in f32 differs from the same attention in f64, by executor. Both get the
// same f32 numbers, so only rounding on the way differs.
#include <algorithm>
#include <cmath>

#include "examples/whence/bench/attention_core.h"
#include "examples/whence/cli/command.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/machine/placement.h"
#include "tensor/raw.h"

namespace whence::bench {
namespace {

// The compared tensors: the output, each gradient, and the gradient of the values summed over tokens, as a bias gets it.
NamedTensors with_sums(NamedTensors results) {
  if (const Tensor of_values = named(results, "gradient of v"); of_values.defined())
    results.emplace_back("gradient of v, summed", raw::reduce(Reduction::sum, of_values, {2}, false));
  return results;
}

// Results of one case in f32, by engine; none for an engine that cannot run the scheme.
std::vector<std::pair<std::string, NamedTensors>> results_in_f32(
    const CoreCase& what, const CoreOptions& options, const Bench& bench) {
  AttentionCore core(what, bench.device());
  std::vector<std::pair<std::string, NamedTensors>> found;
  for (const Executor executor : executors_of(options)) {
    NamedTensors& results = found.emplace_back(name_of(executor), NamedTensors()).second;
    if (!core.refusal(executor).empty()) continue;
    (void)core.run(executor);
    results = with_sums(core.results());
  }
  return found;
}

double error_of(const Tensor& x, const Tensor& exact) {
  const std::vector<double> a = x.to_vector(), b = exact.to_vector();
  double apart = 0, size = 0;
  for (std::size_t n = 0; n < a.size(); ++n) apart += (a[n] - b[n]) * (a[n] - b[n]), size += b[n] * b[n];
  return std::sqrt(size > 0 ? apart / size : apart);
}

void measure(CoreCase what, const CoreOptions& options, Bench& bench) {
  bench.begin(to_text(what.text(), ", ", what.length, " tokens"));
  what.dtype = DType::f64;
  AttentionCore in_f64(what, bench.device());
  (void)in_f64.run();
  const NamedTensors exact = with_sums(in_f64.results());
  what.dtype = DType::f32;
  const auto found = results_in_f32(what, options, bench);
  for (const auto& [engine, results] : found) {  // prints a line of JSON for each
    Row row;
    for (const auto& [name, tensor] : results)
      if (const Tensor one = named(exact, name); one.defined()) row.add(name, error_of(tensor, one));
    if (bench.settings().json && !results.empty()) bench.keep(row_of(what, engine).add(row));
  }
  for (const auto& [name, tensor] : exact) {  // adds a row of the table for each
    Row row;
    row.add("", what.text(), "scheme").add("", what.length, "tokens").add("", name, "result");
    for (const auto& [engine, results] : found) {
      const Tensor one = named(results, name);
      row.add("", "", engine, one.defined() ? fixed(error_of(one, tensor) * 0x1p24, 1) : "-");
    }
    bench.keep(row, "|f32 - f64| / |f64| of the same numbers, in units of 2^-24");
  }
}

int run(CommandLine& line) {
  CoreOptions core{.schemes = "none,alibi,kerple,cope,forgetting,cable,carope,dape(kerple),cdape(kerple)",
      .executors = "reference,tiled",
      .gates = "initial",
      .heads = 4};
  Settings settings;
  line.heading("Cases");
  declare(line, core);
  declare(line, settings, false);
  line.example("whence bench errors --schemes cope,alibi", "a minute: tiles next to all pairs")
      .example("whence bench errors --lengths 8192 --executors strips,tiled --heads 1", "where all pairs do not fit");
  if (shows_page(line, settings)) return 0;
  const Device device = choose_device(settings.device).device;
  const std::vector<CoreCase> cases = cases_of(core);
  Bench bench("errors", settings, device, cases.size());
  for (const CoreCase& what : cases) measure(what, core, bench);
  return 0;
}

const RegisterCommand registered{
    {"bench errors", Purpose::machine, "how far f32 differs from f64 in one attention, by scheme and executor", run}};

}  // namespace
}  // namespace whence::bench
