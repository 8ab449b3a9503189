#include "examples/whence/study/study.h"

#include "examples/whence/study/model_choice.h"
#include "nn/training/training.h"

namespace whence {

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
