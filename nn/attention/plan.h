// Chooses the executor of a call of attention, says why, and runs it.
#pragma once

#include <array>
#include <vector>

#include "nn/attention/attend.h"
#include "nn/attention/tile_terms.h"

namespace whence {

inline constexpr std::array all_executors{Executor::reference, Executor::strips, Executor::tiled};
[[nodiscard]] const char* name_of(Executor executor);
[[nodiscard]] std::vector<std::string> executor_names();  // "auto" first

// Returns the plan with this name. Throws InputError if the name is unknown, or if it cannot run these stages.
[[nodiscard]] AttendPlan wanted_plan(const std::string& name, const Stages& stages);
[[nodiscard]] AttendCall call_of(const AttendInputs& inputs);

// Returns why this executor cannot run these stages, as the end of a sentence; empty if it can.
[[nodiscard]] std::string refusal_of(Executor executor, const Stages& stages);
// Returns why tiles do not run this call, for the terms of these inputs too; empty if they do. The device is that of
// `call`: example operands may be elsewhere.
[[nodiscard]] std::string refusal_by_tiles(const AttendInputs& inputs, const Stages& stages, const AttendCall& call);

// Returns the plan for this call. If an executor is wanted: that one, or if it cannot, the next below it that can. Else
// the highest one that suits the call: on a GPU, many small kernels of strips cost too much time where scores fit. While
// a capture watches pairs: the reference.
[[nodiscard]] AttendPlan plan_of(
    const AttendInputs& inputs, const Stages& stages, const AttendPlan& wanted, const AttendCall& call);
// Returns [b h i d].
[[nodiscard]] Tensor attend(const AttendInputs& inputs, const Stages& stages, const AttendPlan& wanted = {});

// ---- The parts of strips and of tiles.

// Returns the inputs with each head contiguous, if the device's products want that.
[[nodiscard]] AttendInputs heads_apart(AttendInputs inputs);

// Runs strips of `rows` rows, 0: as many as fit the caches. REQUIRES: the schemes are row local
[[nodiscard]] Tensor attend_in_strips(const AttendInputs& inputs, const Stages& stages, index_t rows);
// Returns why the scores of this call should not be kept: "scores exceed 2 GiB"; empty if they may.
[[nodiscard]] std::string reason_for_strips(const AttendCall& call);
// Returns the context of query rows [begin, end), without keys that none of them sees if the schemes allow that.
[[nodiscard]] AttendContext rows_of(const AttendContext& all, const Stages& stages, index_t begin, index_t end);

// Returns why a GPU does not run these stages in tiles, whatever the terms; empty if it may.
[[nodiscard]] std::string refusal_on_gpu(const Stages& stages);
[[nodiscard]] TileTerms terms_of(const AttendContext& context, const Stages& stages);
// Returns why these terms do not run in tiles on this device, as "what is given; what is required"; empty if they do.
[[nodiscard]] std::string refusal_of(const TileTerms& terms, Device device);
// Returns the output before attention's last stage, [b h i d]. REQUIRES: no refusal
[[nodiscard]] Tensor run_tiles(TileTerms terms, const std::optional<PatternDropout>& dropout = {});

}  // namespace whence
