#include "nn/positional/fading.h"

#include "autograd/observer.h"
#include "autograd/ops.h"
#include "nn/attention/layer_input.h"

namespace whence {

Tensor Fading::bias(const AttendContext& context) const {
  const Tensor c = running_sum(context);
  const Tensor faded = unsqueeze(of_queries(c, 2, context), 3) - unsqueeze(c, 2);  // c_i - c_j, [b h i j]
  // Above the diagonal the sum is empty: 0, not above 0.
  return probe("bias", cast(clamp_max(faded, 0), context.dtype()));
}

void Fading::add_to_tiles(TileTerms& terms, const AttendContext& context) const {
  terms.add(TiledOperands::column_term,
      cast(running_sum(context), context.dtype()) * -1.0);  // c_i moves whole rows, which softmax ignores
}

}  // namespace whence
