// Chooses the registered executor that runs a call of attention, and explains the choice.
#pragma once

#include "nn/attention/executor.h"

namespace whence {

[[nodiscard]] std::vector<std::string> executor_names();  // "auto" first

// Returns the executor with this name; null for "auto". Throws InputError if the name is unknown, or if that executor
// cannot run these stages.
[[nodiscard]] const Executor* wanted_executor(const std::string& name, const Stages& stages);
[[nodiscard]] AttendCall call_of(const AttendInputs& inputs);
// Returns the executor for this call. If one is wanted: that one, or if it cannot, the next below it that can. Else:
// the highest one that suits the call. While a capture watches pairs: the reference executor.
[[nodiscard]] const Executor& executor_for(const Executor* wanted, const Stages& stages, const AttendCall& call);
// Returns the highest executor of lower rank than `executor` that can run this call; on a GPU, that suits it.
[[nodiscard]] const Executor& executor_below(const Executor& executor, const Stages& stages, const AttendCall& call);
// Returns "reference (no tile programs for f32 on a GPU)": the executor and the reason. `example`: operands like those
// of the call, on any device.
[[nodiscard]] std::string explain_executor(
    const Executor* wanted, const Stages& stages, const AttendCall& call, const AttendInputs& example);

// True if a capture wants probes that only the reference executor has, in their composed form.
[[nodiscard]] bool pairs_are_watched();

}  // namespace whence
