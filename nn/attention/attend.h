// Attention from queries, keys and values to the output, by one of three executors with one result.
//   reference   ops on whole [b h i j] tensors, every probe live: the one to read (executor_reference.cpp)
//   strips      the same stage code on blocks of query rows, run again in backward: memory for one block, not all pairs
//   tiled       programs over tiles of pairs, no tensor of all pairs in either direction: the one that training runs
#pragma once

#include <optional>
#include <string>

#include "autograd/ops.h"
#include "nn/attention/stages.h"
#include "tensor/random.h"

namespace whence {

struct PatternDropout {
  double probability;  // in [0, 1)
  Stream stream;
};

struct AttendInputs {
  Tensor x;                                    // [b j c]; undefined if attention runs on bare queries, keys and values
  Tensor query, key, value;                    // [b h i d], [b g j d], [b g j d]
  Sequence sequence;                           // mask, padding, positions
  std::optional<PatternDropout> dropout = {};  // on the pattern, in training
  std::optional<double> scale = {};            // factor of q.k; default 1 / sqrt(d)
};

enum class Executor : unsigned char { automatic, reference, strips, tiled };

// The executor of a call, wanted or chosen (nn/attention/plan.h).
struct AttendPlan {
  AttendPlan(Executor by = Executor::automatic, index_t rows_of_block = 0) : executor(by), rows(rows_of_block) {}
  Executor executor;
  index_t rows;     // of a strip; 0: as many as fit the caches
  std::string why;  // the reasons for the choice
};

// Runs every stage on all rows, and returns [b h i d] in the query's dtype. A masked pair adds exactly nothing as long as
// numbers are finite. Infinity and NaN are not checked for. Because 0 x NaN is NaN, a NaN in a later token or in padding
// may reach every row of its sequence. This holds for each executor.
[[nodiscard]] Tensor attend_by_reference(const AttendInputs& inputs, const Stages& stages);

// The steps of it. Returns the context before scores; its queries and keys are rotated.
[[nodiscard]] AttendContext rotated_context(const AttendInputs& inputs, const Stages& stages);
// Runs the stages from scores to output [b h i d] for the query rows of `context`, whose queries and keys are already
// rotated. `whole`: the place of these rows in the whole pattern, from which dropout draws.
[[nodiscard]] Tensor attend_rows(AttendContext context, const Stages& stages,
    const std::optional<PatternDropout>& dropout = {}, const StripOf& whole = {});
// Runs the last stage only, on [b h i d].
[[nodiscard]] Tensor output_of(Tensor output, const AttendContext& context, const Stages& stages);

struct AttendCall;
// Other executors than the reference, as nn/attention/plan.h declares them.
struct Planner {
  AttendPlan (*wanted)(const std::string& name, const Stages& stages);
  std::string (*explain)(const AttendInputs&, const Stages&, const AttendPlan& wanted, const AttendCall&);
  Tensor (*attend)(const AttendInputs&, const Stages&, const AttendPlan& wanted);
};
namespace detail {
inline const Planner* planner = nullptr;  // set by nn/attention/plan.cpp; null in the core alone
}

// The properties of a call that its plan depends on.
struct AttendCall {
  Device device;
  DType dtype;
  index_t pairs;  // b h i j
};

}  // namespace whence
