// tiled_refusal(): decides alone which operands go together in tiles. Ops call it, and executors that have another way.
#include "autograd/tiled/tiled_ops.h"
#include "tensor/error.h"

namespace whence {

std::string tiled_refusal(const TiledCall& at, const TiledCall::Operands& x) {
  using At = TiledOperands;
  const auto given = [&](std::size_t k) { return x[k].defined(); };
  for (std::size_t k = 0; k < x.size(); ++k)
    if (given(k) && !(At::info[k].ops & at.op()))
      return to_text(At::info[k].name, " given, which is not read here; undefined required");
  for (const std::size_t k : {At::relative_query, At::gate_query})  // a rotation makes the scores' queries wider
    if (given(k) && x[k].size(-1) != x[At::query].size(-1))
      return to_text(
          At::info[k].name, " is ", x[k].shape(), ", query is ", x[At::query].shape(), "; one width required");

  if (at.row.defined() && x[At::query].device().is_cpu())
    return "a first row known only to the device given on the CPU; a number required";
  if (at.mixes) {
    if (at.query_step.defined()) return "steps given with a head mix; distances first_row + i - j required";
    if (at.bins > 0 || at.stick)
      return to_text(at.stick ? "a stick to break" : "bins", " given with a head mix; a softmax alone required");
    const bool known = given(At::mix_input) && x[At::mix_input].rank() == 3;
    if (known && given(At::piece_slopes) && x[At::mix_input].size(1) == x[At::query].size(1))
      return "piece_slopes given with a head mix of the scores alone; channels for pieces required, or no pieces";
    if (known && at.window > 0 && x[At::mix_input].size(2) > 1)
      return to_text(x[At::mix_input].size(2),
          " taps in a window given; one tap required: keys next to the window's edge differ for each row");
    return {};
  }
  const char* scan = nullptr;
  for (const std::size_t k : {At::position_logits, At::position_keys, At::position_slopes}) {
    if (given(k) && scan) return to_text(At::info[k].name, " given with ", scan, "; one of them required");
    if (given(k)) scan = At::info[k].name;
  }
  if (given(At::relative_query) && at.query_step.defined())
    return "relative_query with steps given; distances first_row + i - j required";
  for (const std::size_t k : {At::column_rest, At::column_slope})
    if (given(k) && !given(At::column_term))
      return to_text(At::info[k].name, " given without column_term, to which it belongs; both required");
  if (given(At::column_term) && given(At::sink))  // column terms are known up to a number for each row
    return "column_term given with a sink, which depends on shifts of rows; one of them required";
  if (!at.stick) return {};
  if (!at.causal) return "a stick to break without a causal mask given; causal required";
  for (std::size_t k = At::value + 1; k < x.size(); ++k)
    if (given(k)) return to_text(At::info[k].name, " given with a stick to break; the scores alone required");
  return at.bins > 0 ? "bins given with a stick to break; the scores alone required" : "";
}

}  // namespace whence
