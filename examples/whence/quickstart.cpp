// quickstart: trains CoPE, RoPE and learned absolute positions on a small flip-flop and compares them with the paper
// (report.html). look.html shows the gates, positions and attention of the trained CoPE model, and whence their
// gradients came.
#include <iostream>

#include "examples/whence/cli/command.h"
#include "examples/whence/cli/interrupt.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/words.h"
#include "examples/whence/look/page.h"
#include "examples/whence/machine/placement.h"
#include "examples/whence/report/table.h"
#include "examples/whence/run/run_files.h"
#include "examples/whence/study/task_study.h"
#include "examples/whence/tasks/paper_figures.h"
#include "nn/io/files.h"
#include "tensor/parallel.h"

namespace whence {
namespace {

// Flip-flop at its small size: the study, the model and steps that go with it, and what may be asked for.
struct Settings {
  TaskStudy study{tasks::find_task("flip_flop")};
  ModelChoice model;
  TrainingOptions training;
  std::string out = "runs/quickstart", device = "auto";
  int threads = whence::threads();
  bool smoke = false;

  Settings() {
    CommandLine line("flip_flop", "");
    study.declare(line);
    model = choice_of(study.model()), training = study.training();
    declare(line, model);
    declare(line, training);
    for (const Word& word : words_of(study.mini(), "mini")) line.set_default(word.name, word.value);
    study.settle(line, training);
  }
};

struct SchemeRun {
  std::string scheme;
  std::unique_ptr<Transformer> model;
  TrainingResult trained;
  std::vector<SetScore> scores;
};

SchemeRun run_scheme(const Settings& settings, const std::string& scheme) {
  const TaskStudy& study = settings.study;
  ModelChoice chosen = settings.model;
  chosen.scheme = scheme;
  auto model = std::make_unique<Transformer>(with(study.model(), chosen));
  const TrainingResult trained = train(job_of(study, *model, settings.training), settings.training);
  RunSizes sizes = study.run_sizes();
  if (settings.smoke) sizes.test_sequences = 16;
  auto scores = TaskStudy(study.task(), sizes).set_scores(*model, settings.training.seed, true);
  std::cout << scheme << ": " << model->parameter_count() << " parameters, " << trained.steps << " steps in "
            << fixed(trained.seconds, 1) << " s (" << with_unit(trained.tokens_per_second) << " tokens/s)" << std::endl;
  return {scheme, std::move(model), trained, std::move(scores)};
}

// Beside the paper's figures, which are those of the task at its own sizes.
Table comparison(const std::vector<SchemeRun>& runs) {
  Table table({"scheme", "in distribution %", "sparse %", "dense %", "paper: in distribution %", "paper: sparse %",
      "training s"});
  const auto as_in_the_paper = tasks::make_task("flip_flop");
  for (const SchemeRun& run : runs) {
    std::vector<std::string> cells{run.scheme};
    for (const SetScore& score : run.scores) cells.push_back(fixed(score.model.token_percent(), 2));
    for (const std::size_t set : {std::size_t{0}, std::size_t{1}})
      cells.push_back(tasks::figure_text(tasks::figure_of(as_in_the_paper->paper_figures(set), run.scheme, "cope")));
    cells.push_back(fixed(run.trained.seconds, 1));
    table.row(cells);
  }
  std::vector<std::string> guess{"best guess without memory"};
  for (const SetScore& score : runs[0].scores) guess.push_back(fixed(best_guess(*as_in_the_paper, score), 1));
  guess.insert(guess.end(), {"-", "-", "-"});
  return table.row(guess);
}

report::Plot losses_of(const std::vector<SchemeRun>& runs) {
  report::Plot plot{.title = "Training loss at reads",
      .x_label = "step",
      .y_label = "cross-entropy, nats",
      .curves = {},
      .log_y = true};
  for (const SchemeRun& run : runs) {
    report::Curve& curve = plot.curves.emplace_back(report::Curve{.name = run.scheme, .x = {}, .y = {}});
    for (const LossPoint& point : run.trained.curve) {
      curve.x.push_back(static_cast<double>(point.step));
      curve.y.push_back(point.loss);
    }
  }
  return plot;
}

report::Page page_of(const Settings& settings, const std::vector<SchemeRun>& runs, const Table& table) {
  const TransformerOptions& model = runs[0].model->options();
  report::Page page;
  page.title = "Flip-flop: which positions can remember one bit?";
  page.introduction = to_text(
      "A flip-flop string is pairs of an instruction and a bit: w writes the bit, i says to ignore it, r asks for the "
      "bit written last. The model is tested on strings like those it was trained on (80 % ignores), on sparse ones "
      "(98 %) and on dense ones (10 %).\n\nThis run: strings of ",
      model.length, " tokens, dim ", model.dim, ", ", model.layers, " layers, ", model.heads, " heads, ",
      settings.training.steps, " steps of ", settings.study.run_sizes().batch, " strings, seed ",
      settings.training.seed,
      ". The paper: strings of 512, dim 256, 4 layers, 4 heads, 10 000 steps, mean (s.d.) of three seeds.");
  page.tables.push_back(
      {.title = "Wrong bits after a read, in percent", .note = "Lower is better; 50 is a coin.", .table = table});
  page.plots.push_back(losses_of(runs));
  page.footnotes = {
      "Contextual Position Encoding: Golovneva et al. 2024, arXiv:2405.18719. Flip-flop: Liu et al. 2023, "
      "arXiv:2306.00946.",
      "Made by whence " WHENCE_VERSION "."};
  return page;
}

void declare_options(CommandLine& line, Settings& settings) {
  TrainingOptions& training = settings.training;
  line.integer("steps", &training.steps, Range<std::int64_t>{1, 1000000}, {"optimiser steps per scheme"})
      .integer("seed", &training.seed, Range<std::uint64_t>{}, {"of parameters and data"})
      .integer("threads", &settings.threads, Range<int>{1, 1024}, {"results do not depend on it"})
      .text("out", &settings.out, {"folder for report.html, look.html and comparison.csv"})
      .flag("quiet", &training.quiet, {"no progress"})
      .flag("smoke", &settings.smoke, {"a few steps only, to see that everything runs"});
  declare_device(line, &settings.device);
  line.example("whence quickstart", "about a minute of training");
}

int run(CommandLine& line) {
  Settings settings;
  declare_options(line, settings);
  if (line.shows_page()) return 0;
  TrainingOptions& training = settings.training;
  line.refuse_unless("steps", !settings.smoke, "a full run instead of --smoke");
  if (settings.smoke) training.steps = 4;
  training.warm_up = std::min<std::int64_t>(training.warm_up, training.steps);
  set_threads(settings.threads);
  const DeviceChoice choice = choose_device(settings.device);
  training.device = choice.device;
  std::cout << choice.sentence << std::endl;
  ensure_output_folder(settings.out);
  install_interrupt_handler();

  std::vector<SchemeRun> runs;
  for (const char* scheme : {"cope", "rope", "absolute"}) runs.push_back(run_scheme(settings, scheme));
  const Table table = comparison(runs);
  std::cout << "\nwrong bits after a read:\n" << table.text();

  const std::filesystem::path folder = settings.out;
  const std::string report_page = (folder / "report.html").string(), look_page = (folder / "look.html").string();
  write_file(report_page, report::html(page_of(settings, runs, table)));
  write_file((folder / "comparison.csv").string(), table.csv());
  runs[0].model->to(Device::cpu());
  look::Subject subject = look::task_subject(std::move(runs[0].model), settings.study.task(), training.seed, 0);
  subject.title = "CoPE on flip-flop, trained by quickstart";
  write_file(look_page, look::page_of(look::Inspection(subject)));
  std::cout << "\nopen " << look_page << " in a browser to see gates, positions, attention, and whence their gradients "
            << "came; " << report_page << " has the comparison\n";
  return 0;
}

const RegisterCommand registered{{"quickstart", Purpose::learn,
    "three schemes on flip-flop in a minute, and a page to look into a trained CoPE", run}};

}  // namespace
}  // namespace whence
