#include "tensor/tiles/gpu_programs.h"

#include <algorithm>

#include "tensor/backend.h"
#include "tensor/device/gpu_kernels.h"
#include "tensor/error.h"

namespace whence {

namespace {

using At = TiledOperands;

// Example operands may be on the CPU: then the GPU is unknown.
std::size_t most_shared_bytes(const Tensor& x) {
  return x.device().is_gpu() ? gpu_kernels(x).most_shared_bytes(x.dtype()) : GpuKernels::of_any_gpu(x.dtype());
}

std::string refused_heads(std::span<const Tensor> x) {
  const index_t d = x[At::query].size(3), of_values = x[At::value].size(3);
  if (d == of_values && d <= widest_head_on_gpu) return {};
  return to_text("heads of ", d, " and values of ", of_values,
      " numbers given to tiles on a GPU; equally many, at most ", widest_head_on_gpu, ", required");
}
std::string refused_facts(const TiledCall& at, Device device) {
  if (!(at.scale > 0)) return to_text("scale ", at.scale, " given to tiles on a GPU; more than 0 required");
  if (at.query_step.defined()) return "steps given to tiles on a GPU; distances first_row + i - j required";
  if (at.stick) return "a stick to break given to tiles on a GPU; a softmax of all pairs required";
  if (at.dropout > 0 && backend_of(device).launcher->recording())
    return "dropout given while work is being recorded, which would drop the same pairs at each replay; no dropout "
           "required";
  return {};
}

std::string refused_attention(const TiledCall& at, std::span<const Tensor> x) {
  const Tensor& query = x[At::query];
  const index_t d = query.size(3);
  const std::size_t most = most_shared_bytes(query);
  if (most == 0) return to_text(query.dtype(), " given to tiles on a GPU; f16, bf16 or f32 required");
  if (std::string refused = refused_heads(x); !refused.empty()) return refused;
  const bool relative = x[At::relative_query].defined() && x[At::relative_keys].defined() && !reads_gates(x),
             others = reads_gates(x) && x[At::gate_query].defined() && x[At::gate_key].defined();
  for (std::size_t k = 0; k < x.size(); ++k) {
    const bool read = k <= At::value || k == At::distance_table || k == At::column_term || k == At::column_rest ||
                      k == At::sink || (others && (k == At::gate_query || k == At::gate_key)) ||
                      (relative && (k == At::relative_query || k == At::relative_keys)) ||
                      (k >= At::position_logits && k <= At::position_slopes);
    if (x[k].defined() && !read)
      return to_text(At::info[k].name, " given, which has no program on a GPU; undefined required");
  }
  if (x[At::column_rest].defined() && size_of(query.dtype()) == 2)
    return to_text("column_rest given to tiles of ", query.dtype(), " on a GPU; undefined required");
  index_t positions = 0;
  for (const std::size_t k : {At::position_logits, At::position_keys})
    if (x[k].defined()) positions = x[k].size(k == At::position_keys ? 0 : 3);
  if (positions > most_positions_on_gpu)
    return to_text(
        "gates of ", positions, " positions given to tiles on a GPU; at most ", most_positions_on_gpu, " required");
  if (at.bins > (relative ? most_bins_on_gpu : 0))
    return to_text(at.bins, " bins given to tiles on a GPU; at most ", most_bins_on_gpu,
        ", and only with relative keys, required");
  if (relative && query.dtype() == DType::f32 && d > 64)
    return to_text("heads of ", d, " numbers in f32 with relative keys given to tiles on a GPU; at most 64 required");
  const bool table = x[At::distance_table].defined();
  const index_t needed = relative ? shared_bytes_of_relative_tiles(query.dtype(), d, at.bins, table)
                                  : shared_bytes_of_tiles(query.dtype(), d, positions, table, others);
  if (static_cast<std::size_t>(needed) > most)
    return to_text(needed >> 10, " KiB of shared memory for heads of ", d, " numbers in ", query.dtype(),
        positions ? to_text(" and gates of ", positions, " positions") : std::string(),
        others ? " with gates of gate_query" : "",
        relative ? to_text(", relative keys and ", at.bins, " bins") : std::string(), " given; this GPU has ",
        most >> 10);
  return refused_facts(at, query.device());
}

std::string refused_mix(const TiledCall& at, std::span<const Tensor> x) {
  const Tensor& query = x[At::query];
  const DType dtype = query.dtype();
  if (dtype == DType::f32 || most_shared_bytes(query) == 0)
    return to_text(dtype, " given to a head mix in tiles on a GPU; f16 or bf16 required");
  if (std::string refused = refused_heads(x); !refused.empty()) return refused;
  if (query.size(1) > most_mix_heads)
    return to_text(query.size(1), " heads given to a head mix on a GPU; at most ", most_mix_heads, " required");
  if (const Tensor& begins = x[At::piece_begins]; begins.defined()) {
    if (at.left > 0 || at.right > 0)  // sums for six factors of weights would go to memory and back for each key
      return to_text(
          at.left + 1 + at.right, " taps and a piecewise term given to a head mix on a GPU; one tap required");
    if (begins.size(0) > most_mix_pieces)
      return to_text(begins.size(0), " pieces given to a head mix on a GPU; at most ", most_mix_pieces, " required");
    if (most_shared_bytes(query) < shared_bytes_of_mix_pieces)
      return to_text(shared_bytes_of_mix_pieces >> 10,
          " KiB of shared memory for a head mix with pieces given; this GPU has ", most_shared_bytes(query) >> 10);
  }
  if (x[At::mix_input].size(0) > most_mix_hidden)
    return to_text(x[At::mix_input].size(0), " hidden numbers given to a head mix on a GPU; at most ", most_mix_hidden,
        " required");
  if (at.left != at.right || at.left > 1)
    return to_text(at.left + 1 + at.right, " taps with ", at.right,
        " on the right given to a head mix on a GPU; one, or one on either side, required");
  if (!(at.slope >= 0 && at.slope <= 1)) return to_text("slope ", at.slope, " given on a GPU; 0 to 1 required");
  return refused_facts(at, query.device());
}

}  // namespace

std::string gpu_refusal(const TiledCall& at, std::span<const Tensor> x) {
  return at.mixes ? refused_mix(at, x) : refused_attention(at, x);
}

}  // namespace whence
