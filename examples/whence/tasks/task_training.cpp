#include "examples/whence/tasks/task_training.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/ops.h"
#include "autograd/recording.h"
#include "examples/whence/cli/interrupt.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/progress.h"
#include "examples/whence/cli/scheme_names.h"
#include "nn/io/sha256.h"
#include "tensor/error.h"

namespace whence::tasks {
namespace {

// Its numbers' bytes, from the least on.
void append(std::string& bytes, const Batch& batch) {
  for (const Tokens* tokens : {&batch.inputs, &batch.targets, &batch.graded}) {
    for (const std::int64_t token : *tokens)
      for (int shift = 0; shift < 64; shift += 8) bytes += static_cast<char>(token >> shift);
  }
}

}  // namespace

Validation validate(const Transformer& model, const Task& task, const RunSizes& sizes, std::uint64_t seed) {
  const NoGrad no_grad;
  Errors errors;
  double sum = 0;
  std::int64_t counted = 0;
  const std::int64_t all = std::min(sizes.validation_sequences, task.validation_sequences());
  for (std::int64_t first = 0; first < all; first += sizes.batch) {
    const Batch batch = task.validation_batch(seed, first, std::min(sizes.batch, all - first));
    const Tensor logits = model(batch.input_tensor());
    const std::int64_t targets = batch.counted();
    sum += cross_entropy(logits, batch.target_tensor(), no_target).item() * static_cast<double>(targets);
    counted += targets;
    errors.add(batch, task.answers(logits));
  }
  return {sum / static_cast<double>(std::max<std::int64_t>(counted, 1)),
      {{"token_error_percent", errors.token_percent()}, {"sequence_error_percent", errors.sequence_percent()}}};
}

std::string data_fingerprint(const Task& task, std::uint64_t seed) {
  std::string bytes;
  for (std::int64_t step = 1; step <= 4; ++step) append(bytes, task.training_batch(seed, step, 8));
  const std::size_t sets = task.test_sets().size(), stride = std::max<std::size_t>(1, sets / 8);
  for (std::size_t set = 0; set < sets; set += stride) append(bytes, task.test_batch(set, seed, 0, 4));
  return sha256(bytes + task.hash_of_files());
}

TestPlan plan_tests(const Transformer& model, const Task& task, const RunSizes& sizes, std::uint64_t seed) {
  const NoGrad no_grad;
  TestPlan plan;
  std::vector<std::pair<index_t, std::size_t>> by_length;
  const std::vector<TestSet> sets = task.test_sets();
  for (std::size_t set = 0; set < sets.size(); ++set)
    by_length.emplace_back(task.test_batch(set, seed, 0, 1).positions, set);
  std::ranges::sort(by_length);
  const auto reads = [&](const std::pair<index_t, std::size_t>& each, index_t sequences) {
    try {
      return (void)model(task.test_batch(each.second, seed, 0, sequences).input_tensor()), true;
    } catch (const OutOfMemory&) { throw; } catch (const Error& error) {
      plan.reason = error.what();
      return false;
    }
  };
  const auto end = std::ranges::partition_point(by_length, [&](const auto& each) { return reads(each, 1); });
  plan.refused = static_cast<std::size_t>(by_length.end() - end);
  if (end == by_length.begin()) {
    throw InputError(
        "test sets: every one is refused by ", model.scheme(), ": ", plan.reason, "; choose another scheme");
  }
  // A batch of middling length stands for all of them.
  for (auto each = by_length.begin(); each != end; ++each) plan.sequences += tested(sets[each->second], sizes);
  const std::int64_t batches = (plan.sequences + sizes.batch - 1) / sizes.batch;
  const double started = steady_seconds();
  if (batches > 50 && reads(*(by_length.begin() + (end - by_length.begin()) / 2), sizes.batch))
    plan.seconds = (steady_seconds() - started) * static_cast<double>(batches);
  return plan;
}

std::vector<SetScore> test_task(
    const Transformer& model, const Task& task, const RunSizes& sizes, std::uint64_t seed, bool quiet) {
  const NoGrad no_grad;
  const std::vector<TestSet> sets = task.test_sets();
  const std::vector<Guess> guesses = task.guesses();
  std::vector<SetScore> scores;
  std::int64_t all = 0, done = 0;
  for (const TestSet& set : sets) all += tested(set, sizes);
  Progress progress("test", all, quiet);
  for (std::size_t set = 0; set < sets.size(); ++set) {
    SetScore score{.set = sets[set], .model = {}, .guesses = {}};
    for (const Guess& guess : guesses) score.guesses.push_back({guess.name, {}});
    const std::int64_t end = tested(sets[set], sizes);
    for (std::int64_t first = 0; first < end; first += sizes.batch) {
      if (interrupt_requested())
        throw Interrupted("testing: stopped before the results were complete; --resume tests again");
      const Batch batch = task.test_batch(set, seed, first, std::min(sizes.batch, end - first));
      try {
        if (score.refused.empty()) score.model.add(batch, task.answers(model(batch.input_tensor())));
      } catch (const OutOfMemory&) { throw; } catch (const Error& error) {  // plan_tests said so
        score.refused = error.what();
        score.model = {};
      }
      for (std::size_t k = 0; k < guesses.size(); ++k) score.guesses[k].second.add(batch, guesses[k].predict(batch));
      progress.update(done += batch.sequences, batch.sequences * batch.positions, {});
    }
    scores.push_back(std::move(score));
  }
  progress.finish();
  if (std::ranges::all_of(scores, [](const SetScore& score) { return !score.refused.empty(); }))
    throw Error("test sets: every one failed: ", scores.at(0).refused);
  return scores;
}

double headline(const Task& task, const Errors& errors) {
  return task.metric().starts_with("sequence") ? errors.sequence_percent() : errors.token_percent();
}

double best_guess(const Task& task, const SetScore& score) {
  double best = std::numeric_limits<double>::quiet_NaN();
  for (const auto& [name, errors] : score.guesses) best = std::fmin(best, headline(task, errors));
  return best;
}

}  // namespace whence::tasks
