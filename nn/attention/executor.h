// How attention is computed from queries, keys and values. There are three ways, with one result.
//   reference   ops on whole [b h i j] tensors, every probe live: what readers read
//   tiled       programs over tiles of pairs, no tensor of all pairs in either direction: what training runs
//   strips      the same stage code on blocks of query rows, run again in backward: memory for one block, not all pairs
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/attention/position.h"
#include "tensor/random.h"

namespace whence {

struct PatternDropout {
  double probability;
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
  // [b h i d]. A masked pair adds exactly nothing: on the CPU, infinities and NaN of later tokens or of padding change
  // no bit of a row that sees none of them, and the gradient of its query by no more than rounding (what a block of
  // tiles sums first depends on all of its rows). Where a gradient that comes in is not finite, it reaches the keys and
  // values of its whole sequence, and no other query. Probes inside then see two passes, the last that of the rows that
  // see such numbers. Not on a GPU, where to look would be to wait for the device at each layer: there 0 x NaN is NaN,
  // as in other libraries.
  [[nodiscard]] Tensor attend(const AttendInputs& inputs, const Stages& stages) const;
  // The same for finite inputs. Of others it makes what the arithmetic makes of them.
  [[nodiscard]] virtual Tensor attend_finite(const AttendInputs& inputs, const Stages& stages) const = 0;
};

const Executor& reference_executor();
const Executor& tiled_executor();   // f32 and f64 on devices that have tiles; strips for calls that no program fits
const Executor& strips_executor();  // blocks as large as the caches like
// Throws Error when there is not one row per block.
[[nodiscard]] std::unique_ptr<Executor> strips_executor_of(index_t rows_per_block);
std::vector<const Executor*> executors();
[[nodiscard]] std::vector<std::string> executor_names();  // "auto" first

// Whether this device has tile programs for these numbers.
bool tiles_take(const Tensor& query);

[[nodiscard]] const Executor* executor_named(const std::string& name);  // null: none has that name

// Which executor runs: the one that was named, or under "auto" the one that suits each call.
class ExecutorChoice {
 public:
  // Throws InputError when the name is unknown, or when that executor cannot run these stages.
  ExecutorChoice(const std::string& wanted, const Stages& stages);
  const Executor& pick(const AttendInputs& inputs) const;
  std::string explain() const;  // one line: which, when, and why

 private:
  const Executor* wanted_ = nullptr;  // nullptr: auto
  std::string tiled_refusal_, strips_refusal_;
};

// The stages from scores to output [b h i d] for the query rows of `at`, whose queries and keys are rotated already.
// Reference and strips run this. `total_rows`: of the whole run, for dropout's draws.
[[nodiscard]] Tensor attend_rows(
    AttendContext at, const Stages& stages, const std::optional<PatternDropout>& dropout, index_t total_rows);

// The context of query rows [begin, end), without the keys that none of them sees where the schemes allow that.
[[nodiscard]] AttendContext rows_of(const AttendContext& all, const Stages& stages, index_t begin, index_t end);

// Whether a capture wants what only the reference executor shows, and that in its composed form.
[[nodiscard]] bool pairs_are_watched();

// What comes before the scores: a context with queries and keys rotated.
[[nodiscard]] AttendContext rotated_context(const AttendInputs& inputs, const Stages& stages);

}  // namespace whence
