#include "examples/whence/verify/gradient_check.h"

#include <algorithm>

#include "autograd/ops.h"
#include "examples/whence/verify/bare_attention.h"
#include "tensor/error.h"
#include "tensor/raw.h"
#include "tensor/suggest.h"

namespace whence {
namespace {

// Two sequences, so that sums over the batch are seen.
// Small parameters are walked element by element, operands along a random direction.
constexpr index_t batch = 2, heads = 2, head_dim = 4;

GradcheckOptions checker_options(const GradientCheckOptions& options) {
  return {.differences = options.differences, .one_by_one = options.one_by_one, .seed = options.seed};
}

std::vector<Named> leaves_of(const BareOperands& operands, const BareAttention& scheme) {
  std::vector<Named> leaves;
  const std::pair<const char*, const Tensor*> inputs[] = {
      {"q", &operands.q}, {"k", &operands.k}, {"v", &operands.v}, {"x", &operands.x}};
  for (const auto& [name, tensor] : inputs)
    if (tensor->defined()) leaves.push_back({name, *tensor});
  for (const Module::Parameter& parameter : scheme.root().parameters())
    if (!parameter.frozen) leaves.push_back({parameter.path, parameter.tensor});
  return leaves;
}

// Everything that comes out, one behind the other. Beside the logits no parameter's gradient is zero only because a
// softmax cannot see it.
Tensor everything(const BareAttention::Result& result) {
  std::vector<Tensor> parts;
  for (const Tensor* part : {&result.output, &result.logits, &result.embedded})
    if (part->defined() && !(part == &result.embedded && result.embedded.identity() == result.output.identity()))
      parts.push_back(reshape(*part, {-1}));
  return parts.size() == 1 ? parts[0] : concat_along(0, parts);
}

Tensor placed(const Tensor& x, Device device) { return x.defined() ? raw::to_device(x, device) : x; }

// Operands, cotangents and parameters are random: at a zero table most of CoPE's gradients would be zero too.
GradientCase check_setting(const BareAttention& scheme, bool causal, const GradientCheckOptions& options, bool exact) {
  BareOperands operands = random_operands(scheme, batch, options.length, options.seed);
  for (Tensor* operand : {&operands.q, &operands.k, &operands.v, &operands.x})
    *operand = placed(*operand, options.device);
  const BareSetting setting{.causal = causal};
  const auto f = [&] { return everything(scheme.run(operands, setting, reference_executor())); };
  GradcheckOptions how = checker_options(options);
  how.differences = how.differences && exact;
  const char* const label = !scheme.attends() ? "tokens" : causal ? "causal" : "bidirectional";
  return {label, gradcheck(f, leaves_of(operands, scheme), how)};
}

template <class Get> double worst(const std::vector<GradientCase>& cases, const Get& get) {
  double result = 0;
  for (const GradientCase& each : cases)
    for (const GradcheckInput& input : each.report.inputs) result = std::max(result, get(input));
  return result;
}

const CheckedOp* find_op(const std::string& name) {
  for (const CheckedOp& op : checked_ops())
    if (op.samples && op.name == name) return &op;
  return nullptr;
}

std::vector<std::string> names_of_schemes() {
  std::vector<std::string> names;
  for (const SchemeInfo& info : registered_schemes()) {
    names.push_back(info.name);
    names.insert(names.end(), info.aliases.begin(), info.aliases.end());
  }
  return names;
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

bool GradientChecks::ok() const {
  return problem.empty() &&
         std::all_of(cases.begin(), cases.end(), [](const GradientCase& each) { return each.report.ok(); });
}

std::size_t GradientChecks::inputs() const {
  std::size_t count = 0;
  for (const GradientCase& each : cases) count += each.report.inputs.size();
  return count;
}

std::size_t GradientChecks::kinks() const {
  std::size_t count = 0;
  for (const GradientCase& each : cases)
    for (const GradcheckInput& input : each.report.inputs) count += input.kinks.size();
  return count;
}

double GradientChecks::worst_by_duals() const {
  return worst(cases, [](const GradcheckInput& input) { return input.duals.relative; });
}

double GradientChecks::worst_by_differences() const {
  return worst(cases, [](const GradcheckInput& input) { return input.differences.relative; });
}

GradientChecks check_op(const CheckedOp& op, const GradientCheckOptions& options) {
  GradientChecks checks{op.name, {}};
  for (CheckedSample& sample : op.samples()) {
    for (Tensor& input : sample.inputs) input = placed(input, options.device);
    std::vector<Named> leaves;
    for (std::size_t k = 0; k < sample.inputs.size(); ++k)
      if (sample.inputs[k].defined() && is_floating(sample.inputs[k].dtype()))
        leaves.push_back({to_text("input ", k), sample.inputs[k]});
    checks.cases.push_back(
        {sample.name, gradcheck([&] { return sample.run(sample.inputs); }, leaves, checker_options(options))});
  }
  return checks;
}

GradientChecks check_scheme(const std::string& text, const GradientCheckOptions& options) {
  const BareAttention scheme(text, {.dim = heads * head_dim, .heads = heads, .length = options.length});
  scheme.draw_parameters(options.seed);
  scheme.root().to(options.device);
  const Claims claims = scheme.claims();
  GradientChecks checks{scheme.text(), {}};
  // Duals run through what a scheme declares in place of its derivative; differences look at the values, which jump.
  if (!claims.exact_gradient) {
    checks.note =
        "declares a gradient that is not its derivative: duals follow the declared one, differences say nothing";
  }
  checks.cases.push_back(check_setting(scheme, true, options, claims.exact_gradient));
  if (claims.causal_only || !scheme.attends()) return checks;
  checks.cases.push_back(check_setting(scheme, false, options, claims.exact_gradient));
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
  if (const CheckedOp* op = find_op(name)) return {op, {}};
  const std::vector<std::string> schemes = names_of_schemes();
  // Of a text with options or a sum the grammar's own errors say more.
  const bool is_plain_word = name.find_first_of("(+") == std::string::npos;
  if (is_plain_word && !contains(schemes, name)) {
    std::vector<std::string> known = op_names();
    known.insert(known.end(), schemes.begin(), schemes.end());
    const auto nearest = nearest_name(name, known);
    throw InputError("'", name, "' given; an op, a scheme or all required; ",
        nearest ? to_text("did you mean '", *nearest, "'?") : std::string("--list lists them"));
  }
  return {nullptr, canonical_text(parse_schemes(name))};
}

GradientChecks check(const Checkable& what, const GradientCheckOptions& options) {
  return what.op ? check_op(*what.op, options) : check_scheme(what.scheme, options);
}

}  // namespace whence
