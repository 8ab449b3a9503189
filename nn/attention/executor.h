// How attention is computed from queries, keys and values. There are three ways, with one result.
//   reference   ops on whole [b h i j] tensors, every probe live: what readers read
//   tiled       programs over tiles of pairs, no tensor of all pairs in either direction: what training runs
//   strips      the same stage code on blocks of query rows, run again in backward: memory for one block, not all pairs
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/ops.h"
#include "nn/attention/stages.h"
#include "tensor/random.h"

namespace whence {

struct PatternDropout {
  double probability;  // in [0, 1)
  Stream stream;
};

struct AttendInputs {
  Tensor x;                  // [b j c]; undefined where attention is run on bare queries, keys and values
  Tensor query, key, value;  // [b h i d], [b h j d], [b h j d]
  Sequence sequence;         // mask, padding, positions
  std::optional<PatternDropout> dropout = {};  // of the pattern, in training
  std::optional<double> scale = {};            // of q.k; 1 / sqrt(d) when none is given
};

class Executor {
 public:
  virtual ~Executor() = default;
  virtual const char* name() const = 0;
  // Why these stages cannot run here, as the end of a sentence; empty when they can.
  virtual std::string refusal(const Stages& stages) const = 0;
  // [b h i d] in the query's dtype. A masked pair adds exactly nothing as long as numbers are finite. Infinity and NaN
  // are not looked for: 0 x NaN is NaN, so that one in a later token or in padding may reach every row of its sequence.
  [[nodiscard]] virtual Tensor attend(const AttendInputs& inputs, const Stages& stages) const = 0;
};

const Executor& reference_executor();
const Executor& tiled_executor();   // f32 and f64 on the CPU; strips for calls that no program fits
const Executor& strips_executor();  // blocks as large as the caches like
// Throws Error when there is not one row per block.
[[nodiscard]] std::unique_ptr<Executor> strips_executor_of(index_t rows_per_block);
std::vector<const Executor*> executors();
[[nodiscard]] std::vector<std::string> executor_names();  // "auto" first

// True if this device has tile programs for these numbers.
bool tiles_take(Device device, DType dtype);
// The executor in place of the tiled one where that cannot run: strips, or reference where a scheme needs all rows.
const Executor& instead_of_tiles(const Stages& stages);

// The executor that a user names; null for "auto". Throws InputError when the name is unknown, or when that executor
// cannot run these stages.
[[nodiscard]] const Executor* wanted_executor(const std::string& name, const Stages& stages);
// A call, as far as the choice of its executor depends on it.
struct AttendCall {
  Device device;
  DType dtype;
  index_t pairs;  // b h i j
};
[[nodiscard]] AttendCall call_of(const AttendInputs& inputs);
// The executor that runs this call: the wanted one, if it can; where none is wanted, the one that suits the call. While
// a capture watches pairs it is the reference executor.
[[nodiscard]] const Executor& executor_for(const Executor* wanted, const Stages& stages, const AttendCall& call);
// "reference (no tile programs for f32 on a GPU)": that executor, and why.
[[nodiscard]] std::string explain_executor(const Executor* wanted, const Stages& stages, const AttendCall& call);

// The stages from scores to output [b h i d] for the query rows of `context`, whose queries and keys are rotated
// already. Reference and strips run this. `whole`: where these rows lie in the whole pattern, by which dropout draws.
[[nodiscard]] Tensor attend_rows(AttendContext context, const Stages& stages,
    const std::optional<PatternDropout>& dropout = {}, const StripOf& whole = {});

// The last stage alone, on [b h i d].
[[nodiscard]] Tensor output_of(Tensor output, const AttendContext& context, const Stages& stages);

// The context of query rows [begin, end), without the keys that none of them sees where the schemes allow that.
[[nodiscard]] AttendContext rows_of(const AttendContext& all, const Stages& stages, index_t begin, index_t end);

// Whether a capture wants what only the reference executor shows, and that in its composed form.
[[nodiscard]] bool pairs_are_watched();

// What comes before the scores: a context with queries and keys rotated.
[[nodiscard]] AttendContext rotated_context(const AttendInputs& inputs, const Stages& stages);

}  // namespace whence
