// The strips executor: the same stage code on blocks of query rows. Each block is dropped, and computed again in
// backward.
//   saved for backward: queries, keys, values, parameters and the output
//   working memory:     one block [b h rows j] and the intermediates of its stages
// This is valid because every stage is row local: row i of any intermediate needs only query i. Backward sums dk, dv
// and the parameters' gradients over the blocks in order, so the bits do not depend on the number of threads.
#include <algorithm>
#include <limits>

#include "autograd/backward.h"
#include "autograd/ops.h"
#include "autograd/recompute.h"
#include "nn/attention/plan.h"
#include "tensor/error.h"

namespace whence {
namespace {

constexpr index_t MiB = index_t(1) << 20;

// On a CPU the scores of a strip should fit the caches but keep all cores busy. On a GPU its dozen of kernels should run
// longer than their launches take. Neither depends on free memory, so that a model has the same bits on every machine.
index_t rows_that_fit(const AttendContext& context) {
  const bool gpu = context.query.device().is_gpu();
  const index_t row = context.query.size(0) * context.query.size(1) * context.key.size(2) *
                      static_cast<index_t>(size_of(context.query.dtype()));
  return std::clamp<index_t>(
      (gpu ? 1024 : 16) * MiB / std::max<index_t>(row, 1), 16, gpu ? std::numeric_limits<index_t>::max() : 512);
}

// Returns [begin, end) of an axis, counted from the last one; x itself if it is undefined or constant along that axis.
Tensor part(const Tensor& x, int axis, index_t begin, index_t end) {
  return x.defined() && x.rank() + axis >= 0 && x.size(axis) > 1 ? slice(x, axis, begin, end) : x;
}

// Limits the context to the keys [first, end). Under a causal mask a block needs no keys after its last row, as in
// decoding, and none before the window of its first row.
void leave_keys(AttendContext& context, index_t first, index_t end) {
  const index_t left_out = context.key.size(2) - end;
  context.keys_behind += std::min(left_out, std::numeric_limits<index_t>::max() - context.keys_behind);
  context.key = slice(context.key, 2, first, end);  // [b g keys d]
  context.value = slice(context.value, 2, first, end);
  if (context.x.defined()) context.x = slice(context.x, 1, first, end);
  context.keys = end - first;
  context.given_mask = part(context.given_mask, -1, first, end);
  context.present = part(context.present, -1, first, end);
  context.positions.key = slice(context.positions.key, -1, first, end);
  context.first_row -= first;
}

AttendContext queries_of(const AttendContext& context, index_t begin, index_t end) {
  AttendContext block = context;
  block.query = slice(context.query, 2, begin, end);  // [b h rows d]
  block.unrotated_query = slice(context.unrotated_query, 2, begin, end);
  block.rows = end - begin;
  block.given_mask = part(context.given_mask, -2, begin, end);
  block.positions.query = slice(context.positions.query, -1, begin, end);
  block.first_row = context.first_row + begin;
  return block;
}

// The arguments of a block's function: leaves are passed as they are, other tensors as copies without history.
struct BlockArguments {
  explicit BlockArguments(const AttendContext& context, const Stages& stages)
      : list{context.query, context.unrotated_query, context.key, context.value} {
    if (context.x.defined()) list.push_back(context.x);
    for (const PositionalScheme* scheme : stages.schemes)
      for (const Module::Parameter& parameter : scheme->parameters()) list.push_back(parameter.tensor);
  }
  static void put(const std::vector<Tensor>& given, AttendContext& context) {
    context.query = given[0], context.unrotated_query = given[1], context.key = given[2], context.value = given[3];
    if (context.x.defined()) context.x = given[4];
  }
  std::vector<Tensor> list;
};

// True if rows need no later keys. A scheme that depends on the end of the run would need to know which of the removed
// keys are padding.
bool earlier_keys_suffice(const AttendContext& all, const Stages& stages) {
  return all.causal && std::ranges::all_of(stages.schemes, [&](const PositionalScheme* scheme) {
    const Claims claims = scheme->claims();
    return claims.sees_no_future && (!all.present.defined() || claims.prefix_consistent);
  });
}

// True if keys before the window are not needed. Stages that make or map scores may read them.
bool window_suffices(const AttendContext& all, const Stages& stages) {
  return all.window > 0 && stages.scores.empty() && stages.maps.empty() && earlier_keys_suffice(all, stages);
}

}  // namespace

// Below this size of scores it is cheaper to keep them than to compute them twice. A training step holds a dozen of them
// per layer. A GPU has enough memory, but many small kernels of strips would cost it time.
std::string reason_for_strips(const AttendCall& call) {
  const index_t worth = (call.device.is_gpu() ? 2048 : 256) * MiB;
  return call.pairs * static_cast<index_t>(size_of(call.dtype)) > worth
             ? "scores exceed " + bytes_text(static_cast<std::size_t>(worth))
             : std::string();
}

Tensor attend_in_strips(const AttendInputs& inputs, const Stages& stages, index_t rows_of_block) {
  const AttendContext all = rotated_context(inputs, stages);
  const index_t rows = all.query.size(2), block = rows_of_block ? rows_of_block : rows_that_fit(all);
  std::vector<Tensor> outputs;
  for (index_t begin = 0; begin < rows; begin += block) {
    AttendContext context = rows_of(all, stages, begin, std::min(begin + block, rows));
    if (window_suffices(all, stages))
      leave_keys(context, std::max<index_t>(context.first_row + 1 - all.window, 0), context.keys);
    const BlockArguments operands(context, stages);
    // The function outlives this call, so it must not keep the history of its operands.
    context.query = context.unrotated_query = context.key = context.value = Tensor();
    if (context.x.defined()) context.x = context.x.detach();
    const index_t first_row = all.first_row + begin;
    const StripOf whole{first_row, all.first_row + rows, all.key.size(2), first_row - context.first_row};
    const auto run = [context, stages, dropping = inputs.dropout, whole](const std::vector<Tensor>& given) {
      AttendContext now = context;
      now.own_cache();  // a shared cache of masks would hold all pairs
      BlockArguments::put(given, now);
      return attend_rows(std::move(now), stages, dropping, whole);
    };
    outputs.push_back(recompute(run, operands.list));
  }
  return outputs.empty() ? all.query : outputs.size() == 1 ? outputs[0] : concat_along(2, outputs);  // [b h i d]
}

AttendContext rows_of(const AttendContext& all, const Stages& stages, index_t begin, index_t end) {
  AttendContext context = queries_of(all, begin, end);
  if (earlier_keys_suffice(all, stages))
    leave_keys(context, 0, std::min(context.first_row + end - begin, context.key.size(2)));
  return context;
}

}  // namespace whence
