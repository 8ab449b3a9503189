// The choice of an executor.
#include "nn/executor.h"

#include "tensor/error.h"
#include "tensor/suggest.h"

namespace whence {

std::vector<const Executor*> executors() { return {&reference_executor()}; }

ExecutorChoice choose_executor(const std::string& wanted, const Stages& stages) {
  std::vector<std::string> names{"auto"};
  std::string refusals;
  for (const Executor* executor : executors()) {
    names.push_back(executor->name());
    if (wanted != "auto" && wanted != executor->name()) continue;
    const std::string refusal = executor->refusal(stages);
    if (refusal.empty()) {
      const std::string why = wanted != "auto" ? "as asked" : refusals.empty() ? "the first choice for these schemes" : refusals;
      return {executor, concat(executor->name(), " (", why, ")")};
    }
    if (wanted != "auto") throw InputError(concat("executor: ", wanted, " ", refusal));
    refusals += concat(refusals.empty() ? "" : "; ", executor->name(), " ", refusal);
  }
  std::string known;
  for (const std::string& name : names) known += (known.empty() ? "" : ", ") + name;
  const auto nearest = nearest_name(wanted, names);
  throw InputError(
      concat("executor: '", wanted, "' given; one of ", known, " required", nearest ? "; did you mean '" + *nearest + "'?" : ""));
}

}  // namespace whence
