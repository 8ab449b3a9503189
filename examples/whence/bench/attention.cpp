// bench attention: measures time and memory of one attention with any scheme, forward and backward, by executor and
// length, and compares them with the machine's ceilings.
#include <memory>

#include "examples/whence/bench/attention_core.h"
#include "examples/whence/cli/numbers.h"
#include "tensor/error.h"

namespace whence::bench {
namespace {

Row row_of(const CoreCase& what, const std::string& executor) {
  return Row()
      .add("scheme", what.scheme, "scheme", what.text())
      .add("gates", what.gates == Gates::sparse ? "sparse" : "initial")
      .add("length", what.length, "length")
      .add("executor", executor, "by")
      .add("heads", what.heads)
      .add("kv_heads", what.kv_heads ? what.kv_heads : what.heads)
      .add("head_dim", what.head_dim)
      .add("batch", what.batch)
      .add("dtype", to_string(what.dtype));
}

Measured measured(const CoreCase& what, const std::shared_ptr<AttentionCore>& core, const AttendPlan& plan) {
  NamedTensors given = core->leaves();
  given.emplace_back("cotangent", core->cotangent());
  return {.name = to_text(what.text(), ", length ", what.length),
      .given = std::move(given),
      .run = [core, plan] { return core->run(plan); },
      .results = [core] { return core->results(); },
      .row =
          [what, core, plan](const Times& times, const Ceilings& ceilings) {
            const double operations = core->forward_operations() + core->backward_operations(),
                         share = ceilings.milliseconds_of(operations) / median(times.both).value;
            return row_of(what, name_of(plan.executor))
                .add(times)
                .add("kept_mib", times.kept, "kept MiB", fixed(times.kept, 1))
                .add("peak_mib", times.peak, "peak MiB", fixed(times.peak, 1))
                .add("fraction", share, "of FMA peak", percent_of(share));
          }};
}

}  // namespace

void attention(const Options& options, const Placement& placement) {
  const std::vector<Executor> executors = executors_of(options.executors.empty() ? "all" : options.executors);
  const std::vector<CoreCase> cases = cases_of(options);
  Bench bench("attention", options, placement.device, cases.size());
  for (const CoreCase& what : cases) {
    bench.begin(to_text(what.text(), ", length ", what.length));
    const auto core = std::make_shared<AttentionCore>(what, placement.device);
    std::vector<Measured> able;
    for (const Executor executor : executors) {
      const std::string name = name_of(executor), refused = core->refusal(executor);
      if (refused.empty()) {
        able.push_back(measured(what, core, executor));
      } else {
        bench.keep(row_of(what, name).add("refused", refused).add("", "no figures", "forward ms"));
        bench.note(to_text(name, ": ", what.scheme, ": ", refused));
      }
    }
    (void)bench.measure(able);
  }
}

Measured measured_attention(const CoreCase& what, const std::string& executor, Device device) {
  const auto core = std::make_shared<AttentionCore>(what, device);
  const AttendPlan wanted = executor == "auto" ? AttendPlan() : executors_of(executor).front();
  if (const std::string refused = executor == "auto" ? "" : core->refusal(wanted.executor); !refused.empty())
    throw InputError("executor: ", executor, " given with ", what.scheme, "; ", refused);
  return measured(what, core, wanted);
}

}  // namespace whence::bench
