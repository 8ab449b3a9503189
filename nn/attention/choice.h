// Which of the registered executors runs a call of attention, and why.
#pragma once

#include "nn/attention/executor.h"

namespace whence {

[[nodiscard]] std::vector<std::string> executor_names();  // "auto" first

// The executor that a user names; null for "auto". Throws InputError when the name is unknown, or when that executor
// cannot run these stages.
[[nodiscard]] const Executor* wanted_executor(const std::string& name, const Stages& stages);
[[nodiscard]] AttendCall call_of(const AttendInputs& inputs);
// The executor that runs this call: the wanted one, or where it cannot the next below it that can; where none is
// wanted, the highest one that suits the call. While a capture watches pairs it is the reference executor.
[[nodiscard]] const Executor& executor_for(const Executor* wanted, const Stages& stages, const AttendCall& call);
// The highest one of a lower rank than `executor` that can run this call; on a GPU that suits it.
[[nodiscard]] const Executor& executor_below(const Executor& executor, const Stages& stages, const AttendCall& call);
// "reference (no tile programs for f32 on a GPU)": that executor, and why. `example`: operands like those of the call,
// wherever they are.
[[nodiscard]] std::string explain_executor(
    const Executor* wanted, const Stages& stages, const AttendCall& call, const AttendInputs& example);

// True if a capture wants what only the reference executor shows, and that in its composed form.
[[nodiscard]] bool pairs_are_watched();

}  // namespace whence
