// Attention in tiles: tensor/tiled_call.h has the equations, tensor/cpu/tiles/ the programs.
#include "autograd/ops/index.h"
#include "autograd/tiled/tiled_op.h"

namespace whence {
namespace {

using namespace tiled;

void check_all(const At& at, const At::Operands& x) {
  const Extents of = check(at, x);
  if (x[At::relative_query].defined() && x[At::query].device().is_gpu() && !(at.relative_scale > 0))
    fail(at.name(), "relative_scale ", at.relative_scale, " given to tiles on a GPU; more than 0 required");
  for (const std::size_t k : {At::position_logits, At::position_keys})
    if (x[k].defined() && of['p'] == 0)
      fail(at.name(), At::info[k].name, " is ", x[k].shape(), "; a table of one row or more required");
}

}  // namespace

TiledResult tiled_attention(const TiledCall& given, const TiledCall::Operands& operands, Site site) {
  const CallSite place(site);
  At at = given;
  at.mixes = false;
  if (at.bin_of.defined()) at.bin_of = detail::checked_index(at.name(), "bin_of", at.bin_of, at.bins);
  const Tensor y = run<false>(at, operands, site, check_all);
  const index_t width = operands[At::value].size(3);
  if (at.bins == 0) return {y, {}};
  return {slice(y, 3, 0, width, 1, site), slice(y, 3, width, width + at.bins, 1, site)};
}

}  // namespace whence
