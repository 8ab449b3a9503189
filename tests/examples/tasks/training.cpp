// Training on tasks: parts of a step against one large batch, validation, the fingerprint of the data, run.json.
#include <algorithm>
#include <cmath>
#include <set>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/run/run_record.h"
#include "examples/whence/study/task_study.h"
#include "nn/training/training.h"
#include "tests/support/programs.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::tasks;
using whence::test::Scratch;

namespace {

TransformerOptions small_model(const Task& task, double dropout = 0) {
  ModelChoice choice = choice_of(task.model());
  choice.dim = 16, choice.layers = 1, choice.heads = 2, choice.dropout = dropout;
  return with(task.model(), choice);
}

// The weights after some steps in f64, `parts` batches to a step.
std::vector<double> trained(const Task& task, std::int64_t batch, std::int64_t parts, double clip) {
  Transformer model(small_model(task));
  model.to(DType::f64);
  TrainingOptions options;
  options.steps = 6, options.accumulate = parts, options.learning_rate = 1e-2, options.warm_up = 1, options.clip = clip;
  options.seed = 4, options.quiet = true;
  const TaskStudy study(task, {.batch = batch});
  static_cast<void>(train(job_of(study, model, options), options));
  return test::numbers_of(model);
}

}  // namespace

TEST_CASE("training: parts of a step make the step of one large batch, of unequal counts of targets, clipped or not") {
  const auto task = make_task("flip_flop", {"--length", "24"});  // strings have 1 to 12 reads
  std::set<std::int64_t> counts;
  for (std::int64_t part = 1; part <= 4; ++part) counts.insert(task->training_batch(4, part, 3).counted());
  CHECK(counts.size() > 1);
  for (const double clip : {1e9, 0.05}) {
    const std::vector<double> whole = trained(*task, 12, 1, clip), in_parts = trained(*task, 3, 4, clip),
                              one_by_one = trained(*task, 1, 12, clip);
    CHECK(test::distance(whole, in_parts) < 1e-12);
    CHECK(test::distance(whole, one_by_one) < 1e-12);
    CHECK(test::distance(whole, trained(*task, 6, 1, clip)) > 1e-4);  // half of the data is another run
  }
}

TEST_CASE("training loop: hooks run where they are due, in their order, until it is enough") {
  const auto task = make_task("flip_flop", {"--length", "8"});
  Transformer model(small_model(*task));
  const TaskStudy study(*task, {.batch = 1});
  const TrainingJob job = job_of(study, model, {});
  model.initialise(1);
  MixedPrecision precision(model, DType::f32, {});
  TrainingStep step(precision, job.batch, job.loss_of);
  std::string ran;
  const auto note = [&ran](char name) {
    return [&ran, name](std::int64_t n, const StepOutcome&) { ran += name + std::to_string(n) + ' '; };
  };
  const std::vector<TrainingHook> hooks{{.every = 2, .run = note('a')}, {3, true, note('b')}};
  const Schedule schedule({.steps = 9});
  CHECK(train(step, schedule, 1, 5, hooks) == 5);
  CHECK(ran == "a2 b3 a4 b5 ");
  ran.clear();
  CHECK(train(step, schedule, 6, 9, hooks, [&ran] { return ran.find("b6") != std::string::npos; }) == 6);
  CHECK(ran == "a6 b6 ");
  CHECK(train(step, schedule, 7, 9, hooks, [] { return true; }) == 6);
}

TEST_CASE("training: a step without any target is refused") {
  const auto task = make_task("flip_flop", {"--length", "8"});
  Transformer model(small_model(*task));
  TrainingOptions options;
  options.steps = 1, options.warm_up = 0, options.quiet = true;
  const TaskStudy study(*task, {.batch = 1});
  TrainingJob job = job_of(study, model, options);
  const auto with_targets = job.batch;
  job.batch = [&](std::int64_t part) {
    TrainingBatch batch = with_targets(part);
    batch.tensors[1] = Tensor::full(batch.tensors[1].shape(), no_target, DType::i64);
    batch.counted = 0;
    return batch;
  };
  CHECK_THROWS_WITH_AS((void)train(job, options), doctest::Contains("in step 1"), Error);
}

namespace {

// A model of one number, "trained" by a loss that pushes it up; validation likes it best at `optimum`.
struct OneNumber final : Module {
  Tensor x = param("x", {1}, Init::zeros(), false);
};

TrainingJob upwards_to(double optimum, OneNumber& model) {
  TrainingJob job{.label = "up", .model = &model};
  job.batch = [](std::int64_t) { return TrainingBatch{.counted = 1, .tokens = 1}; };
  job.loss_of = [&](const TrainingBatch&, std::int64_t) { return sum(model.x) * -1.0; };
  job.validate = [&model, optimum] { return Validation{std::abs(model.x.item() - optimum), {}}; };
  return job;
}

TrainingOptions upwards(const std::string& folder = {}) {
  TrainingOptions options;  // each step of Adam moves the number up by 0.1
  options.steps = 40, options.learning_rate = 0.1, options.warm_up = 0, options.decay = "constant",
  options.weight_decay = 0;
  options.validate_every = 2, options.folder = folder, options.quiet = true;
  return options;
}

}  // namespace

TEST_CASE("training: the best validation survives an interrupted run") {
  const Scratch scratch("best");
  const std::string whole = scratch / "whole", cut = scratch / "cut";
  OneNumber model;
  TrainingOptions options = upwards(whole);
  options.save_every = 7;
  const TrainingJob up = upwards_to(1.0, model);
  (void)train(up, options);
  const std::string expected = test::text_of(whole + "/weights.safetensors");
  for (const std::int64_t stop : {3, 11, 13, 17}) {
    std::filesystem::remove_all(cut);
    options.folder = cut, options.resume = false;
    TrainingJob job = up;
    job.loss_of = [&](const TrainingBatch& batch, std::int64_t part) {
      if (part > stop) throw Error("the power went");
      return up.loss_of(batch, part);
    };
    CHECK_THROWS_WITH_AS((void)train(job, options), doctest::Contains("power went"), Error);
    options.resume = stop >= 7;  // before, nothing was saved
    if (!options.resume) std::filesystem::remove_all(cut);
    const TrainingResult result = train(up, options);
    CHECK(result.best_step == 10);
    CHECK(test::text_of(cut + "/weights.safetensors") == expected);
  }
}

TEST_CASE("training: a longer resume that is cut leaves no results or weights of the shorter run") {
  const Scratch scratch("longer");
  OneNumber model;
  TrainingOptions options = upwards(scratch / "run");
  const std::vector<std::string> ends{
      scratch / "run/weights.safetensors", scratch / "run/results.jsonl", scratch / "run/questions.jsonl"};
  TrainingJob job = upwards_to(1.0, model);
  (void)train(job, options);
  write_file(ends[1], "{}\n"), write_file(ends[2], "{}\n");
  options.resume = true;
  (void)train(job, options);  // nothing is left to do
  for (const std::string& end : ends) CHECK(std::filesystem::exists(end));
  options.steps = 60;
  job.loss_of = [](const TrainingBatch&, std::int64_t) -> Tensor { throw Error("the power went"); };
  CHECK_THROWS_WITH_AS((void)train(job, options), doctest::Contains("power went"), Error);
  for (const std::string& end : ends) CHECK_FALSE(std::filesystem::exists(end));
}

TEST_CASE("training: a score that is NaN is not the best for ever") {
  OneNumber model;
  TrainingJob job = upwards_to(1.0, model);
  int calls = 0;
  job.validate = [&, score = job.validate] { return calls++ == 0 ? Validation{std::nan(""), {}} : score(); };
  CHECK(train(job, upwards()).best_step == 10);
}

TEST_CASE("training: the fingerprint knows other data, and only those") {
  const auto print_of = [](const std::string& options, std::uint64_t seed) {
    return data_fingerprint(*make_task("selective_copy", test::words(options)), seed);
  };
  const std::string small = "--tokens 4 --blanks 4";
  CHECK(print_of(small, 1) == print_of(small, 1));
  CHECK(print_of(small, 1).size() == 64);
  CHECK(print_of(small, 1) != print_of(small, 2));
  for (const char* other : {" --sparse-blanks 9", " --format separator"})
    CHECK(print_of(small, 1) != print_of(small + other, 1));
}

TEST_CASE("training: scores count what the model answers, headline and guesses by the task's metric") {
  const auto task = make_task("selective_copy", {"--tokens", "3", "--blanks", "3"});
  Transformer model(small_model(*task));
  model.initialise(0);
  const std::vector<SetScore> scores = TaskStudy(*task, {.batch = 7, .test_sequences = 20}).set_scores(model, 5, true);
  REQUIRE(scores.size() == 3);
  for (std::size_t set = 0; set < 3; ++set) {
    const Batch batch = task->test_batch(set, 5, 0, 20);
    Errors at_once, guess;
    at_once.add(batch, most_probable(model(batch.input_tensor())));
    guess.add(batch, task->guesses()[1].predict(batch));
    CHECK((scores[set].model.wrong_tokens == at_once.wrong_tokens && scores[set].model.sequences == 20));
    CHECK(scores[set].guesses[1].second.wrong_sequences == guess.wrong_sequences);
    CHECK(headline(*task, at_once) == at_once.sequence_percent());
  }
}

TEST_CASE("run records: written, read, and set again") {
  const Scratch scratch("record");
  const RunRecord record{"train", "1.2.3", "counting",
      {{"dim", "16"}, {"scheme", "cope(p_max=3) + \"x\""}, {"check-finite", "true"}, {"quiet", "false"}},
      {"dim", "scheme"}, "0123", {{"parameters", "7"}}};
  std::ofstream(scratch / "run.json") << text_of(record);
  const RunRecord read = read_run_record(scratch / "run.json");
  CHECK(read.options == record.options);
  CHECK(read.given == record.given);
  CHECK((read.subject == "counting" && read.data == "0123" && read.version == "1.2.3"));
  std::int64_t dim = 1;
  bool checks = false, quiet = true;
  Fields fields("train");  // without a scheme
  fields.integer("dim", &dim, Range<std::int64_t>{1, 64}, {"d"})
      .flag("check-finite", &checks, {"b"})
      .flag("quiet", &quiet, {"q"});
  set_recorded(fields, read);
  CHECK((dim == 16 && checks && quiet));  // quiet is of no run's record
  CHECK((fields.given("dim") && !fields.given("check-finite")));
  const std::string whole = text_of(record);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::ofstream(scratch / "flipped.json") << std::string(whole).replace(at, 1, 1, static_cast<char>(whole[at] ^ 4));
    std::string found = whole;
    try {
      found = text_of(read_run_record(scratch / "flipped.json"));
    } catch (const FileError& refused) {
      CHECK(std::string(refused.what()).find("flipped.json: ") != std::string::npos);
    }
    CHECK_MESSAGE(found == whole, at);
  }
}
