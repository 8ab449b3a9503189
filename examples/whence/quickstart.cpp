// quickstart: trains CoPE, RoPE and learned absolute positions on a flip-flop of 128 tokens, as `train` does, and keeps
// the three runs. report.html compares them with the paper; look.html looks into the trained CoPE model.
#include <algorithm>
#include <array>
#include <iostream>
#include <map>

#include "examples/whence/cli/command.h"
#include "examples/whence/cli/interrupt.h"
#include "examples/whence/cli/json_lines.h"
#include "examples/whence/cli/json_output.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/look/page.h"
#include "examples/whence/look/page_data.h"
#include "examples/whence/look/story.h"
#include "examples/whence/report/table.h"
#include "examples/whence/run/run_files.h"
#include "examples/whence/study/task_study.h"
#include "examples/whence/study/train_request.h"
#include "examples/whence/tasks/task.h"
#include "nn/io/files.h"
#include "tensor/error.h"

namespace whence {
namespace {

namespace fs = std::filesystem;

struct Settings {
  std::int64_t steps = 1500;
  std::uint64_t seed = 0;
  std::string out = "runs/quickstart", device = "auto";
  int threads = whence::threads();
  bool quiet = false, smoke = false, json = false;
};

constexpr const char* look_file = "look.html";
constexpr std::int64_t save_every = 100;  // so that the page can show the model while it learns

struct SchemeRun {
  std::string scheme;
  std::unique_ptr<TrainRequest> request;
  std::unique_ptr<Study> made;
  std::unique_ptr<Transformer> model;
  TrainingResult trained;
  std::vector<SetScore> scores;

  [[nodiscard]] const TaskStudy& study() const { return static_cast<const TaskStudy&>(*made); }
};

// The options of `train flip_flop`. 128 tokens: with 64, in some seeds every scheme remembers the bit.
std::vector<std::string> words_for(const Settings& settings, const std::string& scheme) {
  const fs::path folder = fs::path(settings.out) / scheme;
  std::vector<std::string> words{"--preset=mini", "--length=128", "--scheme=" + scheme,
      to_text("--steps=", settings.steps), to_text("--seed=", settings.seed), "--out=" + folder.string(),
      to_text("--save-every=", save_every), "--keep-checkpoints=0", "--device=" + settings.device,
      to_text("--threads=", settings.threads)};
  if (settings.smoke) words.insert(words.end(), {"--test-sequences=16", "--warm-up=4"});
  if (settings.quiet) words.emplace_back("--quiet");
  if (fs::exists(folder / "run.json")) {
    const auto done = parse_number<std::int64_t>(read_run_record(folder / "run.json").option("steps"));
    if (done > settings.steps)
      throw InputError("--steps: ", settings.steps, " given; ", one_line(folder.string()), " has been trained for ",
          *done, " since; at least that required, or another --out");
    words.emplace_back("--resume");
  }
  return words;
}

SchemeRun run_scheme(const Settings& settings, const std::string& scheme) {
  SchemeRun run;
  run.scheme = scheme;
  run.request = std::make_unique<TrainRequest>(
      std::make_unique<TaskStudyOptions>(tasks::find_task("flip_flop")), words_for(settings, scheme));
  const Placement placement = placement_of(run.request->machine());
  run.request->place(placement.device, nullptr);
  run.made = run.request->make_study();
  const TrainingOptions& training = run.request->settings().training;
  ensure_output_folder(training.folder);
  run.model = std::make_unique<Transformer>(run.request->model());
  TrainingJob job = job_of(run.study(), *run.model, training);
  job.record = text_of(run.request->record(*run.model, run.study()));
  run.trained = train(job, training);
  run.scores = run.study().set_scores(*run.model, training.seed, true);
  run.study().keep(run.scores, *run.model, run.trained, training);
  std::cout << scheme << ": " << run.model->parameter_count() << " parameters, " << run.trained.steps << " steps";
  if (run.trained.seconds > 0)
    std::cout << ", " << fixed(run.trained.seconds, 1) << " s (" << with_unit(run.trained.tokens_per_second)
              << " tokens/s)";
  std::cout << std::endl;
  return run;
}

// Test error of CoPE's Table 2 in distribution, and on sparse strings, in its order there.
const std::vector<std::array<std::string, 3>> printed{
    {"cope", "0.03 (0.06)", "4.9 (4.4)"}, {"rope", "1.8 (3.1)", "20.3 (2.9)"}, {"absolute", "6.8 (6.9)", "21.7 (7.9)"}};

Table comparison(const std::vector<SchemeRun>& runs) {
  Table table({"scheme", "in distribution %", "sparse %", "dense %", "paper: in distribution %", "paper: sparse %"});
  for (const SchemeRun& run : runs) {
    std::vector<std::string> cells{run.scheme};
    for (const SetScore& score : run.scores) cells.push_back(fixed(score.model.token_percent(), 2));
    const auto paper = std::ranges::find(printed, run.scheme, [](const auto& each) { return each[0]; });
    cells.insert(cells.end(), paper->begin() + 1, paper->end());
    table.row(cells);
  }
  std::vector<std::string> guess{"best guess without memory"};
  for (const SetScore& score : runs[0].scores) guess.push_back(fixed(best_guess(runs[0].study().task(), score), 1));
  guess.insert(guess.end(), {"-", "-"});
  return table.row(guess);
}

// Sorts the schemes by their errors on the sparse set, fewest first.
std::vector<std::string> order_of(const std::vector<SchemeRun>& runs) {
  std::vector<std::pair<double, std::string>> order;
  for (const SchemeRun& run : runs) order.emplace_back(run.scores[1].model.token_percent(), run.scheme);
  std::ranges::sort(order);
  std::vector<std::string> names;
  for (const auto& each : order) names.push_back(each.second);
  return names;
}

// Says the findings in three sentences.
std::string sentences_of(const std::vector<SchemeRun>& runs) {
  const std::vector<std::string> here = order_of(runs), there{printed[0][0], printed[1][0], printed[2][0]};
  const auto wrong = [&](const std::string& scheme) {
    const auto run = std::ranges::find(runs, scheme, &SchemeRun::scheme);
    return to_text(scheme, " ", fixed(run->scores[1].model.token_percent(), 2), " %");
  };
  return to_text(
      "A read asks for the bit that was written last, and on sparse strings the write is further back than "
      "in most of training: ",
      wrong(here[0]), ", ", wrong(here[1]), " and ", wrong(here[2]),
      " of the answers are wrong there. CoPE can let some tokens count and others not; rope and absolute count every "
      "token. ",
      here == there ? "The order of the three is the paper's"
                    : to_text("The paper has another order (", there[0], ", ", there[1], ", ", there[2], ")"),
      ", but this is one seed, and one seed cannot separate two schemes that are within a few percent of "
      "each other.");
}

// The losses of a training, including one that several processes shared.
report::Curve curve_of(const SchemeRun& run) {
  report::Curve curve{.name = run.scheme, .x = {}, .y = {}};
  const std::string log = (run.request->settings().training.folder / "metrics.jsonl").string();
  for_each_json_line(read_file(log), log, [&](const Json& line) {
    curve.x.push_back(line.number("step"));
    curve.y.push_back(line.number("loss"));
  });
  return curve;
}

report::Plot losses_of(const std::vector<SchemeRun>& runs) {
  report::Plot plot{.title = "Training loss at reads",
      .x_label = "step",
      .y_label = "cross-entropy, nats",
      .curves = {},
      .log_y = true};
  for (const SchemeRun& run : runs) plot.curves.push_back(curve_of(run));
  return plot;
}

report::Page page_of(const std::vector<SchemeRun>& runs, const Table& table) {
  const TransformerOptions& model = runs[0].model->options();
  const TrainingOptions& training = runs[0].request->settings().training;
  report::Page page;
  page.title = "Flip-flop: which positions can remember one bit?";
  page.introduction = to_text(
      "A flip-flop string is pairs of an instruction and a bit: w writes the bit, i says to ignore it, r asks for the "
      "bit written last. The model is tested on strings like those it was trained on (80 % ignores), on sparse ones "
      "(98 %), where the last write is further back than in training, and on dense ones (10 %), where many writes are "
      "close together and only the last counts. Sparse strings show whether a model looks far enough, dense ones "
      "whether it tells the last write from those before it.\n\n",
      sentences_of(runs), "\n\nThis run: strings of ", model.length, " tokens, dim ", model.dim, ", ", model.layers,
      " layers, ", model.heads, " heads, ", training.steps, " steps of ", runs[0].study().run_sizes().batch,
      " strings, seed ", training.seed,
      ". The paper: strings of 512, dim 256, 4 layers, 4 heads, 10 000 steps, mean (s.d.) of three seeds.");
  page.links = {{look_file,
      "looks into the trained CoPE model: its gates, positions, attention, and where their gradients come from."}};
  page.tables.push_back(
      {.title = "Wrong bits after a read, in percent", .note = "Lower is better; 50 is a coin.", .table = table});
  page.plots.push_back(losses_of(runs));
  page.footnotes = {
      "Contextual Position Encoding: Golovneva et al. 2024, arXiv:2405.18719. Flip-flop: Liu et al. 2023, "
      "arXiv:2306.00946.",
      "Made by whence " WHENCE_VERSION "."};
  return page;
}

// Returns the checkpoint after the hundred steps in which the loss fell the most: there the task was learned.
std::int64_t break_of(const report::Curve& losses) {
  std::map<std::int64_t, std::pair<double, int>> parts;  // sum and count, keyed by the last step of each part
  for (std::size_t k = 0; k < losses.x.size(); ++k) {
    auto& [sum, count] = parts[(static_cast<std::int64_t>(losses.x[k]) + save_every - 1) / save_every * save_every];
    sum += losses.y[k], ++count;
  }
  std::int64_t found = save_every;
  double before = 0, most = 0;
  for (const auto& [step, part] : parts) {
    const double mean = part.first / part.second;
    if (before - mean > most) most = before - mean, found = step;
    before = mean;
  }
  return found;
}

constexpr index_t tokens_on_page = 64;  // of one string: a browser cannot show all of it quickly

// Returns the string with the most reads among the first twenty.
std::int64_t sample_of(const SchemeRun& run, std::uint64_t seed) {
  const tasks::Batch batch = run.study().task().test_batch(0, seed, 0, 20);
  std::vector<std::ptrdiff_t> asked;
  for (index_t row = 0; row < batch.sequences; ++row) {
    const std::vector<std::int64_t> targets = batch.row(row).targets;
    asked.push_back(
        std::count_if(targets.begin(), targets.begin() + tokens_on_page, [](auto each) { return each >= 0; }));
  }
  return std::ranges::max_element(asked) - asked.begin();
}

struct LookPage {
  std::string html;
  std::string shutting;  // the command that shuts the head that matters most
};

// Writes the page: the beginning of one string, compared with the same model before the first step, at the break, and at the end.
LookPage look_page_of(const SchemeRun& run) {
  const fs::path folder = run.request->settings().training.folder;
  look::SubjectOptions options{.run = folder.string(),
      .sample = sample_of(run, run.request->settings().training.seed),
      .length = tokens_on_page};
  look::Subject subject = look::subject_of(options);
  subject.title = "CoPE on flip-flop, trained by quickstart";
  look::Besides besides;
  const auto add = [&](std::int64_t step, const char* what) {
    options.step = step, options.untrained = step == 0;
    look::Subject then = look::subject_of(options);
    then.label += what;
    besides.beside.push_back(look::json_of_pass(look::Inspection(then, false), besides.numbers));
  };
  const std::int64_t broke = break_of(curve_of(run));
  add(0, ", before training");
  if (look::checkpoints_of(options.run).contains(broke) && broke < run.trained.steps)
    add(broke, ", where the loss fell the most");
  add(run.trained.steps, ", the end");
  const look::Inspection inspection(subject);
  const std::vector<look::HeadEffect> effects = look::effects_of_heads(inspection);
  const std::string& shut = look::strongest(effects).outcome.text;
  return {look::page_of(inspection, std::move(besides)), to_text(subject.command, " --edit \"", shut, "\"")};
}

int run(CommandLine& line) {
  Settings settings;
  line.integer("steps", &settings.steps, Range<std::int64_t>{1, 1000000}, {"optimiser steps per scheme"})
      .integer("seed", &settings.seed, Range<std::uint64_t>{}, {"seed of parameters and data"})
      .integer("threads", &settings.threads, Range<int>{1, 1024}, {"CPU threads; results do not depend on them"})
      .text("out", &settings.out, {"folder of the three runs, report.html, look.html and comparison.csv"})
      .flag("quiet", &settings.quiet, {"no progress"})
      .flag("smoke", &settings.smoke, {"a few steps only, to see that everything runs; its folder ends in -smoke"});
  declare_json(line, &settings.json);
  declare_device(line, &settings.device);
  line.example("whence quickstart", "about a minute of training; a stopped run goes on");
  if (line.shows_page()) return 0;
  line.refuse_unless("steps", !settings.smoke, "beside --smoke");
  if (settings.smoke) settings.steps = 4, settings.out += "-smoke";
  const JsonOutput json(settings.json);
  std::cout << choose_device(settings.device).sentence << std::endl;
  install_interrupt_handler();

  std::vector<SchemeRun> runs;
  for (const char* scheme : {"cope", "rope", "absolute"}) runs.push_back(run_scheme(settings, scheme));
  const Table table = comparison(runs);
  std::cout << "\nwrong bits after a read:\n" << table.text() << '\n' << sentences_of(runs) << '\n';

  const fs::path folder = settings.out;
  const std::string report_page = (folder / "report.html").string(), look_page = (folder / look_file).string();
  write_file(report_page, report::html(page_of(runs, table)));
  write_file((folder / "comparison.csv").string(), table.csv());
  const LookPage looked = look_page_of(runs[0]);
  write_file(look_page, looked.html);
  const std::string rope = one_line((folder / "rope").string());
  std::cout << "\nopen " << one_line(look_page)
            << " in a browser: gates, positions, attention, and where their gradients came from; "
            << one_line(report_page) << " has the comparison\nthen:\n"
            << "  " << looked.shutting << "   what if the head that matters most counted nothing?\n"
            << "  whence train --resume " << rope << " --steps " << 2 * settings.steps
            << "   does training longer help?\n"
            << "  examples/experiments/lab.py flip_flop --schemes cope,rope,absolute --set length=128 --seeds 5   do "
               "other seeds agree?\n";
  json.lines(table.json());
  return 0;
}

const RegisterCommand registered{{"quickstart", Purpose::learn,
    "three schemes on flip-flop in a minute, and a page to look into a trained CoPE", run}};

}  // namespace
}  // namespace whence
