#include "examples/whence/study/study.h"

#include "examples/whence/language/saved_model.h"
#include "examples/whence/study/task_study.h"
#include "nn/training/training.h"

namespace whence {

std::vector<std::string> study_names() {
  std::vector<std::string> names{language::text_study};
  for (const tasks::TaskInfo& info : tasks::registered_tasks()) names.push_back(info.name);
  return names;
}

std::unique_ptr<StudyOptions> find_study(const std::string& name) {
  if (name == language::text_study) return text_study_options();
  return std::make_unique<TaskStudyOptions>(tasks::find_task(name));
}

TrainingJob job_of(const Study& study, Transformer& model, const TrainingOptions& training) {
  const std::uint64_t seed = training.seed;
  TrainingJob job{.label = model.scheme(), .model = &model};
  job.batch = [&study, seed](std::int64_t part) { return study.batch(seed, part); };
  job.loss_of = token_loss(model, seed);
  job.not_recordable = not_recordable(model.options());
  job.validate = [&study, &model, seed] { return study.validate(model, seed); };
  job.description = study.facts(training);
  for (auto& fact : model_facts(model.options())) job.description.push_back(std::move(fact));
  for (auto& fact : description(training)) job.description.push_back(std::move(fact));
  return job;
}

}  // namespace whence
