// Tiled attention on the CPU: a head is a unit of work. The tiles themselves are in tensor/cpu/tiles/.
#include "tensor/cpu/tile_tasks.h"
#include "tensor/device/gpu_kernels.h"

namespace whence {
namespace tiles {
namespace {

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

template <class T> void backward(const Functions<T>& run, Device device, const TiledCall::Operands& d, Problem<T> p) {
  std::vector<Gradient<T>> gradients;
  for (std::size_t k = 0; k < d.size(); ++k) gradients.emplace_back(TiledCall::info[k].axes, d[k], p, p.d[k]);
  for (const std::size_t k : {At::column_term, At::column_rest})
    if (d[k].defined()) kernels(device).fill(d[k], 0);
  for_each_task<T>(p.batch * p.heads, run.backward_scratch(p), device,
      [&](index_t task, T* scratch) { run.backward(p, task / p.heads, task % p.heads, scratch); });
  for (std::size_t k = 0; k < d.size(); ++k) gradients[k].sum(k == At::position_keys ? p.position_scale : T(1));
}

}  // namespace
}  // namespace tiles

void TiledCall::forward(const Operands& x, const Tensor& output, const Tensor& bin_sums, const Tensor& norms) const {
  if (output.device().is_gpu() && mixes) return gpu_kernels(output).mix(*this, x, output, norms);
  if (output.device().is_gpu()) return gpu_kernels(output).attention(*this, x, output, bin_sums, norms);
  const tiles::DropoutMask drop{*this, x[query].size(1), x[key].size(2)};
  tiles::visit_functions(name(), output, [&]<class T>(const tiles::Functions<T>& run) {
    const tiles::Problem<T> p = tiles::problem_of<T>(*this, x, drop, output, bin_sums, norms);
    mixes ? tiles::mix_forward(run, *this, x, p, output.device()) : tiles::forward(run, p, output.device());
  });
}

void TiledCall::backward(const Operands& x, const Tensor& output, const Tensor& bin_sums, const Tensor& norms,
    const Tensor& d_output, const Tensor& d_bins, const Operands& d) const {
  if (output.device().is_gpu() && mixes) return gpu_kernels(output).mix_backward(*this, x, output, norms, d_output, d);
  if (output.device().is_gpu())
    return gpu_kernels(output).attention_backward(*this, x, output, bin_sums, norms, d_output, d_bins, d);
  const tiles::DropoutMask drop{*this, x[query].size(1), x[key].size(2)};
  tiles::visit_functions(name(), output, [&]<class T>(const tiles::Functions<T>& run) {
    const tiles::Problem<T> p = tiles::problem_of<T>(*this, x, drop, output, bin_sums, norms, d_output, d_bins);
    mixes ? tiles::mix_backward(run, *this, x, d, p, output.device()) : tiles::backward(run, output.device(), d, p);
  });
}

}  // namespace whence
