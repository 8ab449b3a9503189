#include "examples/whence/study/study.h"

#include "examples/whence/cli/numbers.h"
#include "examples/whence/language/saved_model.h"
#include "examples/whence/tasks/task.h"
#include "nn/attention/plan.h"
#include "nn/training/training.h"

namespace whence {

std::vector<std::string> study_names() {
  std::vector<std::string> names{language::text_study};
  for (const tasks::TaskInfo& info : tasks::registered_tasks()) names.push_back(info.name);
  return names;
}

std::unique_ptr<StudyOptions> find_study(const std::string& name) {
  return name == language::text_study ? text_study_options() : task_study_options(name);
}

ModelChoice choice_of(const TransformerOptions& model) {
  return {model.scheme, to_string(model.activation), model.executor, model.dim, model.layers, model.heads,
      model.kv_heads, model.dropout, model.recompute_layers};
}

void declare(Fields& line, ModelChoice& choice) {
  using Count = Range<std::int64_t>;
  line.heading("Model")
      .text("scheme", &choice.scheme,
          {.help = "positional scheme, e.g. \"cope(p_max=64) + rope\"; whence schemes lists them",
              .known = scheme_names()})
      .integer("dim", &choice.dim, Count{1, 16384}, {"model dim, a multiple of --heads"})
      .integer("layers", &choice.layers, Count{1, 128}, {"blocks", "", "choose at least one layer"})
      .integer("heads", &choice.heads, Count{1, 256}, {"attention heads per layer"})
      .integer("kv-heads", &choice.kv_heads, Count{0, 256},
          {"heads of keys and values, a divisor of --heads; query heads share them. 0: as --heads"})
      .choice("activation", &choice.activation, {"gelu", "gelu_erf", "relu", "swiglu"}, {"activation of the MLP"})
      .number("dropout", &choice.dropout, Range<double>{0, 1, false, true}, {"share of numbers dropped in training"})
      .choice("executor", &choice.executor, executor_names(), {"how attention is computed"})
      .flag("recompute-layers", &choice.recompute_layers,
          {"backward computes each layer again: less memory, a forward pass more per step, the same bits on the CPU"});
}

void follow(const Fields& line, ModelChoice& choice, const ModelChoice& before, const ModelChoice& after) {
  const auto take = [&](const char* name, auto ModelChoice::*field) {
    if (!line.given(name) && before.*field != after.*field) choice.*field = after.*field;
  };
  take("scheme", &ModelChoice::scheme), take("activation", &ModelChoice::activation);
  take("executor", &ModelChoice::executor), take("dropout", &ModelChoice::dropout);
  take("dim", &ModelChoice::dim), take("layers", &ModelChoice::layers), take("heads", &ModelChoice::heads);
  take("kv-heads", &ModelChoice::kv_heads);
}

TransformerOptions with(const TransformerOptions& model, const ModelChoice& choice) {
  TransformerOptions options = model;
  options.scheme = choice.scheme, options.executor = choice.executor,
  options.activation = activation_of(choice.activation);
  options.dim = choice.dim, options.layers = choice.layers, options.heads = choice.heads;
  options.kv_heads = choice.kv_heads == choice.heads ? 0 : choice.kv_heads;
  if (model.hidden) options.hidden = model.hidden * choice.dim / model.dim;
  options.dropout = choice.dropout, options.recompute_layers = choice.recompute_layers;
  for (double* also : {&options.pattern_dropout, &options.hidden_dropout})
    if (*also > 0) *also = choice.dropout;
  return options;
}

TrainingJob job_of(const Study& study, Transformer& model, const TrainingOptions& training) {
  const std::uint64_t seed = training.seed;
  TrainingJob job{.label = model.scheme(), .model = &model};
  job.batch = [&study, seed](std::int64_t part) { return study.batch(seed, part); };
  job.loss_of = token_loss(model, seed);
  job.not_recordable = not_recordable(model.options());
  job.validate = [&study, &model, seed] { return study.validate(model, seed); };
  job.description = study.facts(training);  // what a resumed run must share
  const TransformerOptions& of = model.options();
  for (const auto& fact : Facts{{"scheme", canonical_text(parse_schemes(of.scheme))}, {"dim", std::to_string(of.dim)},
           {"layers", std::to_string(of.layers)}, {"heads", std::to_string(of.heads)},
           {"activation", to_string(of.activation)}, {"executor", of.executor}, {"dropout", exact(of.dropout)}})
    job.description.push_back(fact);
  if (of.kv_heads) job.description.emplace_back("kv-heads", std::to_string(of.kv_heads));  // absent in older runs
  for (auto& fact : description(training)) job.description.push_back(std::move(fact));
  return job;
}

}  // namespace whence
