#include "examples/whence/study/task_study.h"

#include <cmath>
#include <iostream>
#include <limits>

#include "autograd/ops.h"
#include "autograd/recording.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/progress.h"
#include "examples/whence/cli/run_main.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/report/table.h"
#include "nn/io/files.h"
#include "tensor/error.h"

namespace whence {
namespace {

using tasks::Task;

Json record_of(const Task& task, const SetScore& score, const std::string& scheme, const TrainingResult& trained,
    std::uint64_t seed) {
  Json record{
      {"scheme", scheme}, {"seed", std::to_string(seed)}, {"steps", trained.steps}, {"test_set", score.set.name}};
  if (score.refused.empty())
    record.add("token_error_percent", score.model.token_percent())
        .add("sequence_error_percent", score.model.sequence_percent())
        .add("tokens", score.model.tokens)
        .add("sequences", score.model.sequences);
  else
    record.add("refused", score.refused);
  if (trained.loss_scale > 0) record.add("skipped_steps", trained.skipped);
  for (const auto& [name, wrong] : score.guesses) record.add("guess: " + name, headline(task, wrong));
  return record;
}

// Returns one line of questions.jsonl: graded tokens and wrong answers of each sequence.
Json questions_of(const SetScore& score) {
  return {{"test_set", score.set.name}, {"graded", score.model.graded_by_sequence},
      {"wrong", score.model.wrong_by_sequence}};
}

Table table_of(const Task& task, const std::vector<SetScore>& scores) {
  Table table({"test set", "token error %", "sequence error %", "tokens", "best guess, " + task.metric()});
  for (const SetScore& score : scores)
    table.row({score.set.name, fixed(score.model.token_percent(), 3), fixed(score.model.sequence_percent(), 2),
        score.refused.empty() ? std::to_string(score.model.tokens) : "-", fixed(best_guess(task, score), 2)});
  return table;
}

// Averages over the test sets that the model read, with equal weights.
std::vector<std::string> average_of(const Task& task, const std::vector<SetScore>& scores) {
  double token = 0, sequence = 0, guess = 0, read = 0;
  for (const SetScore& score : scores) {
    guess += best_guess(task, score);
    if (!score.refused.empty()) continue;
    token += score.model.token_percent(), sequence += score.model.sequence_percent(), ++read;
  }
  const bool all = static_cast<std::size_t>(read) == scores.size();
  return {all ? to_text("average of ", read) : to_text("average of ", read, " of ", scores.size()),
      fixed(token / read, 3), fixed(sequence / read, 2), "-", fixed(guess / static_cast<double>(scores.size()), 2)};
}

// Appends the numbers' bytes, least significant first.
void append(std::string& bytes, const tasks::Batch& batch) {
  for (const tasks::Tokens* tokens : {&batch.inputs, &batch.targets, &batch.graded}) {
    for (const std::int64_t token : *tokens)
      for (int shift = 0; shift < 64; shift += 8) bytes += static_cast<char>(token >> shift);
  }
}

// Shows the model's input, and then the answers that it has to find.
std::string text_of(const Task& task, const tasks::Row& row) {
  std::string text, answers;
  const bool causal = task.model().causal;
  for (std::size_t i = 0; i < row.inputs.size(); ++i) {
    const std::int64_t answer = row.graded[i];
    text += task.text(row.inputs[i]);
    const bool shown = causal && i + 1 < row.inputs.size() && row.inputs[i + 1] == answer;  // the next input
    if (answer != tasks::no_target && !shown) answers += task.answer_text(answer);
  }
  return answers.empty() ? text : text + " -> " + answers;
}

Json line_about(const std::string& name, const Task& task, const std::vector<std::string>& sets, std::uint64_t seed) {
  const TransformerOptions model = task.model();
  std::vector<std::string> vocabulary, answers;
  for (index_t token = 0; token < model.vocabulary; ++token) vocabulary.push_back(task.text(token));
  for (index_t token = 0; token < model.outputs; ++token) answers.push_back(task.answer_text(token));
  Json about{{"task", name}, {"seed", seed}, {"set", "training"}, {"sets", sets},
      {"options", object_of(task.description())}, {"vocabulary", vocabulary}};
  if (!answers.empty()) about.add("answers", answers);
  return about;
}

Json line_of(const Task& task, const tasks::Row& row, std::int64_t number) {
  return {{"sequence", number}, {"tokens", row.inputs}, {"targets", row.targets}, {"graded", row.graded},
      {"text", text_of(task, row)}};
}

// `--dump`: prints a line about the training set, then `count` sequences: the model's input, the targets, the graded
// tokens, and a text for people. `batch_size` is training's, whose batches may share a length.
void dump(const std::string& name, const Task& task, std::int64_t count, std::uint64_t seed, index_t batch_size) {
  std::vector<std::string> sets{"training", "validation"};
  for (const tasks::TestSet& set : task.test_sets()) sets.push_back(set.name);
  std::cout << line_about(name, task, sets, seed).line() << '\n';
  std::int64_t written = 0;
  for (std::int64_t step = 1; written < count; ++step) {
    const tasks::Batch batch = task.training_batch(seed, step, batch_size);
    for (index_t row = 0; row < batch.sequences && written < count; ++row, ++written)
      std::cout << line_of(task, batch.row(row), written).line() << '\n';
  }
}

class TaskStudyOptions final : public StudyOptions {
 public:
  explicit TaskStudyOptions(tasks::TaskInfo info) : info_(std::move(info)) {}

  std::string name() const override { return info_.name; }
  std::string title() const override { return info_.title + " (" + info_.paper + ")"; }
  std::string mini() const override { return info_.mini; }
  TransformerOptions model() const override { return task_->model(); }
  TrainingOptions training() const override {
    const tasks::Recipe recipe = task_->recipe();
    return {.steps = recipe.steps,
        .learning_rate = recipe.learning_rate,
        .warm_up = recipe.warm_up,
        .decay = recipe.decay,
        .weight_decay = recipe.weight_decay};
  }

  void declare(Fields& fields) override {
    using Count = Range<std::int64_t>;
    make_ = info_.declare(fields);
    task_ = make_(fields);
    const tasks::Recipe recipe = task_->recipe();
    sizes_ = {.batch = recipe.batch, .test_sequences = recipe.test_sequences};
    fields.heading("Data")
        .integer("batch", &sizes_.batch, Count{1, 65536}, {"batch size; times --accumulate per step", "sequences"})
        .integer("test-sequences", &sizes_.test_sequences, Count{1, 10000000}, {"per test set", "sequences"})
        .integer("dump", &dump_, Count{0, 1000000000},
            {"print a line about them and this many training sequences as JSON lines, and end"});
    fields.example(to_text("whence train ", name(), " --dump 3"), "three training sequences");
  }
  void settle(const Fields& fields, const TrainingOptions&) override { task_ = make_(fields); }
  bool shows_data(std::uint64_t seed) const override {
    if (dump_ > 0) dump(name(), *task_, dump_, seed, sizes_.batch);
    return dump_ > 0;
  }
  std::unique_ptr<Study> make(const Fields&, const TrainingOptions&) const override {
    return std::make_unique<TaskStudy>(task_, sizes_);
  }

 private:
  tasks::TaskInfo info_;
  tasks::MakeTask make_;
  std::shared_ptr<const Task> task_;  // of the options' defaults, which --help shows, until they are settled
  RunSizes sizes_;
  std::int64_t dump_ = 0;  // sequences
};

}  // namespace

TrainingBatch batch_of(const tasks::Batch& batch) {
  return {{batch.input_tensor(), batch.target_tensor()}, batch.counted(), batch.sequences * batch.positions};
}

std::string TaskStudy::summary(std::uint64_t seed) const {
  std::string text;
  for (const std::string& note : task_->notes(seed)) text += "note: " + one_line(note) + '\n';
  return text;
}

TrainingBatch TaskStudy::batch(std::uint64_t seed, std::int64_t part) const {
  return batch_of(task_->training_batch(seed, part, sizes_.batch));
}

Validation TaskStudy::validate(const Transformer& model, std::uint64_t seed) const {
  const NoGrad no_grad;
  tasks::Errors errors;
  double sum = 0;
  std::int64_t counted = 0;
  const std::int64_t all = std::min(sizes_.validation_sequences, task_->validation_sequences());
  for (std::int64_t first = 0; first < all; first += sizes_.batch) {
    const tasks::Batch batch = task_->validation_batch(seed, first, std::min(sizes_.batch, all - first));
    const Tensor logits = model(batch.input_tensor());
    const std::int64_t targets = batch.counted();
    sum += cross_entropy(logits, batch.target_tensor(), tasks::no_target).item() * static_cast<double>(targets);
    counted += targets;
    errors.add(batch, tasks::most_probable(logits));
  }
  return {sum / static_cast<double>(std::max<std::int64_t>(counted, 1)),
      {{"token_error_percent", errors.token_percent()}, {"sequence_error_percent", errors.sequence_percent()}}};
}

PlannedPass TaskStudy::largest_pass(std::uint64_t seed) const {
  PlannedPass pass{.model = task_->model(), .sequences = sizes_.batch, .remedy = "a smaller --batch"};
  for (std::size_t set = 0; set < task_->test_sets().size(); ++set)
    pass.length = std::max(pass.length, task_->test_batch(set, seed, 0, 1).positions);
  return pass;
}

void TaskStudy::require_a_test(const Transformer& model, std::uint64_t seed) const {
  const NoGrad no_grad;
  std::string reason;
  for (std::size_t set = 0; set < task_->test_sets().size(); ++set) try {
      (void)model(task_->test_batch(set, seed, 0, 1).input_tensor());
      return;
    } catch (const OutOfMemory&) { throw; } catch (const Error& error) {
      reason = error.what();
    }
  throw InputError("test sets: every one is refused by ", model.scheme(), ": ", reason, "; choose another scheme");
}

std::vector<SetScore> TaskStudy::set_scores(const Transformer& model, std::uint64_t seed, bool quiet) const {
  const NoGrad no_grad;
  const std::vector<tasks::TestSet> sets = task_->test_sets();
  const std::vector<tasks::Guess> guesses = task_->guesses();
  std::vector<SetScore> scores;
  std::int64_t all = 0, done = 0;
  for (const tasks::TestSet& set : sets) all += tested(set);
  Progress progress("test", all, quiet);
  for (std::size_t set = 0; set < sets.size(); ++set) {
    SetScore& score = scores.emplace_back(SetScore{sets[set]});
    for (const tasks::Guess& guess : guesses) score.guesses.push_back({guess.name, {}});
    const std::int64_t end = tested(sets[set]);
    for (std::int64_t first = 0; first < end; first += sizes_.batch) {
      if (interrupt_requested())
        throw Interrupted("testing: stopped before the results were complete; --resume tests again");
      const tasks::Batch batch = task_->test_batch(set, seed, first, std::min(sizes_.batch, end - first));
      try {
        if (score.refused.empty()) score.model.add(batch, tasks::most_probable(model(batch.input_tensor())));
      } catch (const OutOfMemory&) { throw; } catch (const Error& error) {
        score.refused = error.what();
        score.model = {};
      }
      for (std::size_t k = 0; k < guesses.size(); ++k) score.guesses[k].second.add(batch, guesses[k].predict(batch));
      progress.update(done += batch.sequences, batch.sequences * batch.positions, {});
    }
  }
  progress.finish();
  if (std::ranges::all_of(scores, [](const SetScore& score) { return !score.refused.empty(); }))
    throw Error("test sets: every one failed: ", scores.at(0).refused);
  return scores;
}

// The screen shows at most a dozen rows and their average. The files have all.
std::vector<std::string> TaskStudy::test(
    const Transformer& model, const TrainingResult& trained, const TrainingOptions& training) const {
  const std::vector<SetScore> scores = set_scores(model, training.seed, training.quiet);
  const Table all = table_of(*task_, scores);
  std::string results, questions;  // whole files, and results last: a run with results is done
  for (const SetScore& score : scores) {
    results += record_of(*task_, score, model.scheme(), trained, training.seed).line() + '\n';
    questions += questions_of(score).line() + '\n';
  }
  write_file((training.folder / "questions.jsonl").string(), questions);
  write_file((training.folder / "results.jsonl").string(), results);
  Table shown(all.header());
  for (std::size_t set = 0; set < scores.size(); ++set)
    if (set * 12 % scores.size() < 12) shown.row(all.rows()[set]);
  if (scores.size() > 1) shown.row(average_of(*task_, scores));
  std::cout << shown.without_dashes().text();
  std::vector<std::string> unlearned, refused;
  for (const SetScore& score : scores)
    if (!score.refused.empty())
      refused.push_back(score.refused);
    else if (headline(*task_, score.model) >= best_guess(*task_, score))
      unlearned.push_back(score.set.name);
  if (!refused.empty())
    std::cout << refused.size() << " of " << scores.size() << " test sets are refused by " << model.scheme()
              << " and have no figures: " << one_line(refused[0]) << '\n';
  if (!unlearned.empty()) std::cout << "no better than the best guess: " << first_few(unlearned, ", ") << '\n';
  return {"results.jsonl", "questions.jsonl"};
}

Json TaskStudy::tests() const {
  Json::List sets;
  for (const tasks::TestSet& set : task_->test_sets()) sets.push_back({{"name", set.name}});
  return {{"measure", task_->metric().starts_with("sequence") ? "sequence_error_percent" : "token_error_percent"},
      {"test_sets", sets}};
}

std::string TaskStudy::data(std::uint64_t seed) const { return data_fingerprint(*task_, seed); }

Facts TaskStudy::facts(const TrainingOptions& training) const {
  Facts facts = task_->description();
  facts.emplace_back("batch", std::to_string(sizes_.batch));
  facts.emplace_back("data", data(training.seed));
  return facts;
}

Facts TaskStudy::record_facts(const Transformer&, std::uint64_t seed) const {
  Facts facts;
  for (const std::string& note : task_->notes(seed)) facts.emplace_back("note", note);
  return facts;
}

std::unique_ptr<StudyOptions> task_study_options(const std::string& name) {
  return std::make_unique<TaskStudyOptions>(tasks::find_task(name));
}

std::string data_fingerprint(const Task& task, std::uint64_t seed) {
  std::string bytes;
  for (std::int64_t step = 1; step <= 4; ++step) append(bytes, task.training_batch(seed, step, 8));
  const std::size_t sets = task.test_sets().size(), stride = std::max<std::size_t>(1, sets / 8);
  for (std::size_t set = 0; set < sets; set += stride) append(bytes, task.test_batch(set, seed, 0, 4));
  return sha256(bytes + task.hash_of_files());
}

double headline(const Task& task, const tasks::Errors& errors) {
  return task.metric().starts_with("sequence") ? errors.sequence_percent() : errors.token_percent();
}

double best_guess(const Task& task, const SetScore& score) {
  double best = std::numeric_limits<double>::quiet_NaN();
  for (const auto& [name, errors] : score.guesses) best = std::fmin(best, headline(task, errors));
  return best;
}

RecordedTask recorded_task(const RunRecord& record) {
  RecordedTask recorded;
  Fields fields("whence train " + record.subject);
  const auto make = tasks::find_task(record.subject).declare(fields);
  fields.integer("seed", &recorded.seed, Range<std::uint64_t>{}, {"seed of parameters and data"});
  set_recorded(fields, record);
  recorded.task = make(fields);
  ModelChoice choice = choice_of(recorded.task->model());
  declare(fields, choice);
  set_recorded(fields, record);
  recorded.model = with(recorded.task->model(), choice);
  if (!recorded.task->hash_of_files().empty() && data_fingerprint(*recorded.task, recorded.seed) != record.data)
    throw FileError("data: the files that the run read are others now; the same ones required; ", record.data,
        " is the SHA-256 of what it read");
  return recorded;
}

}  // namespace whence
