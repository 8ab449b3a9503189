// The head mix in tiles: tensor/tiled_call.h has the equations, tensor/cpu/tiles/mix_forward.h and mix_backward.h compute it.
#include "autograd/tiled/tiled_op.h"

namespace whence {
namespace {

using namespace tiled;

void check_all(const At& at, const At::Operands& x) {
  Extents known;
  known['e'] = at.left + 1;
  if (const Tensor& query = x[At::query]; query.defined() && query.rank() == 4)
    known['x'] = query.size(1) * (x[At::piece_begins].defined() ? 2 : 1);
  const index_t kernel = check(at, x, known)['k'];
  for (const std::size_t k : {At::mix_input, At::mix_table, At::mix_output})
    if (!x[k].defined()) fail(at.name(), At::info[k].name, " is undefined; ", At::info[k].axes, " required");
  if (at.left + at.right != kernel - 1 || at.right > at.left)
    fail(at.name(), kernel, " taps with ", at.left, " on the left and ", at.right,
        " on the right given; kernel - 1 together, and no more on the right than on the left, required");
}

}  // namespace

Tensor tiled_mix(const TiledCall& given, const TiledCall::Operands& operands, Site site) {
  const CallSite place(site);
  At at = given;
  at.mixes = true;
  return run<true>(at, operands, site, check_all);
}

}  // namespace whence
