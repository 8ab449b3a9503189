#include "nn/attention/plan.h"

#include "autograd/observer.h"
#include "autograd/recording.h"
#include "tensor/error.h"

namespace whence {
namespace {

template <class Interface> bool all_in_tiles(const std::vector<StageOf<Interface>>& stages) {
  return std::ranges::all_of(
      stages, [](const auto& stage) { return dynamic_cast<const RunsInTiles*>(stage.scheme) != nullptr; });
}

// Returns why tiles do not run calls like this one, whatever the terms. `wanted`: tiles are asked for by name, which also
// an emulated GPU's in f64 are.
std::string refusal_by_kind(const AttendInputs& inputs, const Stages& stages, const AttendCall& call, bool wanted) {
  if (const std::string refused = refusal_of(Executor::tiled, stages); !refused.empty()) return "tiled " + refused;
  const bool gpu = call.device.is_gpu(), floats = call.dtype == DType::f16 || call.dtype == DType::bf16,
             runs = gpu ? floats || call.dtype == DType::f32 || (wanted && inputs.query.device().is_gpu()) : !floats;
  return runs ? std::string() : to_text("no tile programs for ", call.dtype, gpu ? " on a GPU" : " on the CPU");
}

// A call as tiles run it.
struct InTiles {
  AttendContext context;
  TileTerms terms;
};

// Returns why tiles do not run this call; else sets `tiled`.
std::string refusal_by_terms(
    const AttendInputs& inputs, const Stages& stages, Device device, std::optional<InTiles>& tiled) {
  if (const std::string refused = device.is_gpu() ? refusal_on_gpu(stages) : ""; !refused.empty()) return refused;
  AttendContext context = rotated_context(stages.rotates.empty() ? inputs : heads_apart(inputs), stages);
  TileTerms terms = terms_of(context, stages);
  tiled = InTiles{std::move(context), std::move(terms)};
  return refusal_of(tiled->terms, device);
}

// True if a capture wants probes that only the reference has.
bool pairs_are_watched() {
  static const std::vector<std::string> of_all_executors{"x", "q", "k", "v", "output"};
  return is_watched_under(detail::scope_path ? *detail::scope_path : std::string(), of_all_executors);
}

// The one judge: plan_of(). `tiled`: the call that tiles run, if they do.
AttendPlan choose(const AttendInputs& inputs, const Stages& stages, const AttendPlan& wanted, const AttendCall& call,
    std::optional<InTiles>& tiled) {
  std::vector<std::string> why;
  const auto plan = [&](Executor executor) {
    AttendPlan chosen(executor, wanted.rows);
    if (executor == wanted.executor) why = {"as asked"};
    if (executor != Executor::reference) why.emplace_back("reference while probes are captured");
    chosen.why = why.empty() ? "every probe live" : joined(why, {}, "; ");
    return chosen;
  };
  if (wanted.executor == Executor::reference || pairs_are_watched()) return plan(Executor::reference);
  bool by_terms = false;
  if (wanted.executor != Executor::strips) {
    std::string refused = refusal_by_kind(inputs, stages, call, wanted.executor == Executor::tiled);
    if (refused.empty()) {
      refused = refusal_by_terms(inputs, stages, call.device, tiled);
      if (refused.empty()) return plan(Executor::tiled);
      by_terms = true, refused = "not tiled: " + refused;
    }
    why.push_back(refused);
  }
  const bool asked = wanted.executor != Executor::automatic;
  const std::string refused = refusal_of(Executor::strips, stages), large = reason_for_strips(call);
  if (!by_terms && (asked ? !refused.empty() : !large.empty()))
    why.push_back(refused.empty() ? large : "strips " + refused);
  const bool enough =
      wanted.executor == Executor::strips || !large.empty() || (by_terms ? !call.device.is_gpu() : asked);
  return plan(enough && refused.empty() ? Executor::strips : Executor::reference);
}

std::string explained(
    const AttendInputs& example, const Stages& stages, const AttendPlan& wanted, const AttendCall& call) {
  const AttendPlan plan = plan_of(example, stages, wanted, call);
  return to_text(name_of(plan.executor), " (", plan.why, ")");
}

const Planner attention_planner{wanted_plan, explained, attend};
[[maybe_unused]] const bool attention_is_planned = (detail::planner = &attention_planner, true);

}  // namespace

const char* name_of(Executor executor) {
  static constexpr const char* names[] = {"auto", "reference", "strips", "tiled"};
  return names[static_cast<std::size_t>(executor)];
}

std::vector<std::string> executor_names() {
  std::vector<std::string> names{name_of(Executor::automatic)};
  for (const Executor executor : all_executors) names.emplace_back(name_of(executor));
  return names;
}

AttendPlan wanted_plan(const std::string& name, const Stages& stages) {
  if (name == name_of(Executor::automatic)) return {};
  for (const Executor executor : all_executors) {
    if (name != name_of(executor)) continue;
    if (const std::string refused = refusal_of(executor, stages); !refused.empty())
      throw InputError("executor: ", name, " ", refused);
    return executor;
  }
  refuse_name("executor", name, executor_names());
}

AttendCall call_of(const AttendInputs& inputs) {
  const Tensor& query = inputs.query;
  return {query.device(), query.dtype(), query.size(0) * query.size(1) * query.size(2) * inputs.key.size(2)};
}

std::string refusal_of(Executor executor, const Stages& stages) {
  if (executor == Executor::strips)
    for (const PositionalScheme* scheme : stages.schemes)
      if (!scheme->claims().row_local) return "computes blocks of rows, and a scheme here needs other query rows";
  if (executor != Executor::tiled ||
      (stages.scores.empty() && all_in_tiles(stages.biases) && all_in_tiles(stages.transforms) &&
          all_in_tiles(stages.maps) && all_in_tiles(stages.patterns) && all_in_tiles(stages.mixes)))
    return {};
  return "has programs for distances, sums of gates and mixes of heads, and a scheme here does something else";
}

std::string refusal_by_tiles(const AttendInputs& inputs, const Stages& stages, const AttendCall& call) {
  const NoGrad values_only;
  const std::string refused = refusal_by_kind(inputs, stages, call, true);
  std::optional<InTiles> tiled;
  return refused.empty() ? refusal_by_terms(inputs, stages, call.device, tiled) : refused;
}

AttendPlan plan_of(const AttendInputs& inputs, const Stages& stages, const AttendPlan& wanted, const AttendCall& call) {
  const NoGrad values_only;
  std::optional<InTiles> tiled;
  return choose(inputs, stages, wanted, call, tiled);
}

Tensor attend(const AttendInputs& inputs, const Stages& stages, const AttendPlan& wanted) {
  std::optional<InTiles> tiled;
  const AttendPlan plan = choose(inputs, stages, wanted, call_of(inputs), tiled);
  if (plan.executor == Executor::tiled)
    return output_of(run_tiles(std::move(tiled->terms), inputs.dropout), tiled->context, stages);
  tiled.reset();
  const AttendInputs apart = heads_apart(inputs);
  return plan.executor == Executor::strips ? attend_in_strips(apart, stages, plan.rows)
                                           : attend_by_reference(apart, stages);
}

AttendInputs heads_apart(AttendInputs inputs) {
  if (inputs.query.device().is_gpu())
    for (Tensor* each : {&inputs.query, &inputs.key, &inputs.value}) *each = contiguous(*each);
  return inputs;
}

}  // namespace whence
