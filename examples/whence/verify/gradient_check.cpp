#include "examples/whence/verify/gradient_check.h"

#include <algorithm>

#include "autograd/ops.h"
#include "examples/whence/verify/bare_attention.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence {
namespace {

// Two sequences, so that sums over the batch are seen.
constexpr index_t batch = 2, heads = 2, head_dim = 4;

GradcheckReport check_one(const std::function<Tensor()>& f, const std::vector<Named>& leaves,
    const GradientCheckOptions& options, bool differences = true) {
  const GradcheckOptions how{.differences = differences && options.differences && !options.twice,
      .one_by_one = options.one_by_one,
      .seed = options.seed};
  return options.twice ? gradgradcheck(f, leaves, how) : gradcheck(f, leaves, how);
}

// Concatenates all results. The logits are among them, so that no parameter's gradient is zero only because softmax
// ignores it.
Tensor everything(const BareAttention::Result& result) {
  std::vector<Tensor> parts;
  for (const Tensor* part : {&result.output, &result.logits, &result.embedded})
    if (part->defined() && !(part == &result.embedded && result.embedded.identity() == result.output.identity()))
      parts.push_back(reshape(*part, {-1}));
  return parts.size() == 1 ? parts[0] : concat_along(0, parts);
}

void place(Tensor& x, Device device) {
  if (x.defined()) x = raw::to_device(x, device);
}

}  // namespace

void GradientFigures::add(const GradientFigures& more) {
  inputs += more.inputs;
  kinks += more.kinks;
  duals = std::max(duals, more.duals);
  differences = std::max(differences, more.differences);
}

std::vector<std::string> GradientChecks::problems() const {
  std::vector<std::string> all;
  for (const GradientCase& each : cases)
    for (const std::string& problem : each.report.problems) all.push_back(each.label + ": " + problem);
  return all;
}

GradientFigures GradientChecks::figures() const {
  GradientFigures all;
  for (const GradientCase& each : cases)
    for (const GradcheckInput& input : each.report.inputs)
      all.add({1, input.kinks.size(), input.duals.relative, input.differences.relative});
  return all;
}

GradientChecks check_gradients(const CheckedOp& op, const GradientCheckOptions& options) {
  GradientChecks checks{op.name, {}};
  if (options.twice && op.once) {
    checks.note = "has no second derivative, and refuses one with an error";
    return checks;
  }
  for (CheckedSample& sample : op.samples()) {
    std::vector<Named> leaves;
    for (std::size_t k = 0; k < sample.inputs.size(); ++k) {
      place(sample.inputs[k], options.device);
      if (sample.inputs[k].defined() && is_floating(sample.inputs[k].dtype()))
        leaves.push_back({to_text("input ", k), sample.inputs[k]});
    }
    checks.cases.push_back({sample.name, check_one([&] { return sample.run(sample.inputs); }, leaves, options)});
  }
  return checks;
}

// Operands, cotangents and parameters are random, because with a zero table most of CoPE's gradients would be zero too.
// Small parameters are checked element by element, operands along a random direction.
GradientChecks check_gradients(const std::string& text, const GradientCheckOptions& options) {
  GradientChecks checks{canonical_text(parse_schemes(text)), {}};
  for (const index_t kv_heads : {heads, index_t(1)}) {
    const BareAttention scheme(text, {heads * head_dim, heads, options.length, 0, kv_heads});
    draw_parameters(scheme.root(), options.seed);
    scheme.root().to(options.device);
    AttendInputs inputs = random_inputs(scheme, batch, options.length, options.seed);
    for (const auto& [name, operand] : named_operands(inputs)) place(*operand, options.device);
    const Claims claims = scheme.claims();
    // Duals follow the declared gradient, which replaces the derivative. Differences see the values, which jump.
    if (!claims.exact_gradient)
      checks.note =
          "declares a gradient that is not its derivative: duals follow the declared one, differences say nothing";
    const bool shared = kv_heads < heads;
    for (const bool causal : {true, false}) {
      if (!causal && (claims.causal_only || !scheme.attends())) continue;
      if (shared && !(causal && scheme.attends())) continue;
      inputs.sequence = Sequence::run(options.length, causal);
      checks.cases.push_back({!scheme.attends() ? "tokens"
                              : shared          ? "causal, one key head"
                              : causal          ? "causal"
                                                : "bidirectional",
          check_one([&] { return everything(scheme.run(inputs, Executor::reference)); }, leaves_of(scheme, inputs),
              options, claims.exact_gradient)});
    }
  }
  return checks;
}

std::vector<std::string> op_names() {
  std::vector<std::string> names;
  for (const CheckedOp& op : checked_ops())
    if (op.samples) names.push_back(op.name);
  std::sort(names.begin(), names.end());
  return names;
}

Checkable find_checkable(const std::string& name) {
  std::vector<std::string> known = op_names();
  if (std::ranges::count(known, name) > 1)
    throw InputError("'", name, "' given; two ops have this name; one name per op required; rename one");
  for (const CheckedOp& op : checked_ops())
    if (op.samples && op.name == name) return {name, &op};
  for (const SchemeInfo& info : registered_schemes()) {
    known.push_back(info.name);
    known.insert(known.end(), info.aliases.begin(), info.aliases.end());
  }
  // For a text with options or a sum the grammar's errors are more precise.
  if (name.find_first_of("(+") == std::string::npos && !std::count(known.begin(), known.end(), name)) {
    const auto nearest = nearest_name(name, known);
    throw InputError("'", name, "' given; an op, a scheme or all required; ",
        nearest ? to_text("did you mean '", *nearest, "'?") : std::string("--list lists them"));
  }
  return {canonical_text(parse_schemes(name))};
}

GradientChecks check_gradients(const Checkable& what, const GradientCheckOptions& options) {
  return what.op ? check_gradients(*what.op, options) : check_gradients(what.name, options);
}

}  // namespace whence
