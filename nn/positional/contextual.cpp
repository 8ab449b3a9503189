#include "nn/positional/contextual.h"

#include "autograd/observer.h"
#include "autograd/ops.h"
#include "nn/attention/heads.h"
#include "nn/positional/rotation.h"
#include "tensor/error.h"

namespace whence {

SchemeOption Contextual::gates_option() {
  return option::words("gates", {"keys", "values", "separate_keys"}, "the vectors that gates compare queries with");
}
std::vector<ProbeInfo> Contextual::probes(std::string equation, std::string mark, std::vector<ProbeInfo> own) {
  std::vector<ProbeInfo> all{
      {"gate_logits", "b h i j", "gate before the sigmoid: does key j count for query i?",
          "q_i.kappa_j / sqrt(d),  kappa_j = k_j, or what the option gates names  (CoPE, in Eq. 3)"},
      {"gates", "b h i j", "does query i count key j?",
          "g_ij = sigmoid(q_i.kappa_j / sqrt(d)), 0 where masked;  kappa_j = k_j, or what the option gates names  "
          "(CoPE, Eq. 3)",
          ProbeInfo::unit},
      {"positions", "b h i j", "number of counted keys from j up to i", std::move(equation), ProbeInfo::sequential,
          std::move(mark)}};
  all.insert(all.end(), own.begin(), own.end());
  return all;
}
SchemeOption PositionQuery::scale_option() {
  return option::words("z_scale", {"1", "head"}, "factor of q.e: 1 as in Listing 1, or head: 1/sqrt(d)");
}
SchemeOption PositionQuery::from_option() {
  return option::words("z_from", {"unrotated", "rotated"}, "the query in q.e, if another scheme rotates");
}

Contextual::Contextual(const SchemeArguments& arguments)
    : from_(arguments.word("gates")), key_heads_(arguments.sizes().key_heads()) {
  if (from_ != "separate_keys") return;
  gate_key_ = std::make_unique<Linear>(arguments.sizes().dim, key_heads_ * arguments.sizes().head_dim());
  child("gate_key", *gate_key_);
}

// True if these are the scores themselves, so that the gates read S.
static bool are_scores(const GateLogits& logits, const AttendContext& context) {
  return logits.query.identity() == context.query.identity() && logits.key.identity() == context.key.identity() &&
         logits.scale == context.scale;
}

Tensor Contextual::gate_scores(const AttendContext& context) const {
  const GateLogits logits = gate_logits(context);
  return are_scores(logits, context) ? context.content_scores
                                     : matmul_by_group(logits.query, transpose(logits.key), logits.scale);
}

void Contextual::add_gates(TileTerms& terms, const AttendContext& context) const {
  const GateLogits logits = gate_logits(context);
  if (are_scores(logits, context)) return;  // programs have them
  terms.add(TiledOperands::gate_query, logits.query, logits.scale);
  terms.add(TiledOperands::gate_key, logits.key);
}

// Keys are those of the scores, rotated where a scheme rotates; values and keys of their own are not.
GateLogits Contextual::gate_logits(const AttendContext& context) const {
  if (from_ == "keys") return {context.query, context.key, context.scale};
  if (from_ == "values") return {context.unrotated_query, context.value, context.scale};
  return {context.unrotated_query, by_head((*gate_key_)(layer_input("cope(gates=separate_keys)", context)), key_heads_),
      context.scale};
}

PositionQuery::PositionQuery(const SchemeArguments& arguments)
    : scaled(arguments.word("z_scale") == "head"), rotated(arguments.word("z_from") == "rotated") {}

void PositionQuery::check_company(const char* scheme, const Stages& stages) const {
  if (!rotated) return;
  if (stages.rotates.empty())
    throw InputError(
        scheme, ": z_from=rotated given without a scheme that rotates; it has no effect; add rope, or leave it out");
  for (const auto& stage : stages.rotates) {
    if (dynamic_cast<const DoublesDims*>(stage.scheme))
      throw InputError(scheme, ": z_from=rotated given with a scheme that doubles the query's dims; ",
          "positions are vectors of a head's dims; leave it out");
    if (dynamic_cast<const CancelsInProduct*>(stage.scheme))
      throw InputError(scheme, ": z_from=rotated given with xpos, whose factors cancel in q.k alone; leave it out");
  }
}

}  // namespace whence
