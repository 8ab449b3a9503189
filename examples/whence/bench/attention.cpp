// bench attention: measures time and memory of one attention with any scheme, forward and backward, by executor and
// length, and compares them with the machine's ceilings.
#include <memory>

#include "examples/whence/bench/measured.h"
#include "examples/whence/cli/numbers.h"
#include "tensor/error.h"

namespace whence::bench {
namespace {

Row row_of(const CoreCase& what, Executor executor) {
  return Row()
      .add("scheme", what.scheme, "scheme", what.text())
      .add("gates", what.gates == Gates::sparse ? "sparse" : "initial")
      .add("length", what.length, "length")
      .add("executor", name_of(executor), "by")
      .add("heads", what.heads)
      .add("kv_heads", what.kv_heads ? what.kv_heads : what.heads)
      .add("head_dim", what.head_dim)
      .add("batch", what.batch)
      .add("dtype", to_string(what.dtype));
}

void measure(Bench& bench, const CoreCase& what, const std::vector<Executor>& executors, Device device) {
  bench.begin(to_text(what.text(), ", length ", what.length));
  AttentionCore core(what, device);
  std::vector<Executor> able;
  std::vector<Bench::Run> runs;
  for (const Executor executor : executors) {
    if (const std::string refused = core.refusal(executor); refused.empty()) {
      able.push_back(executor);
      runs.emplace_back([&core, executor] { return core.run(executor); });
    } else {
      bench.keep(row_of(what, executor).add("refused", refused).add("", "no figures", "forward ms"));
      bench.note(to_text(name_of(executor), ": ", what.scheme, ": ", refused));
    }
  }
  const std::vector<Times> times = bench.alternating(runs);
  for (std::size_t k = 0; k < able.size(); ++k) {
    const double operations = core.forward_operations() + core.backward_operations(),
                 share = bench.ceilings().milliseconds_of(operations) / median(times[k].both).value;
    bench.keep(row_of(what, able[k])
                   .add(times[k])
                   .add("kept_mib", times[k].kept, "kept MiB", fixed(times[k].kept, 1))
                   .add("peak_mib", times[k].peak, "peak MiB", fixed(times[k].peak, 1))
                   .add("fraction", share, "of FMA peak", percent_of(share)));
  }
}

}  // namespace

void attention(const Options& options, const Placement& placement) {
  const std::vector<Executor> executors = executors_of(options.executors.empty() ? "all" : options.executors);
  const std::vector<CoreCase> cases = cases_of(options);
  Bench bench("attention", options, placement.device, cases.size());
  for (const CoreCase& what : cases) measure(bench, what, executors, placement.device);
}

Measured measured_attention(const CoreCase& what, const std::string& executor, Device device) {
  const auto core = std::make_shared<AttentionCore>(what, device);
  const AttendPlan wanted = executor == "auto" ? AttendPlan() : executors_of(executor).front();
  if (const std::string refused = executor == "auto" ? "" : core->refusal(wanted.executor); !refused.empty())
    throw InputError("executor: ", executor, " given with ", what.scheme, "; ", refused);
  NamedTensors given = core->leaves();
  given.emplace_back("cotangent", core->cotangent());
  return {.name = to_text(what.text(), ", length ", what.length),
      .given = std::move(given),
      .run = [core, wanted] { return core->run(wanted); },
      .results = [core] { return core->results(); }};
}

}  // namespace whence::bench
