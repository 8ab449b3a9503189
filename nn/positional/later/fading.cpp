#include "nn/positional/later/fading.h"

#include "autograd/observer.h"
#include "autograd/ops.h"
#include "nn/attention/heads.h"

namespace whence {

Tensor Fading::bias(const AttendContext& context) const {
  const Tensor c = sums(context);
  const Tensor faded = unsqueeze(of_queries(c, 2, context), 3) - unsqueeze(c, 2);  // c_i - c_j, [b h i j]
  // Above the diagonal the sum is empty, so it is clamped to 0.
  const Tensor between = cast(clamp_max(faded, 0), compute_dtype(context.dtype())), g = slopes(context);
  return probe("bias", cast(g.defined() ? unsqueeze(g, 3) * between : between, context.dtype()));
}

// ---- The same in tiles: readers may stop here. ----
void Fading::add_to_tiles(TileTerms& terms, const AttendContext& context) const {
  if (const Tensor g = slopes(context); g.defined()) terms.add(TiledOperands::column_slope, g);
  terms.add(TiledOperands::column_term, sums(context) * -1.0);  // c_i shifts whole rows, which softmax ignores
}

}  // namespace whence
