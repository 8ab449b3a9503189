// lab: trains a grid of schemes, options and seeds on one task or several, or on text, and says what came out: means
// and spreads beside the paper's figures and guesses that need no model, what makes a difference, and learning curves,
// as tables, CSV, JSON, SVG and one page.
#include <algorithm>
#include <iostream>
#include <map>

#include "examples/whence/cli/command.h"
#include "examples/whence/cli/interrupt.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/progress.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/lab/page.h"
#include "examples/whence/lab/request.h"
#include "examples/whence/lab/run.h"
#include "examples/whence/machine/device_choice.h"
#include "examples/whence/machine/placement.h"
#include "examples/whence/run/run_files.h"
#include "examples/whence/study/train_request.h"
#include "nn/io/files.h"
#include "tensor/error.h"
#include "tensor/parallel.h"
#include "tensor/suggest.h"

namespace whence {
namespace {

struct Options {
  GridOptions grid;
  std::string measure = "auto", rows, columns, out, device = "auto", slurm, sbatch;
  int jobs = threads();
  bool quiet = false, plan = false, collect = false;
};

const std::map<std::string, std::string> measures{{"auto", ""}, {"token-error", "token error %"},
    {"sequence-error", "sequence error %"}, {"perplexity", "perplexity"}, {"bits-per-byte", "bits per byte"}};

// The two axes of the tables that stand first; none where the long table says it all.
std::optional<std::pair<std::string, std::string>> crossing(
    const CommandLine& line, const Options& options, const std::vector<Axis>& axes, bool text) {
  std::vector<std::string> known{"scheme", "seed", "test-set"};
  for (const Axis& axis : axes) known.push_back(axis.name);
  for (const auto& [option, value] : {std::pair("rows", options.rows), {"columns", options.columns}})
    if (!value.empty() && std::ranges::count(known, value) == 0)
      line.refuse(option, to_text("one of ", joined(known)), "other axes are named by --vary");
  std::string rows = options.rows, columns = options.columns;
  if (rows.empty() && columns.empty() && axes.empty() && !text) return std::nullopt;
  const std::string second = axes.empty() ? "test-set" : axes[0].name;
  if (rows.empty()) rows = columns == "scheme" ? second : "scheme";
  if (columns.empty()) columns = rows == "scheme" ? second : "scheme";
  if (rows == columns) line.refuse("columns", to_text("another axis than ", rows), "rows are that already");
  return std::pair(rows, columns);
}

std::string introduction_of(const Outcome& outcome, const GridRequest& request) {
  const Grid& grid = outcome.grid();
  std::size_t failed = 0, missing = 0;
  for (const GridCell& cell : grid.cells) missing += cell.missing, failed += !cell.missing && !cell.failure.empty();
  Settings fixed_settings = request.settings;
  std::erase_if(fixed_settings, [&](const auto& setting) {
    return std::ranges::count(grid.axes, setting.first) > 0 || (request.same_tokens && setting.first == "batch");
  });
  std::string arguments, axes;
  for (const std::string& argument : arguments_of(fixed_settings)) arguments += " " + argument;
  for (const Axis& axis : request.axes) {
    axes += to_text(axes.empty() ? " with " : "; ", axis.name);
    for (const std::string& value : axis.values) axes += to_text(&value == &axis.values[0] ? " " : ", ", value);
  }
  if (request.same_tokens) axes += "; the batch such that all see the same tokens";
  return to_text(grid.task, ", ", outcome.measure(), ", lower is better. Every run: train ", grid.task, arguments, axes,
      ". ", grid.cells.size(), " runs", failed > 0 ? to_text(", ", failed, " failed") : "",
      missing > 0 ? to_text(", ", missing, " missing") : "", ".");
}

void declare_options(CommandLine& line, Options& options) {
  std::vector<std::string> names;
  for (const auto& [name, measure] : measures) names.push_back(name);
  declare_grid_options(line, options.grid);
  line.heading("Machine").integer("jobs", &options.jobs, Range<int>{1, 1024}, {"runs at the same time"});
  declare_device(line, &options.device);
  line.heading("Output")
      .choice("measure", &options.measure, names, {"what is compared; auto: the paper's"})
      .text("rows", &options.rows, {"axis of the tables' rows: one of --vary, scheme, seed or test-set"})
      .text("columns", &options.columns, {"axis of their columns"})
      .text("out", &options.out, {"folder; runs/lab_TASK if left out. The same command goes on with what is there"})
      .flag("quiet", &options.quiet, {"no progress"});
  line.heading("Other engines")
      .flag("plan", &options.plan,
          {"print a line of `whence train` for each run that is not done, for a shell, GNU parallel or any scheduler"})
      .text("slurm", &options.slurm, {"write these lines as an array script of SLURM to this file; -: print it"})
      .text("sbatch", &options.sbatch, {"options of sbatch for that script: \"partition=gpu,time=2:00:00\""})
      .flag("collect", &options.collect, {"make the tables of what is done, run nothing, and say what is missing"});
  for (const std::string name : {"steps", "dim", "layers", "heads", "length", "batch", "lr", "test-sequences", "data"})
    line.elsewhere(name, to_text("an option of train; write --set \"", name, "=...\""));
  line.elsewhere("scheme", "write --schemes").elsewhere("seed", "write --seeds, how many");
  line.example("whence lab flip_flop --schemes cope,rope,absolute --seeds 3", "nine small models, a few minutes");
  line.example(
      "whence lab flip_flop --schemes 'cope,cope(p_max=16),cope + rope' --set steps=300", "other schemes, shorter");
  line.example("whence lab counting --vary variables=1,3,5", "three tasks, side by side");
  line.example(
      "whence lab flip_flop --schemes cope,rope --seeds 12 --plan --jobs 2 | parallel -j2", "by another engine");
  line.example("whence lab lm --schemes 'cdape(kerple)' --vary cdape.kernel=1,3,5,7 --set data=austen.txt",
      "an option of a scheme, on text");
}

void check(const CommandLine& line, const Options& options, bool text) {
  const int asked = (options.plan ? 1 : 0) + (options.collect ? 1 : 0) + (options.slurm.empty() ? 0 : 1);
  if (asked > 1) throw InputError("--plan, --slurm, --collect: several given; one at most required");
  line.refuse_unless("sbatch", !options.slurm.empty(), "--slurm");
  const bool of_text = options.measure == "perplexity" || options.measure == "bits-per-byte";
  line.refuse_unless("measure", options.measure == "auto" || of_text == text,
      text ? "a task, which has errors" : "lm, which has perplexities");
}

// The runs that are not done as lines, or as a script of them.
void print_for_other_engines(const CommandLine& line, const Options& options, std::vector<Grid>& grids) {
  Machine machine{.device = options.device};
  if (line.given("jobs")) machine.threads = std::max(1, threads() / options.jobs);
  const std::vector<std::string> lines = planned_lines(grids, machine);
  std::string text;
  if (options.plan)
    for (const std::string& each : lines) text += each + '\n';
  else if (!lines.empty())
    text = slurm_script(lines, options.sbatch);
  if (options.plan || options.slurm == "-") {
    std::cout << text;
    return;
  }
  if (!lines.empty()) write_file(options.slurm, text);
  std::cout << (lines.empty() ? "every run is done: " : "written: ") << one_line(options.slurm) << ", " << lines.size()
            << " runs; when they are done, or before: the same command with --collect\n";
}

Findings findings_of(const std::vector<Grid>& grids, const std::vector<GridRequest>& requests, const Options& options,
    const std::optional<std::pair<std::string, std::string>>& cross) {
  Findings found(grids[0].axes, grids[0].task == "lm");
  for (std::size_t k = 0; k < grids.size(); ++k) {
    const Outcome outcome(grids[k], measures.at(options.measure));
    found.introduction += (k > 0 ? "\n" : "") + introduction_of(outcome, requests[k]);
    found.tables.add(outcome);
    if (cross) std::ranges::move(cross_tables(outcome, cross->first, cross->second), std::back_inserter(found.crossed));
    for (auto* figures : {&figures_over_axes, &learning_curves})
      std::ranges::move(figures(outcome), std::back_inserter(found.figures));
  }
  return found;
}

int run(CommandLine& line) {
  Options options;
  declare_options(line, options);
  if (line.shows_page()) return 0;
  const std::string first = options.grid.tasks.empty() ? "" : options.grid.tasks[0];
  const std::filesystem::path folder = options.out.empty() ? "runs/lab_" + first : options.out;
  const std::vector<GridRequest> requests = requests_of(line, options.grid, folder);
  const bool text = requests[0].task == "lm";
  check(line, options, text);
  const auto cross = crossing(line, options, requests[0].axes, text);
  std::vector<Grid> grids;  // all of them are checked before anything runs
  for (const GridRequest& request : requests) grids.push_back(plan_grid(request, checked_train_options));
  if (options.plan || !options.slurm.empty()) return print_for_other_engines(line, options, grids), 0;
  const DeviceChoice choice = choose_device(options.device);
  install_interrupt_handler();
  const double started = steady_seconds();
  if (options.collect)
    collect_grids(grids);
  else
    run_grids(grids, machine_for(grids, options.jobs, options.device, options.quiet));
  const Findings found = findings_of(grids, requests, options, cross);
  std::cout << text_of(found) << "This call took " << time_text(steady_seconds() - started) << ", with " << options.jobs
            << " runs at a time; " << choice.sentence << ".\n";
  write_findings(folder, to_text("whence: ", options.grid.tasks[0]), found, grids);
  std::cout
      << "written: " << folder.string()
      << "/{report.html, *.svg, scores.csv, runs.csv, differences.csv, curves.csv, lab.json, one folder per run}\n";
  return say_failures(grids, "lab");
}

const RegisterCommand registered{
    {"lab", Purpose::train, "a grid of schemes, options and seeds: means, spreads, tests, curves, one page", run}};

}  // namespace
}  // namespace whence
