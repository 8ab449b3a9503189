// train: trains a transformer with any positional scheme on one of the papers' tasks,
// and tests it beside guesses and the paper's figures.
#include "examples/whence/train.h"

#include <algorithm>
#include <iostream>

#include "autograd/inspect/graph_text.h"
#include "examples/whence/cli/command.h"
#include "examples/whence/cli/command_line.h"
#include "examples/whence/cli/interrupt.h"
#include "examples/whence/cli/json_lines.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/progress.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/language/train_language.h"
#include "examples/whence/look/history.h"
#include "examples/whence/machine/memory_plan.h"
#include "examples/whence/machine/placement.h"
#include "examples/whence/machine/ranks.h"
#include "examples/whence/report/table.h"
#include "examples/whence/run/run_record.h"
#include "examples/whence/run/training_operations.h"
#include "examples/whence/tasks/paper_figures.h"
#include "examples/whence/tasks/task_training.h"
#include "nn/io/files.h"
#include "tensor/suggest.h"

namespace whence {
namespace {

using tasks::Batch;
using tasks::SetScore;
using tasks::Task;

struct Settings {
  tasks::ModelChoice model;
  tasks::RunSizes sizes;
  TrainingOptions training;
  std::string out, from, dump_set = "training", graph;
  std::int64_t dump = 0;
  bool describe = false;
  MachineOptions machine;
  RankOptions ranks;
};

// One parsed command line and the task that it asks for.
class Run {
 public:
  Run(const std::string& name, const std::vector<std::string>& arguments)
      : name_(name),
        line_("whence train " + name, tasks::find_task(name).title + " (" + tasks::find_task(name).paper + ")",
            WHENCE_VERSION) {
    make_ = tasks::find_task(name).declare(line_);
    take_defaults(*make_());  // before anything is parsed: the task with its own defaults says those of the rest
    declare_options();
    std::vector<const char*> argv{name_.c_str()};
    for (const std::string& argument : arguments) argv.push_back(argument.c_str());
    page_ = line_.parse(static_cast<int>(argv.size()), argv.data());
    if (page_) return;
    task_ = make_();
    fill_in();
  }

  const std::optional<std::string>& page() const { return page_; }  // --help, --version
  const std::string& name() const { return name_; }
  const Task& task() const { return *task_; }
  const Settings& settings() const { return settings_; }
  const CommandLine& line() const { return line_; }
  std::vector<std::pair<std::string, std::string>> values() const { return line_.values(); }

  RunRecord record() const {
    RunRecord record{"train", WHENCE_VERSION, name_, line_.values(), {},
        tasks::data_fingerprint(*task_, settings_.training.seed), {}};
    for (const auto& [name, value] : record.options)
      if (line_.given(name) && !never_recorded.contains(name)) record.given.push_back(name);
    std::erase_if(record.options, [](const auto& option) { return never_recorded.contains(option.first); });
    return record;
  }

 private:
  void take_defaults(const Task& task) {
    const tasks::Recipe recipe = task.recipe();
    settings_.model = tasks::choice_of(task.model());
    settings_.sizes = {.batch = recipe.batch, .test_sequences = recipe.test_sequences};
    auto& training = settings_.training;
    training.steps = recipe.steps, training.learning_rate = recipe.learning_rate, training.warm_up = recipe.warm_up;
    training.decay = recipe.decay, training.weight_decay = recipe.weight_decay;
    settings_.out = "runs/" + name_;
  }

  void declare_options() {
    using Count = Range<std::int64_t>;
    auto& sizes = settings_.sizes;
    tasks::declare(line_, settings_.model);
    line_.heading("Data")
        .integer("batch", &sizes.batch, Count{1, 65536}, {"at a time; times --accumulate per step", "sequences"})
        .integer("test-sequences", &sizes.test_sequences, Count{1, 10000000}, {"in each test set", "sequences"})
        .integer("validation-sequences", &sizes.validation_sequences, Count{1, 10000000},
            {"in each validation", "sequences"})
        .integer("dump", &settings_.dump, Count{0, 1000000000},
            {"print what they are and this many sequences as JSON lines, and end"})
        .text("dump-set", &settings_.dump_set,
            {"which: training, validation, or a test set, whose names the dump's first line has"});
    declare(line_, settings_.training, true);
    line_.text("out", &settings_.out, {"folder for checkpoints, logs and results"})
        .text("from", &settings_.from,
            {"repeat the run of this run.json; other options on the command line come before its own"});
    declare(line_, settings_.machine);
    declare(line_, settings_.ranks);
    line_.heading("Looking inside")
        .flag("describe", &settings_.describe,
            {"print the parameters and what one training step keeps for backward, by op and line, and end"})
        .text("graph", &settings_.graph, {"write the graph of one training step to this file for Graphviz, and end"});
    line_.example(to_text("whence train ", name_, " --out runs/a"),
        "the paper's model and sizes, where they are known; hours on a laptop");
    line_.example("whence train --from runs/a/run.json --out runs/b", "the same run again");
    line_.example(to_text("whence train ", name_, " --dump 3"), "three training sequences");
    line_.example(to_text("whence train ", name_, " --describe --graph step.dot"),
        "parameters, memory by op and line, and the graph of one step");
  }

  // The options of a task change the defaults of its model.
  void fill_in() {
    const tasks::ModelChoice own = tasks::choice_of(task_->model());
    auto& model = settings_.model;
    if (!line_.given("scheme")) model.scheme = own.scheme;
    model.scheme = canonical_text(parse_schemes(model.scheme));
    if (model.dim % model.heads) line_.refuse("heads", "a divisor of --dim", "4 heads suit dims of 64 and more");
    auto& training = settings_.training;
    if (settings_.dump == 0) fit_warm_up(line_, training);
    line_.refuse_unless("validation-sequences", training.validate_every > 0, "--validate-every");
    line_.refuse_unless("dump-set", settings_.dump > 0, "--dump");
    line_.refuse_unless("loss-scale-growth", settings_.machine.precision == "f16", "--precision f16");
    training.precision = storage_dtype_of(settings_.machine.precision);
    check(training);
    training.folder = settings_.out;
  }

  std::string name_;
  CommandLine line_;
  std::function<std::unique_ptr<Task>()> make_;  // owns the values of the task's options
  Settings settings_;
  std::optional<std::string> page_;
  std::unique_ptr<Task> task_;
};

// What the model reads, and behind it the answers that it is to find itself.
std::string text_of(const Task& task, const tasks::Tokens& inputs, const tasks::Tokens& graded) {
  std::string text, answers;
  const bool causal = task.model().causal;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    text += task.text(inputs[i]);
    const bool shown = causal && i + 1 < inputs.size() && inputs[i + 1] == graded[i];  // as the next input
    if (graded[i] != tasks::no_target && !shown) answers += task.text(graded[i]);
  }
  return answers.empty() ? text : text + " -> " + answers;
}

// A line about all of it, and then sequence by sequence: what the model reads, what it is trained on, what is graded,
// and all of it for people.
void dump(const std::string& name, const Task& task, const Settings& settings) {
  const std::uint64_t seed = settings.training.seed;
  std::vector<std::string> sets{"training", "validation"};
  for (const tasks::TestSet& set : task.test_sets()) sets.push_back(set.name);
  Json about{{"task", name}, {"seed", seed}, {"set", settings.dump_set}, {"sets", sets}};
  const auto set = static_cast<std::size_t>(std::ranges::find(sets, settings.dump_set) - sets.begin());
  if (set == sets.size())
    throw InputError("--dump-set: ", settings.dump_set, " given; one of ", joined(sets), " required");
  Json options{Json::Fields()};
  for (const auto& [option, value] : task.description()) {
    const auto number = parse_number<double>(value);
    const auto whole = parse_number<std::int64_t>(value);
    options.add(option, whole ? Json(*whole) : number ? Json(*number) : Json(value));
  }
  std::vector<std::string> vocabulary;
  for (index_t token = 0; token < task.model().vocabulary; ++token) vocabulary.push_back(task.text(token));
  about.add("options", options).add("vocabulary", vocabulary);
  std::cout << about.line() << '\n';
  const std::int64_t there = set == 0   ? tasks::no_end
                             : set == 1 ? task.validation_sequences()
                                        : task.test_sets()[set - 2].sequences,
                     end = std::min(settings.dump, there);
  std::int64_t written = 0;
  for (std::int64_t step = 1; written < end; ++step) {
    const index_t count = settings.sizes.batch;
    const Batch batch = set == 0   ? task.training_batch(seed, step, count)
                        : set == 1 ? task.validation_batch(seed, written, count)
                                   : task.test_batch(set - 2, seed, written, count);
    for (index_t row = 0; row < batch.sequences && written < end; ++row, ++written) {
      const auto part = [&](const tasks::Tokens& all) {
        return tasks::Tokens(all.begin() + row * batch.positions, all.begin() + (row + 1) * batch.positions);
      };
      const Json line{{"sequence", written}, {"tokens", part(batch.inputs)}, {"targets", part(batch.targets)},
          {"graded", part(batch.graded)}, {"text", text_of(task, part(batch.inputs), part(batch.graded))}};
      std::cout << line.line() << '\n';
    }
  }
}

PlannedTraining planned(const Task& task, const Settings& settings, const Placement& placement) {
  const auto job_of = [&task, sizes = settings.sizes, training = settings.training](
                          Transformer& model) { return tasks::training_job(model, task, sizes, training); };
  PlannedTraining plan{.model = tasks::with(task.model(), settings.model),
      .device = placement.device,
      .precision = placement.precision,
      .accumulate = parts_of_a_rank(settings.training),
      .shared = settings.training.ranks != nullptr};
  const Batch batch = task.training_batch(settings.training.seed, 1, settings.sizes.batch);
  plan.batch = {{batch.input_tensor(), batch.target_tensor()}, batch.counted(), batch.sequences * batch.positions};
  plan.loss_of = [job_of](Transformer& model) { return job_of(model).loss_of; };
  return plan;
}

// The loss of one training step, looked at instead of trained on.
void look_inside(const Task& task, const Settings& settings) {
  Transformer model(tasks::with(task.model(), settings.model));
  model.initialise(settings.training.seed);
  const Placement placement = placement_of(settings.machine);
  model.to(placement.device);
  const TrainingJob job = tasks::training_job(model, task, settings.sizes, settings.training);
  const Tensor loss = job.loss_of(job.batch(1), 1);
  if (settings.describe) {
    Table table({"parameter", "shape", "initial", "decays"});
    for (const Module::Parameter& parameter : model.parameters()) {
      table.row({parameter.path, to_string(parameter.tensor.shape()), parameter.init.text(),
          parameter.decays ? "yes" : "no"});
    }
    const PlannedTraining plan = planned(task, settings, placement);
    std::cout << table.text() << '\n' << memory_report(loss).text() << '\n' << memory_table(planned_memory(plan), plan);
  }
  if (!settings.graph.empty()) {
    write_file(settings.graph, to_dot(loss));
    std::cout << "written: " << one_line(settings.graph) << "; dot -Tsvg turns it into a picture\n";
  }
}

// At most a dozen rows on the screen, and their average; all of them in the files.
void write_results(
    const Task& task, const Settings& settings, const TrainingResult& trained, const std::vector<SetScore>& scores) {
  const std::string guess_title = to_text("best guess, ", task.metric()),
                    paper_title = to_text("paper, ", task.metric());
  Table all({"test set", "token error %", "sequence error %", "tokens", guess_title, paper_title}), shown = all;
  JsonLog log(settings.training.folder / "results.jsonl", JsonLog::Mode::fresh);
  double sums[3] = {0, 0, 0};
  std::size_t read = 0;
  const std::string own = task.model().scheme;
  for (std::size_t set = 0; set < scores.size(); ++set) {
    const SetScore& score = scores[set];
    const double guess = tasks::best_guess(task, score);
    Json record{{"scheme", settings.model.scheme}, {"seed", std::to_string(settings.training.seed)},
        {"steps", trained.steps}, {"test_set", score.set.name}};
    std::vector<std::string> cells{"-", "-", "-"};
    if (score.refused.empty()) {
      const double errors[3] = {score.model.token_percent(), score.model.sequence_percent(), guess};
      for (int k = 0; k < 3; ++k) sums[k] += errors[k];
      ++read;
      cells = {fixed(errors[0], 3), fixed(errors[1], 2), std::to_string(score.model.tokens)};
      record.add("token_error_percent", errors[0]).add("sequence_error_percent", errors[1]);
      record.add("tokens", score.model.tokens).add("sequences", score.model.sequences);
    } else {
      record.add("refused", score.refused);
    }
    const std::vector<tasks::PaperFigure> figures = task.paper_figures(set);
    const auto* figure = tasks::figure_of(figures, settings.model.scheme, own);
    all.row({score.set.name, cells[0], cells[1], cells[2], fixed(guess, 2), tasks::figure_text(figure)});
    if (set * 12 % scores.size() < 12) shown.row(all.rows().back());
    if (trained.loss_scale > 0) record.add("skipped_steps", trained.skipped);
    for (const auto& [name, wrong] : score.guesses) record.add("guess: " + name, tasks::headline(task, wrong));
    log.append(record);
  }
  if (scores.size() > 1) {
    const std::vector<tasks::PaperFigure> figures = task.paper_averages();
    const auto* figure = tasks::figure_of(figures, settings.model.scheme, own);
    const auto n = static_cast<double>(read);
    shown.row(
        {read < scores.size() ? to_text("average of ", read, " of ", scores.size()) : to_text("average of ", read),
            fixed(sums[0] / n, 3), fixed(sums[1] / n, 2), "-", fixed(sums[2] / n, 2),
            tasks::figure_text(read < scores.size() ? nullptr : figure)});
  }
  write_file((settings.training.folder / "results.csv").string(), all.csv());
  std::cout << shown.text();
}

// Before the first step: which test sets cannot be read, and how long the others will take. On a GPU that is not known.
void say_what_tests_take(Transformer& model, const Task& task, const Settings& settings) {
  model.initialise(settings.training.seed);
  const tasks::TestPlan plan = tasks::plan_tests(model, task, settings.sizes, settings.training.seed);
  const std::size_t sets = task.test_sets().size();
  if (plan.refused > 0) {
    std::cout << "note: " << plan.refused << " of " << sets << " test sets are refused by " << model.scheme()
              << " and will have no figures: " << plan.reason << std::endl;
  }
  if (settings.training.device.is_cpu() && plan.seconds > 30) {
    std::cout << "note: the tests, " << plan.sequences << " sequences in " << sets - plan.refused
              << " sets, will take about " << time_text(plan.seconds) << "; --test-sequences makes them shorter"
              << std::endl;
  }
}

int train_and_test(const Run& run, Settings settings) {
  const Task& task = run.task();
  install_interrupt_handler();
  const Placement placement = placement_of(settings.machine);
  settings.training.device = placement.device;
  const bool fitted = fit_accumulate(run.line(), settings.training);
  const TransformerOptions options = tasks::with(task.model(), settings.model);
  require_memory(options, placement.device, 4);
  const auto memory = plan_memory(planned(task, settings, placement), false);
  index_t longest = 1;
  for (std::size_t set = 0; set < task.test_sets().size(); ++set)
    longest = std::max(longest, task.test_batch(set, settings.training.seed, 0, 1).positions);
  std::cout << "tests: "
            << require_pass_memory({.model = options,
                                       .device = placement.device,
                                       .sequences = settings.sizes.batch,
                                       .length = longest,
                                       .option = "--batch",
                                       .value = settings.sizes.batch,
                                       .follow = [](PlannedPass& pass) { pass.sequences = pass.value; }},
                   free_memory(placement.device))
            << std::endl;
  Transformer model(options);
  std::cout << "model: " << model.scheme() << ", " << model.parameter_count() << " parameters, executor "
            << model.attention(0).explain() << std::endl;
  std::cout << placement.text << std::endl;
  const std::vector<std::string> notes = task.notes(settings.training.seed);
  for (const std::string& note : notes) std::cout << "note: " << one_line(note) << std::endl;
  say_what_tests_take(model, task, settings);
  TrainingJob job = tasks::training_job(model, task, settings.sizes, settings.training);
  RunRecord record = run.record();
  record.facts = {
      {"parameters", std::to_string(model.parameter_count())}, {"executor", model.attention(0).explain()}, memory};
  for (const std::string& note : notes) record.facts.emplace_back("note", note);
  if (fitted) record_accumulate(record, settings.training);
  job.record = text_of(record);
  if (settings.training.look_every > 0) {
    const Batch sample = task.test_batch(0, settings.training.seed, 0, 1);
    job.look = look::looks_at(model, sample.input_tensor(), sample.target_tensor());
  }
  const TrainingResult trained = train(job, settings.training);
  if (!speaks(settings.training.ranks)) return 0;
  std::cout << "trained: " << trained.steps << " steps, " << time_text(trained.seconds) << " here, "
            << with_unit(trained.tokens_per_second) << " tokens/s";
  if (trained.best_step > 0)
    std::cout << "; best validation " << fixed(trained.best_score, 4) << " at step " << trained.best_step;
  std::cout << skipped_text(trained) << '\n';
  write_results(task, settings, trained,
      tasks::test_task(model, task, settings.sizes, settings.training.seed, settings.training.quiet));
  std::cout
      << "written: " << one_line(settings.out)
      << "/{weights.safetensors, metrics.jsonl, metrics.csv, results.jsonl, results.csv, run.json, checkpoints/}\n";
  return 0;
}

// FileError where the options of a record are none that train takes, whatever is typed in their place.
void require_own_options(const RunRecord& record, const std::string& path) {
  try {
    refuse_unknown_options(record, path, Run(record.subject, {"--help"}).values());  // which only declares them
    (void)checked_train_options(record.subject, arguments_of(record, record.given, {}));
  } catch (const FileError&) { throw; } catch (const SystemError&) {
    throw;
  } catch (const InputError& unfit) { throw FileError(path, ": ", unfit.what()); }
}

// The run of a record, with what is typed in place of its own options. Options that were left at their defaults then,
// and have others now, are written out; so is the warm-up of a run that is gone on with, which more steps would change.
std::unique_ptr<Run> repeat(const RunRecord& record, const std::string& path, const std::vector<std::string>& typed) {
  require_own_options(record, path);
  std::vector<std::string> names = record.given;
  if (std::ranges::find(typed, "--resume") != typed.end()) names.emplace_back("warm-up");
  const auto run_with = [&] {
    std::vector<std::string> arguments = arguments_of(record, names, typed);
    const bool as_it_was = std::ranges::all_of(typed, [](const std::string& text) {
      return !text.starts_with("--") || never_recorded.contains(text.substr(2, text.find('=') - 2));
    });
    arguments.insert(arguments.end(), typed.begin(), typed.end());
    return std::pair(std::make_unique<Run>(record.subject, arguments), as_it_was);
  };
  auto [run, as_it_was] = run_with();
  if (run->page() || !as_it_was) return std::move(run);
  for (const auto& [name, value] : run->record().options) {
    const auto then = std::ranges::find(record.options, name, &std::pair<std::string, std::string>::first);
    if (then != record.options.end() && then->second != value) names.push_back(name);
  }
  if (names.size() > record.given.size()) run = run_with().first;
  const std::string now = run->record().data;
  if (record.data.size() == 16) {
    std::cerr << "note: version " << one_line(record.version) << " knew its data by the fingerprint "
              << one_line(record.data) << "; this one, whose are SHA-256, cannot tell whether they are the same\n";
  } else if (now != record.data) {
    throw FileError("--from: the data have SHA-256 ", now, ", those of the recorded run ", record.data,
        "; the same data required; version ", record.version, " made them, this is ", WHENCE_VERSION);
  }
  return std::move(run);
}

// Without a task: --help, and what leads to an error.
int run_without_task(const std::vector<std::string>& arguments) {
  std::string from;
  std::vector<std::string> name, known{"lm"};
  for (const tasks::TaskInfo& info : tasks::registered_tasks()) known.push_back(info.name);
  CommandLine line("whence train", "Trains a transformer on a task of the papers. TASK --help shows its options.");
  line.names("TASK", &name, "what to train on; whence tasks lists them", known);
  line.text("from", &from, {"repeat the run of this run.json"});
  line.elsewhere("list", "whence tasks lists the tasks").elsewhere("list-schemes", "whence schemes lists them");
  line.example("whence train selective_copy --help", "the options of a task");
  line.example("whence train questions.jsonl --out runs/own", "a task of your own: the task jsonl with --data");
  if (const auto out = typed_value(arguments, "--out"); out && std::ranges::count(arguments, "--resume"))
    throw InputError("--resume: no run.json in ", *out, "; the folder of a run required; name its task");
  std::vector<const char*> argv{"train"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  if (const auto page = line.parse(static_cast<int>(argv.size()), argv.data())) {
    std::cout << *page;
    return 0;
  }
  throw InputError("no task given; the name of one required as the first word; whence tasks lists them");
}

int run(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool named = !arguments.empty() && !arguments[0].starts_with("-");
  const auto from = record_to_repeat(arguments);
  if (!named && !from) return run_without_task(arguments);
  std::string name = named ? arguments[0] : std::string();
  if (named) arguments.erase(arguments.begin());
  if (name.ends_with(".jsonl")) {
    arguments.insert(arguments.begin(), {"--data", name});
    name = "jsonl";
  }
  if (name == "lm" || (!named && read_run_record(*from).subject == "lm")) return language::train_language(arguments);
  std::unique_ptr<Run> run;
  if (from) {
    const RunRecord record = read_run_record(*from);
    if (named && name != record.subject)
      throw InputError(*from, ": is a run of ", record.subject, ", ", name, " given; the same task required");
    run = repeat(record, *from, arguments);
  } else {
    run = std::make_unique<Run>(name, arguments);
  }
  if (run->page()) {
    std::cout << *run->page();
    return 0;
  }
  if (run->settings().dump > 0) {
    dump(run->name(), run->task(), run->settings());
    return 0;
  }
  if (run->settings().describe || !run->settings().graph.empty()) {
    look_inside(run->task(), run->settings());
    return 0;
  }
  Settings settings = run->settings();
  return run_as_ranks(run->line(), settings.ranks, settings.machine, [&](Communicator* ranks) {
    settings.training.ranks = ranks;
    return train_and_test(*run, settings);
  });
}

const RegisterCommand registered{
    {"train", Purpose::train, "any scheme on a task of the papers, or on text files (train lm)", run}};

}  // namespace

std::vector<std::pair<std::string, std::string>> checked_train_options(
    const std::string& task, const std::vector<std::string>& options) {
  if (task == "lm") return language::checked_options(options);
  const Run run(task, options);
  TransformerOptions model = tasks::with(run.task().model(), run.settings().model);
  model.layers = 1;  // as good as all of them to see whether sizes and scheme go together
  (void)Transformer(model);
  return run.values();
}

double operations_per_sequence(const std::string& task, const std::vector<std::string>& options) {
  if (task == "lm") return language::operations_per_sequence(options);
  const Run run(task, options);
  const TransformerOptions model = tasks::with(run.task().model(), run.settings().model);
  return training_operations(model, model.length).sum() * static_cast<double>(model.length);
}

}  // namespace whence
