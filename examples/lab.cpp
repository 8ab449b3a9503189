// lab: trains a grid of schemes and seeds on one task or several and says what came out: means and spreads beside the
// paper's figures and guesses that need no model, whether two schemes differ, and
// learning curves, as a table, CSV, SVG and one page.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "examples/app/command.h"
#include "examples/app/command_line.h"
#include "examples/app/interrupt.h"
#include "examples/app/placement.h"
#include "examples/app/progress.h"
#include "examples/app/results.h"
#include "examples/app/run_files.h"
#include "examples/app/scheme_names.h"
#include "examples/app/text.h"
#include "examples/lab/grid.h"
#include "examples/lab/statistics.h"
#include "examples/report/plot.h"
#include "examples/report/report.h"
#include "examples/tasks/chomsky.h"
#include "examples/tasks/task_training.h"
#include "examples/train.h"
#include "nn/io/files.h"
#include "tensor/device_choice.h"
#include "tensor/error.h"
#include "tensor/parallel.h"

namespace whence {
namespace {

struct Options {
  std::vector<std::string> tasks;
  std::string schemes = "cope,rope,absolute", preset = "mini", set, out, device = "auto";
  int seeds = 3, jobs = threads();
  bool quiet = false;
};

// At commas outside parentheses: "cope(p_max=8, gates=values),rope".
std::vector<std::string> split_schemes(const std::string& text) {
  std::vector<std::string> parts{""};
  int depth = 0;
  for (const char c : text) {
    depth += (c == '(') - (c == ')');
    if (c == ',' && depth == 0)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  for (std::string& part : parts) part = canonical_text(parse_schemes(part));
  return parts;
}

// "steps=300 dim=32" as "--steps" "300" "--dim" "32".
std::vector<std::string> options_of(const CommandLine& line, const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> options;
  for (std::string word; stream >> word;) {
    const std::size_t equals = word.find('=');
    if (equals == 0 || equals == std::string::npos || word[0] == '-')
      line.refuse("set", "name=value for every option of train", "as in --set \"steps=300 dim=32\"");
    options.push_back("--" + word.substr(0, equals)), options.push_back(word.substr(equals + 1));
    for (const char* own : {"--scheme", "--seed", "--out", "--threads", "--device", "--resume", "--from"})
      if (options[options.size() - 2] == own)
        line.refuse("set", to_text("options other than ", own + 2), "lab chooses that one");
  }
  return options;
}

// The value of an option in a list of arguments, the last one counting.
std::int64_t steps_in(const std::vector<std::string>& arguments, std::int64_t otherwise) {
  for (std::size_t k = 0; k + 1 < arguments.size(); ++k)
    if (arguments[k] == "--steps") otherwise = std::stoll(arguments[k + 1]);
  return otherwise;
}

// Options given twice: what the user typed stands for the preset's.
std::vector<std::string> with_typed(const std::vector<std::string>& preset, const std::vector<std::string>& typed) {
  std::vector<std::string> result;
  for (std::size_t k = 0; k + 1 < preset.size(); k += 2) {
    if (std::count(typed.begin(), typed.end(), preset[k])) continue;
    result.push_back(preset[k]), result.push_back(preset[k + 1]);
  }
  result.insert(result.end(), typed.begin(), typed.end());
  return result;
}

// The task's headline numbers of all cells, by scheme and test set.
class Outcome {
 public:
  Outcome(const tasks::Task& task, const std::vector<std::string>& schemes, const std::vector<GridCell>& cells)
      : task_(task), schemes_(schemes), cells_(cells), of_tokens_(task.metric().starts_with("token")) {
    for (const auto& [name, score] : cells[0].scores) sets_.push_back(name);
  }

  // Of one scheme, one number per seed; all test sets averaged where `set` is none of them.
  std::vector<double> values(const std::string& scheme, std::size_t set) const {
    std::vector<double> found;
    for (const GridCell& cell : cells_) {
      if (cell.scheme != scheme) continue;
      double sum = 0;
      for (std::size_t k = 0; k < cell.scores.size(); ++k) {
        if (set < sets_.size() && k != set) continue;
        const GridCell::Score& score = cell.scores[k].second;
        sum += (of_tokens_ ? score.token_error : score.sequence_error) /
               (set < sets_.size() ? 1.0 : static_cast<double>(sets_.size()));
      }
      found.push_back(sum);
    }
    return found;
  }
  double best_guess(std::size_t set) const {
    double average = 0;
    for (std::size_t k = 0; k < sets_.size(); ++k) {
      if (set < sets_.size() && k != set) continue;
      double best = 100;
      for (const auto& [name, value] : cells_[0].scores[k].second.guesses) best = std::min(best, value);
      average += best / (set < sets_.size() ? 1.0 : static_cast<double>(sets_.size()));
    }
    return average;
  }
  // Test sets worth a row: all of them, or their average alone where they are many, such as lengths.
  std::vector<std::size_t> rows() const {
    if (sets_.size() > 4) return {sets_.size()};
    std::vector<std::size_t> all(sets_.size());
    for (std::size_t k = 0; k < all.size(); ++k) all[k] = k;
    return all;
  }
  std::string name(std::size_t set) const {
    return set < sets_.size() ? sets_[set] : to_text("average of ", sets_.size(), " sets");
  }
  std::optional<tasks::PaperFigure> paper(const std::string& scheme, std::size_t set) const {
    const auto figures = set < sets_.size() ? task_.paper_figures(set) : task_.paper_averages();
    const auto* found = tasks::figure_of(figures, scheme, task_.model().scheme);
    return found ? std::optional(*found) : std::nullopt;
  }
  // Of training, the mean over seeds.
  double seconds(const std::string& scheme) const {
    std::vector<double> found;
    for (const GridCell& cell : cells_)
      if (cell.scheme == scheme) found.push_back(cell.seconds);
    return summary(found).mean;
  }
  const std::vector<std::string>& schemes() const { return schemes_; }

 private:
  const tasks::Task& task_;
  const std::vector<std::string>& schemes_;
  const std::vector<GridCell>& cells_;
  bool of_tokens_;
  std::vector<std::string> sets_;
};

std::string shown(double number, int digits) { return std::isnan(number) ? "-" : fixed(number, digits); }

std::string mean_and_deviation(const Summary& found) {
  return std::isnan(found.deviation) ? shown(found.mean, 2)
                                     : to_text(fixed(found.mean, 2), " (", fixed(found.deviation, 2), ")");
}

std::string cell(double number) { return std::isnan(number) ? "" : number_text(number); }

// Once for people, and once with one number in each cell.
void add_scores(Table& table, Table& numbers, const std::string& task, const Outcome& outcome) {
  for (const std::size_t set : outcome.rows()) {
    for (const std::string& scheme : outcome.schemes()) {
      const std::vector<double> values = outcome.values(scheme, set);
      const Summary found = summary(values);
      const auto [least, most] = std::minmax_element(values.begin(), values.end());
      const auto paper = outcome.paper(scheme, set);
      const double guess = outcome.best_guess(set), seconds = outcome.seconds(scheme), none = std::nan("");
      table.row({task, outcome.name(set), scheme, mean_and_deviation(found), shown(*least, 2), shown(*most, 2),
          to_text(values.size()), tasks::figure_text(paper ? &*paper : nullptr), fixed(guess, 1), fixed(seconds, 1)});
      numbers.row({task, outcome.name(set), scheme, cell(found.mean), cell(found.deviation), cell(*least), cell(*most),
          to_text(values.size()), cell(paper ? paper->mean : none), cell(paper ? paper->deviation : none), cell(guess),
          cell(seconds)});
    }
  }
}

void add_runs(Table& runs, const std::string& task, const std::vector<GridCell>& cells) {
  for (const GridCell& run : cells) {
    for (const auto& [set, score] : run.scores) {
      runs.row({task, set, run.scheme, std::to_string(run.seed), cell(score.token_error), cell(score.sequence_error),
          cell(run.seconds)});
    }
  }
}

void add_differences(Table& table, const std::string& task, const Outcome& outcome) {
  const auto& schemes = outcome.schemes();
  for (const std::size_t set : outcome.rows()) {
    for (std::size_t a = 0; a < schemes.size(); ++a) {
      for (std::size_t b = a + 1; b < schemes.size(); ++b) {
        const std::vector<double> x = outcome.values(schemes[a], set), y = outcome.values(schemes[b], set);
        const double p = welch_p_value(x, y);
        table.row({task, outcome.name(set), schemes[a] + ", " + schemes[b], shown(summary(x).mean - summary(y).mean, 2),
            shown(p, 4)});
      }
    }
  }
}

report::Plot curves_of(const std::string& task, const std::vector<GridCell>& cells) {
  report::Plot plot{.title = to_text("Training loss, ", task),
      .x_label = "step",
      .y_label = "cross-entropy, nats",
      .curves = {},
      .log_y = true};
  for (const GridCell& cell : cells) {
    if (cell.seed != 0) continue;
    report::Curve curve{.name = cell.scheme, .x = {}, .y = {}};
    for (const LossPoint& point : cell.curve) {
      curve.x.push_back(static_cast<double>(point.step));
      curve.y.push_back(point.loss);
    }
    plot.curves.push_back(std::move(curve));
  }
  return plot;
}

// What a laboratory has to show, task by task.
struct Findings {
  std::string introduction;
  Table scores{
      {"task", "test set", "scheme", "mean (s.d.) %", "least", "most", "seeds", "paper %", "best guess %", "train s"}};
  Table numbers{{"task", "test_set", "scheme", "mean", "sd", "least", "most", "seeds", "paper_mean", "paper_sd",
      "best_guess", "train_seconds"}};
  Table runs{{"task", "test_set", "scheme", "seed", "token_error_percent", "sequence_error_percent", "train_seconds"}};
  Table differences{{"task", "test set", "schemes", "difference of means", "p (Welch)"}};
  std::vector<std::pair<std::string, report::Plot>> plots;  // by task
};

void write_files(const std::filesystem::path& folder, const std::string& title, const Findings& found) {
  report::Page page;
  page.title = title;
  page.introduction = found.introduction;
  page.tables.push_back(
      {"What came out", "The paper's figures are for its own sizes of model and task. Guesses need no model.",
          found.scores.header(), found.scores.rows()});
  page.tables.push_back(
      {"Do schemes differ?", "Welch's t-test over seeds, two-sided; few seeds can show large differences only.",
          found.differences.header(), found.differences.rows()});
  for (const auto& [task, plot] : found.plots) {
    page.plots.push_back(plot);
    write_file((folder / to_text("curves_", task, ".svg")).string(), report::svg_file(plot));
  }
  page.footnotes = {to_text("Made by whence ", WHENCE_VERSION, ".")};
  report::write(page, (folder / "report.html").string());
  write_file((folder / "scores.csv").string(), found.numbers.csv());
  write_file((folder / "runs.csv").string(), found.runs.csv());
  write_file((folder / "differences.csv").string(), found.differences.csv());
}

// "chomsky" names all fifteen tasks of the hierarchy.
std::vector<std::string> tasks_of(const std::vector<std::string>& names) {
  std::vector<std::string> found;
  for (const std::string& name : names) {
    if (name == "lm")
      throw InputError(
          "lm: text has no test sets; a task required; train lm --seed, and --beside for its plots, do it");
    if (name != "chomsky") {
      found.push_back(tasks::find_task(name).name);
      continue;
    }
    for (const auto& problem : tasks::chomsky_problems()) found.push_back(problem.name);
  }
  if (found.empty())
    throw InputError("no task given; the name of one required as the first word; whence tasks lists them");
  return found;
}

GridOptions grid_options(
    CommandLine& line, const Options& options, const std::string& name, const std::filesystem::path& folder) {
  GridOptions grid{.task = name,
      .schemes = split_schemes(options.schemes),
      .seeds = options.seeds,
      .train_options = {},
      .folder = folder};
  for (std::size_t k = 0; k < grid.schemes.size(); ++k)
    if (std::count(grid.schemes.begin(), grid.schemes.end(), grid.schemes[k]) > 1)
      line.refuse("schemes", to_text(grid.schemes[k], " once"), "each scheme is one row");
  const std::string preset = options.preset == "mini" ? tasks::find_task(name).mini : "";
  grid.train_options = with_typed(options_of(line, preset), options_of(line, options.set));
  std::vector<std::string> checked = grid.train_options;
  checked.emplace_back("--quiet");
  check_train_options(name, checked);
  grid.steps = steps_in(grid.train_options, tasks::make_task(name)->recipe().steps);
  return grid;
}

Machine machine_for(const std::vector<GridOptions>& grids, const Options& options) {
  int runs = 0;
  for (const GridOptions& grid : grids) runs += static_cast<int>(grid.schemes.size()) * grid.seeds;
  const int jobs = std::min(options.jobs, runs);
  return {.jobs = jobs,
      .threads = std::max(1, threads() / jobs),
      .device = options.device,
      .program = std::filesystem::read_symlink("/proc/self/exe"),
      .quiet = options.quiet};
}

void add_findings(Findings& found, const GridOptions& grid, const std::vector<GridCell>& cells) {
  const auto task = tasks::make_task(grid.task);  // with its own defaults: those that the paper's figures are for
  const Outcome outcome(*task, grid.schemes, cells);
  add_scores(found.scores, found.numbers, grid.task, outcome);
  add_runs(found.runs, grid.task, cells);
  add_differences(found.differences, grid.task, outcome);
  found.plots.emplace_back(grid.task, curves_of(grid.task, cells));
  double training = 0;
  for (const GridCell& cell : cells) training += cell.seconds;
  std::string arguments;
  for (const std::string& argument : grid.train_options) arguments += " " + argument;
  found.introduction += to_text(found.introduction.empty() ? "" : "\n", grid.task, ", ", task->metric(),
      ", lower is better. Every run: train ", grid.task, arguments, ". ", cells.size(), " runs, ", fixed(training, 0),
      " s of training in all.");
}

int run(int argc, char** argv) {
  Options options;
  std::vector<std::string> known{"chomsky"};
  for (const tasks::TaskInfo& info : tasks::registered_tasks()) known.push_back(info.name);
  CommandLine line("whence lab", "Trains a grid of schemes and seeds on a task, and says what differs.");
  line.names("TASK...", &options.tasks, "whence tasks lists them; chomsky: all fifteen of the hierarchy", known)
      .heading("Grid")
      .text("schemes", &options.schemes,
          {.help = "positional schemes, separated by commas; whence schemes lists them", .known = scheme_names()})
      .integer("seeds", &options.seeds, Range<int>{1, 1000}, {"of each scheme: 0, 1, ..."})
      .choice("preset", &options.preset, {"mini", "paper"}, {"mini: minutes on a laptop; paper: the papers' sizes"})
      .text("set", &options.set, {"options of train in place of the preset's, e.g. \"steps=300 dim=32\""});
  line.heading("Machine").integer("jobs", &options.jobs, Range<int>{1, 1024}, {"runs at the same time"});
  declare_device(line, &options.device);
  line.heading("Output")
      .text("out", &options.out, {"folder; runs/lab_TASK if left out. The same command goes on with what is there"})
      .flag("quiet", &options.quiet, {"no progress"});
  for (const std::string name : {"steps", "dim", "layers", "heads", "length", "batch", "lr", "test-sequences"})
    line.elsewhere(name, to_text("an option of train; write --set \"", name, "=...\""));
  line.elsewhere("scheme", "write --schemes").elsewhere("seed", "write --seeds, how many");
  line.example("whence lab flip_flop --schemes cope,rope,absolute --seeds 3", "nine small models, a few minutes");
  line.example(
      "whence lab flip_flop --schemes 'cope,cope(p_max=16),cope + rope' --set steps=300", "other schemes, shorter");
  if (line.shows_page(argc, argv)) return 0;
  const std::vector<std::string> names = tasks_of(options.tasks);
  const std::filesystem::path folder = options.out.empty() ? to_text("runs/lab_", options.tasks[0]) : options.out;
  std::vector<GridOptions> grids;  // all of them are read before anything runs
  for (const std::string& name : names)
    grids.push_back(grid_options(line, options, name, names.size() > 1 ? folder / name : folder));
  const DeviceChoice choice = choose_device(options.device);  // refused before anything runs
  install_interrupt_handler();
  const double started = steady_seconds();
  const auto cells = run_grids(grids, machine_for(grids, options));
  Findings found;
  for (std::size_t k = 0; k < grids.size(); ++k) add_findings(found, grids[k], cells[k]);
  found.introduction += to_text("\nThis call took ", duration_text(steady_seconds() - started), ", with ", options.jobs,
      " runs at a time; ", choice.sentence, ".");
  std::cout << found.introduction << '\n' << found.scores.text() << '\n' << found.differences.text();
  write_files(folder, to_text("whence: ", options.tasks[0]), found);
  std::cout << "written: " << folder.string()
            << "/{report.html, curves_*.svg, scores.csv, runs.csv, differences.csv, one folder per run}\n";
  return 0;
}

const RegisterCommand registered{
    {"lab", Purpose::train, "a grid of schemes and seeds on a task: means, spreads, tests, curves, one page", run}};

}  // namespace
}  // namespace whence
