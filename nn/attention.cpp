// Projections, heads, and the executor in between.
#include "nn/attention.h"

#include "autograd/ops.h"
#include "autograd/probe.h"
#include "tensor/error.h"

namespace whence {
namespace {

const AttentionOptions& checked(const AttentionOptions& options) {
  if (options.heads < 1 || options.dim < 1 || options.dim % options.heads) {
    throw InputError(concat("attention: dim ", options.dim, " with ", options.heads, " heads given; dim must be a multiple of heads"));
  }
  return options;
}

}  // namespace

Attention::Attention(const AttentionOptions& options, const std::vector<SchemeSpec>& specs)
    : options_(checked(options)),
      query_(options.dim, options.dim, true, options.in),
      key_(options.dim, options.dim, true, options.in),
      value_(options.dim, options.dim, true, options.in),
      output_(options.dim, options.dim, true, options.out),
      dropout_(options.dropout),
      schemes_(specs, {options.dim, options.heads, options.length}, true) {
  child("query", query_);
  child("key", key_);
  child("value", value_);
  child("output", output_);
  child("dropout", dropout_);
  child("position", schemes_.root());
  for (const PositionalScheme* scheme : schemes_.all()) stages_.add(*scheme);
  for (const PositionalScheme* scheme : schemes_.all()) scheme->check_company(stages_);
  choice_ = choose_executor(options.executor, stages_);
}

Tensor Attention::by_head(const Tensor& x) const {
  return permute(reshape(x, {x.size(0), x.size(1), options_.heads, options_.dim / options_.heads}), {0, 2, 1, 3});
}

Tensor Attention::operator()(const Tensor& x, const Tensor& mask, const Positions& positions, bool causal, const Pass& pass) const {
  const Scope scope(path());
  AttendInputs inputs{x, by_head(query_(x)), by_head(key_(x)), by_head(value_(x)), mask, positions, causal};
  const Tensor mixed = choice_.executor->attend(inputs, stages_);  // [b h t d]
  const Tensor merged = reshape(permute(mixed, {0, 2, 1, 3}), x.shape());
  return dropout_(output_(merged), pass);
}

std::string Attention::explain() const { return choice_.reason; }

}  // namespace whence
