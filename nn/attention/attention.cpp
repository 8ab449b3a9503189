#include "nn/attention/attention.h"

#include "autograd/observer.h"
#include "autograd/ops.h"
#include "nn/attention/heads.h"
#include "tensor/error.h"

namespace whence {
namespace {

SchemeSizes scheme_sizes(const AttentionOptions& options) {
  return {options.dim, options.heads, options.length, options.layer, options.kv_heads};
}

const AttentionOptions& checked(const AttentionOptions& options) {
  scheme_sizes(options).require_whole("attention");
  if (!detail::planner && options.executor != "auto" && options.executor != "reference")
    throw InputError(
        "executor: '", options.executor, "' given to a build of the core alone; auto or reference required");
  return options;
}

index_t key_width(const AttentionOptions& options) {
  return scheme_sizes(options).key_heads() * scheme_sizes(options).head_dim();
}

Stages stages_of(const SchemeList& own, std::vector<const PositionalScheme*> schemes) {
  for (const PositionalScheme* scheme : own.all()) schemes.push_back(scheme);
  return Stages::of(schemes);
}

}  // namespace

const std::vector<ProbeInfo>& attention_probes() {
  static const std::vector<ProbeInfo> probes{
      {"x", "b t c", "input of the layer's attention", "x_t, the residual stream after its norm"},
      {"q", "b h i d", "query: the features that each token looks for", "q_i = W_q x_i + b_q"},
      {"k", "b h j d", "key: the features by which each token is found", "k_j = W_k x_j + b_k"},
      {"v", "b h j d", "value: the content that each token passes on", "v_j = W_v x_j + b_v"},
      {"scores", "b h i j", "fit of query i and key j, by content", "S_ij = q_i.k_j / sqrt(d)"},
      {"logits", "b h i j", "scores with the terms of all positions", "A_ij"},
      {"pattern", "b h i j", "attention weight of key j for query i", "P_ij = softmax over j of A_ij", ProbeInfo::unit},
      {"output", "b h i d", "sum of values that each query gets", "o_i = sum_j P_ij v_j"}};
  return probes;
}

Attention::Attention(const AttentionOptions& options, const std::vector<SchemeSpec>& specs,
    const std::vector<const PositionalScheme*>& shared)
    : options_(checked(options)),
      query_(options.dim, options.dim, options.bias, options.in, options.bias_init),
      key_(options.dim, key_width(options), options.bias, options.in, options.bias_init),
      value_(options.dim, key_width(options), options.bias, options.in, options.bias_init),
      output_(options.dim, options.dim, options.bias, options.out, options.bias_init),
      dropout_(options.dropout),
      schemes_(specs, scheme_sizes(options), SchemeList::Owner::layer),
      stages_(stages_of(schemes_, shared)),
      wanted_(detail::planner ? detail::planner->wanted(options.executor, stages_) : AttendPlan()) {
  child("query", query_);
  child("key", key_);
  child("value", value_);
  child("output", output_);
  child("dropout", dropout_);
  child("position", schemes_.root());
}

// A GPU computes one large product instead of three.
std::array<Tensor, 3> Attention::project(const Tensor& x, AttentionCache* cache) const {
  if (x.device().is_gpu()) {
    const auto both = [](const Linear& layer) { return Projection{layer.weight(), layer.bias()}; };
    const std::array by{both(query_), both(key_), both(value_)};
    std::array<Tensor, 3> kept;
    if (cache) kept = cache->project(options_.layer, x, by, options_.heads);
    return kept[0].defined() ? kept : project_heads(x, by[0], by[1], by[2], options_.heads);
  }
  const index_t dim = query_.weight().size(0) / options_.heads;
  const auto of = [&](const Linear& layer) { return by_head(layer(x), layer.weight().size(0) / dim); };
  return {of(query_), of(key_), of(value_)};
}

Tensor Attention::operator()(
    const Tensor& input, const Sequence& sequence, const Pass& pass, AttentionCache* cache) const {
  const Scope scope(path());
  const Tensor x = probe("x", input);
  const auto [query, key, value] = project(x, cache);
  AttendInputs inputs{x, query, key, value, sequence};
  if (pass.training && options_.pattern_dropout > 0)
    inputs.dropout = PatternDropout{options_.pattern_dropout, Stream(pass.seed, path() + ".pattern", pass.step)};
  const Tensor mixed = probe("output", cache             ? cache->attend(options_.layer, inputs, stages_, wanted_)
                                       : detail::planner ? detail::planner->attend(inputs, stages_, wanted_)
                                                         : attend_by_reference(inputs, stages_));  // [b h t d]
  const Tensor merged = reshape(permute(mixed, {0, 2, 1, 3}), x.shape());                          // [b t c]
  return dropout_(output_(merged), pass);
}

std::string Attention::explain(Device device, DType dtype, index_t sequences, index_t length, bool causal) const {
  if (!detail::planner) return "reference (every probe live)";
  const Tensor& own = query_.weight();  // explained where the layer is, with zeros
  const SchemeSizes sizes = scheme_sizes(options_);
  const auto zeros = [&](const Shape& shape) { return Tensor::zeros(shape, own.dtype(), own.device()); };
  const Tensor keys = zeros({1, sizes.key_heads(), length, sizes.head_dim()});
  return detail::planner->explain({zeros({1, length, sizes.dim}), zeros({1, sizes.heads, length, sizes.head_dim()}),
                                      keys, keys, Sequence::run(length, causal)},
      stages_, wanted_, {device, dtype, sequences * options_.heads * length * length});
}

}  // namespace whence
