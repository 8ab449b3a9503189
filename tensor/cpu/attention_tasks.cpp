// Tiled attention on the CPU: a head is a unit of work. The tiles themselves are in tensor/cpu/tiles/.
#include "tensor/tiles/attention_kernel.h"

#include "tensor/cpu/tile_tasks.h"
#include "tensor/device/joined_kernels.h"

namespace whence {
namespace tiles {
namespace {

template <class T>
Problem<T> problem_of(const TiledAttention& at, const TiledAttention::Operands& x, const DropoutMask& drop) {
  Problem<T> p{};
  const Extents of = enter_facts("tiled_attention", at, x, drop, p);
  if (at.bin_of.defined()) p.distances = at.bin_of.numel(), p.bin_of = at.bin_of.data<std::int64_t>();
  p.stick = at.stick, p.rest_to_self = at.rest_to_self;
  p.bins = at.bins, p.positions = std::max<index_t>(of['p'], 1);
  p.relative_scale = T(static_cast<T>(at.relative_scale)), p.gate_scale = T(static_cast<T>(at.gate_scale));
  p.position_scale = T(static_cast<T>(at.position_scale));
  if (at.query_step.defined()) {
    p.query_step = at.query_step.data<std::int64_t>(), p.key_step = at.key_step.data<std::int64_t>();
    p.query_step_batch = at.query_step.size(0) > 1 ? p.queries : 0;
    p.key_step_batch = at.key_step.size(0) > 1 ? p.keys : 0;
  }
  return p;
}

// A task is one head. With few heads, each is cut into pieces of whole blocks.
template <class T> void forward(const Functions<T>& run, const Problem<T>& p, Device device) {
  constexpr index_t block = 64;
  const index_t heads = p.batch * p.heads, blocks = (p.queries + block - 1) / block;
  const index_t pieces = std::clamp<index_t>(4 * threads() / std::max<index_t>(heads, 1), 1, blocks);
  for_each_task<T>(heads * pieces, run.forward_scratch(p), device, [&](index_t task, T* scratch) {
    const index_t head = task / pieces, piece = pieces - 1 - task % pieces;
    const index_t begin = blocks * piece / pieces * block,
                  end = std::min(blocks * (piece + 1) / pieces * block, p.queries);
    run.forward(p, head / p.heads, head % p.heads, begin, end - begin, scratch);
  });
}

template <class T>
void backward(const Functions<T>& run, Device device, const TiledAttention::Operands& d, Problem<T> p) {
  std::vector<Gradient<T>> gradients;
  for (std::size_t k = 0; k < d.size(); ++k) gradients.emplace_back(TiledAttention::info[k].axes, d[k], p, p.d[k]);
  for (const std::size_t k : {At::column_term, At::column_rest})
    if (d[k].defined()) kernels(device).fill(d[k], 0);
  for_each_task<T>(p.batch * p.heads, run.backward_scratch(p), device,
      [&](index_t task, T* scratch) { run.backward(p, task / p.heads, task % p.heads, scratch); });
  for (std::size_t k = 0; k < d.size(); ++k) gradients[k].sum(k == At::position_keys ? p.position_scale : T(1));
}

}  // namespace
}  // namespace tiles

void TiledAttention::forward(
    const Operands& x, const Tensor& output, const Tensor& bin_sums, const Tensor& norms) const {
  if (output.device().is_gpu()) return joined_kernels(output).attention(*this, x, output, bin_sums, norms);
  const tiles::DropoutMask drop{*this, x[query].size(1), x[key].size(2)};
  tiles::visit_functions("tiled_attention", output, [&]<class T>(const tiles::Functions<T>& run) {
    tiles::Problem<T> p = tiles::problem_of<T>(*this, x, drop);
    tiles::enter_output<T>(output, norms, {}, p);
    p.bin_sums = tiles::rows_of<T>("b h i c", bin_sums);
    tiles::forward(run, p, output.device());
  });
}

void TiledAttention::backward(const Operands& x, const Tensor& output, const Tensor& bin_sums, const Tensor& norms,
    const Tensor& d_output, const Tensor& d_bins, const Operands& d) const {
  if (output.device().is_gpu())
    return joined_kernels(output).attention_backward(*this, x, output, bin_sums, norms, d_output, d_bins, d);
  const tiles::DropoutMask drop{*this, x[query].size(1), x[key].size(2)};
  tiles::visit_functions("tiled_attention", output, [&]<class T>(const tiles::Functions<T>& run) {
    tiles::Problem<T> p = tiles::problem_of<T>(*this, x, drop);
    tiles::enter_output<T>(output, norms, d_output, p);
    p.bin_sums = tiles::rows_of<T>("b h i c", bin_sums), p.bin_gradient = tiles::rows_of<const T>("b h i c", d_bins);
    tiles::backward(run, output.device(), d, p);
  });
}

}  // namespace whence
