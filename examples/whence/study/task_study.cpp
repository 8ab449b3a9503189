#include "examples/whence/study/task_study.h"

#include <algorithm>
#include <iostream>

#include "examples/whence/cli/json_lines.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/report/table.h"
#include "examples/whence/tasks/paper_figures.h"
#include "nn/io/files.h"

namespace whence {
namespace {

using tasks::SetScore;
using tasks::Task;

TrainingBatch batch_of(const tasks::Batch& batch) {
  return {{batch.input_tensor(), batch.target_tensor()}, batch.counted(), batch.sequences * batch.positions};
}

// One line of results.jsonl.
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
  for (const auto& [name, wrong] : score.guesses) record.add("guess: " + name, tasks::headline(task, wrong));
  return record;
}

// A row of every test set.
Table table_of(const Task& task, const std::vector<SetScore>& scores, const std::string& scheme) {
  Table table({"test set", "token error %", "sequence error %", "tokens", "best guess, " + task.metric(),
      "paper, " + task.metric()});
  for (std::size_t set = 0; set < scores.size(); ++set) {
    const SetScore& score = scores[set];
    std::vector<std::string> cells{score.set.name, "-", "-", "-"};
    if (score.refused.empty())
      cells = {score.set.name, fixed(score.model.token_percent(), 3), fixed(score.model.sequence_percent(), 2),
          std::to_string(score.model.tokens)};
    cells.push_back(fixed(tasks::best_guess(task, score), 2));
    cells.push_back(tasks::figure_text(tasks::figure_of(task.paper_figures(set), scheme, task.model().scheme)));
    table.row(cells);
  }
  return table;
}

// Over the test sets that the model read, each counting the same.
std::vector<std::string> average_of(const Task& task, const std::vector<SetScore>& scores, const std::string& scheme) {
  double token = 0, sequence = 0, guess = 0, read = 0;
  for (const SetScore& score : scores) {
    guess += tasks::best_guess(task, score);
    if (!score.refused.empty()) continue;
    token += score.model.token_percent(), sequence += score.model.sequence_percent(), ++read;
  }
  const bool all = static_cast<std::size_t>(read) == scores.size();
  const std::vector<tasks::PaperFigure> figures = task.paper_averages();
  return {all ? to_text("average of ", read) : to_text("average of ", read, " of ", scores.size()),
      fixed(token / read, 3), fixed(sequence / read, 2), "-", fixed(guess / static_cast<double>(scores.size()), 2),
      tasks::figure_text(all ? tasks::figure_of(figures, scheme, task.model().scheme) : nullptr)};
}

}  // namespace

TaskStudy::TaskStudy(const Task& task, const tasks::RunSizes& sizes)
    : task_(std::shared_ptr<const Task>(), &task), sizes_(sizes) {}

void TaskStudy::declare(CommandLine& line) {
  using Count = Range<std::int64_t>;
  make_ = info_.declare(line);
  task_ = make_();
  const tasks::Recipe recipe = task_->recipe();
  sizes_ = {.batch = recipe.batch, .test_sequences = recipe.test_sequences};
  line.heading("Data")
      .integer("batch", &sizes_.batch, Count{1, 65536}, {"at a time; times --accumulate per step", "sequences"})
      .integer("test-sequences", &sizes_.test_sequences, Count{1, 10000000}, {"in each test set", "sequences"})
      .integer(
          "validation-sequences", &sizes_.validation_sequences, Count{1, 10000000}, {"in each validation", "sequences"})
      .integer("dump", &dump_.count, Count{0, 1000000000},
          {"print what they are and this many sequences as JSON lines, and end"})
      .text("dump-set", &dump_.set,
          {"which: training, validation, or a test set, whose names the dump's first line has"});
  line.example(to_text("whence train ", name(), " --dump 3"), "three training sequences");
}

TrainingOptions TaskStudy::training() const {
  const tasks::Recipe recipe = task_->recipe();
  return {.steps = recipe.steps,
      .learning_rate = recipe.learning_rate,
      .warm_up = recipe.warm_up,
      .decay = recipe.decay,
      .weight_decay = recipe.weight_decay};
}

void TaskStudy::settle(const CommandLine& line, const TrainingOptions& training) {
  task_ = make_();
  line.refuse_unless("validation-sequences", training.validate_every > 0, "--validate-every");
  line.refuse_unless("dump-set", dump_.count > 0, "--dump");
}

bool TaskStudy::shows_data(std::uint64_t seed) const {
  if (dump_.count > 0) tasks::dump(name(), *task_, dump_, seed, sizes_.batch);
  return dump_.count > 0;
}

TrainingBatch TaskStudy::batch(std::uint64_t seed, std::int64_t part) const {
  return batch_of(task_->training_batch(seed, part, sizes_.batch));
}

TrainingBatch TaskStudy::sample(std::uint64_t seed) const { return batch_of(task_->test_batch(0, seed, 0, 1)); }

Validation TaskStudy::validate(const Transformer& model, std::uint64_t seed) const {
  return tasks::validate(model, *task_, sizes_, seed);
}

Reading TaskStudy::largest_reading(std::uint64_t seed) const {
  Reading reading{sizes_.batch, 1, "a smaller --batch"};
  for (std::size_t set = 0; set < task_->test_sets().size(); ++set)
    reading.length = std::max(reading.length, task_->test_batch(set, seed, 0, 1).positions);
  return reading;
}

// Which test sets cannot be read, and how long the others will take. On a GPU that is not known.
std::vector<std::string> TaskStudy::notes(Transformer& model, const TrainingOptions& training) const {
  std::vector<std::string> notes = task_->notes(training.seed);
  model.initialise(training.seed);
  const tasks::TestPlan plan = tasks::plan_tests(model, *task_, sizes_, training.seed);
  const std::size_t sets = task_->test_sets().size();
  if (plan.refused > 0)
    notes.push_back(to_text(plan.refused, " of ", sets, " test sets are refused by ", model.scheme(),
        " and will have no figures: ", plan.reason));
  if (training.device.is_cpu() && plan.seconds > 30)
    notes.push_back(to_text("the tests, ", plan.sequences, " sequences in ", sets - plan.refused,
        " sets, will take about ", time_text(plan.seconds), "; --test-sequences makes them shorter"));
  return notes;
}

// At most a dozen rows on the screen, and their average; all of them in the files.
std::vector<std::string> TaskStudy::test(
    const Transformer& model, const TrainingResult& trained, const TrainingOptions& training) const {
  const std::vector<SetScore> scores = tasks::test_task(model, *task_, sizes_, training.seed, training.quiet);
  const Table all = table_of(*task_, scores, model.scheme());
  JsonLog log(training.folder / "results.jsonl", JsonLog::Mode::fresh);
  for (const SetScore& score : scores) log.append(record_of(*task_, score, model.scheme(), trained, training.seed));
  write_file((training.folder / "results.csv").string(), all.csv());
  Table shown(all.header());
  for (std::size_t set = 0; set < scores.size(); ++set)
    if (set * 12 % scores.size() < 12) shown.row(all.rows()[set]);
  if (scores.size() > 1) shown.row(average_of(*task_, scores, model.scheme()));
  std::cout << shown.text();
  return {"results.jsonl", "results.csv"};
}

Facts TaskStudy::facts(const TrainingOptions& training) const {
  Facts facts = task_->description();
  facts.emplace_back("batch", std::to_string(sizes_.batch));
  if (training.validate_every > 0)
    facts.emplace_back("validation-sequences", std::to_string(sizes_.validation_sequences));
  facts.emplace_back("data", data(training.seed));
  return facts;
}

Facts TaskStudy::record_facts(const Transformer&, std::uint64_t seed) const {
  Facts facts;
  for (const std::string& note : task_->notes(seed)) facts.emplace_back("note", note);
  return facts;
}

RecordedTask recorded_task(const RunRecord& record) {
  RecordedTask recorded;
  CommandLine line("whence train " + record.subject, "");
  const auto make = tasks::find_task(record.subject).declare(line);
  ModelChoice choice = choice_of(make()->model());
  declare(line, choice);
  line.integer("seed", &recorded.seed, Range<std::uint64_t>{}, {"of parameters and data"});
  std::vector<std::string> known;
  for (const auto& [name, value] : line.values()) known.push_back(name);
  (void)line.parse(arguments_of(record, known, {}));
  recorded.task = make();
  recorded.model = with(recorded.task->model(), choice);
  if (!recorded.task->hash_of_files().empty() && tasks::data_fingerprint(*recorded.task, recorded.seed) != record.data)
    throw FileError("data: the files that the run read are others now; the same ones required; ", record.data,
        " is the SHA-256 of what it read");
  return recorded;
}

}  // namespace whence
