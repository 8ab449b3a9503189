// lab: trains a grid of schemes, options and seeds on one task or several, or on text, and says what came out: means
// and spreads beside the paper's figures and guesses that need no model, what makes a difference, and learning curves,
// as tables, CSV, JSON, SVG and one page.
#include <algorithm>
#include <iostream>
#include <map>

#include "examples/whence/cli/command.h"
#include "examples/whence/cli/command_line.h"
#include "examples/whence/cli/interrupt.h"
#include "examples/whence/cli/progress.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/lab/page.h"
#include "examples/whence/lab/request.h"
#include "examples/whence/lab/slurm.h"
#include "examples/whence/machine/device_choice.h"
#include "examples/whence/machine/placement.h"
#include "examples/whence/run/run_files.h"
#include "examples/whence/train.h"
#include "tensor/error.h"
#include "tensor/parallel.h"
#include "tensor/suggest.h"

namespace whence {
namespace {

struct Options {
  GridOptions grid;
  std::string measure = "auto", rows, columns, out, device = "auto";
  int jobs = threads();
  bool quiet = false, accept_damaged = false;
  WorkOptions work;
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
  double training = 0;
  std::size_t failed = 0, damaged = 0, missing = 0;
  for (const GridCell& cell : grid.cells) {
    training += cell.seconds, damaged += cell.damaged, missing += cell.missing;
    failed += !cell.damaged && !cell.missing && !cell.failure.empty();
  }
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
      ". ", grid.cells.size(), " runs, ", failed > 0 ? to_text(failed, " failed, ") : "",
      damaged > 0 ? to_text(damaged, " damaged, not counted, ") : "", missing > 0 ? to_text(missing, " missing, ") : "",
      fixed(training, 0), " s of training in all.");
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
  declare_damaged(line, &options.accept_damaged);
  declare_work(line, options.work);
  for (const std::string name : {"steps", "dim", "layers", "heads", "length", "batch", "lr", "test-sequences", "data"})
    line.elsewhere(name, to_text("an option of train; write --set \"", name, "=...\""));
  line.elsewhere("scheme", "write --schemes").elsewhere("seed", "write --seeds, how many");
  line.example("whence lab flip_flop --schemes cope,rope,absolute --seeds 3", "nine small models, a few minutes");
  line.example(
      "whence lab flip_flop --schemes 'cope,cope(p_max=16),cope + rope' --set steps=300", "other schemes, shorter");
  line.example("whence lab counting --vary variables=1,3,5", "three tasks, side by side");
  line.example(
      "whence lab flip_flop --schemes cope,rope --seeds 12 --collect", "the tables of what workers have done so far");
  line.example("whence lab lm --schemes 'cdape(kerple)' --vary cdape.kernel=1,3,5,7 --set data=austen.txt",
      "an option of a scheme, on text");
}

// Everything that runs nothing here, or one cell.
std::optional<int> work_without_tables(std::vector<Grid>& grids, const Options& options, const Machine& machine,
    const std::filesystem::path& folder, int argc, char** argv) {
  if (!options.work.slurm.empty()) {
    write_slurm_job(
        options.work.slurm, grids, folder, std::vector<std::string>(argv, argv + argc), options.work.submit);
    return 0;
  }
  if (options.work.plan) {
    for (const std::string& line : planned_commands(grids, machine, "whence")) std::cout << line << '\n';
    return 0;
  }
  if (!machine.only) return std::nullopt;
  install_interrupt_handler();
  run_grids(grids, machine);
  return say_failures(grids, "lab");
}

void check_work(const CommandLine& line, const WorkOptions& work, const std::vector<Grid>& grids) {
  std::size_t cells = 0;
  for (const Grid& grid : grids) cells += grid.cells.size();
  const int wanted =
      (work.plan ? 1 : 0) + (work.collect ? 1 : 0) + (work.slurm.empty() ? 0 : 1) + (work.cell >= 0 ? 1 : 0);
  if (wanted > 1) throw InputError("--plan, --collect, --slurm, --cell: several given; one at most required");
  line.refuse_unless("submit", !work.slurm.empty(), "--slurm");
  if (work.cell >= static_cast<std::int64_t>(cells))
    line.refuse("cell", to_text("0 to ", cells - 1), "the grid has no more cells");
}

int run(int argc, char** argv) {
  Options options;
  CommandLine line("whence lab", "Trains a grid of schemes, options and seeds on a task, and says what differs.");
  declare_options(line, options);
  if (line.shows_page(argc, argv)) return 0;
  const std::vector<std::string> names = tasks_of(options.grid.tasks);
  const bool text = names[0] == "lm";
  const std::vector<Axis> axes = parse_axes(options.grid.vary);
  const auto cross = crossing(line, options, axes, text);
  const bool of_text = options.measure == "perplexity" || options.measure == "bits-per-byte";
  line.refuse_unless("measure", options.measure == "auto" || of_text == text,
      text ? "a task, which has errors" : "lm, which has perplexities");
  const std::filesystem::path folder = options.out.empty() ? to_text("runs/lab_", options.grid.tasks[0]) : options.out;
  // all of them are read before anything runs
  PlannedGrids planned = plan_grids(line, options.grid, {}, folder, checked_train_options);
  std::vector<Grid>& grids = planned.grids;
  check_work(line, options.work, grids);
  Machine machine = machine_for(grids, options.jobs, options.device, options.quiet, options.accept_damaged);
  machine.dead_after = options.work.dead_after;
  if (options.work.cell >= 0) machine.only = options.work.cell;
  if (const auto code = work_without_tables(grids, options, machine, folder, argc, argv)) return *code;
  const DeviceChoice choice = choose_device(options.device);  // refused before anything runs
  install_interrupt_handler();
  const double started = steady_seconds();
  if (options.work.collect)
    collect_grids(grids, machine);
  else
    run_grids(grids, machine);
  Findings found(grids[0].axes, text);
  for (std::size_t k = 0; k < grids.size(); ++k) {
    const Outcome outcome(grids[k], measures.at(options.measure));
    found.introduction += (k > 0 ? "\n" : "") + introduction_of(outcome, planned.requests[k]);
    found.tables.add(outcome);
    if (cross) std::ranges::move(cross_tables(outcome, cross->first, cross->second), std::back_inserter(found.crossed));
    for (auto* figures : {&figures_over_axes, &learning_curves})
      std::ranges::move(figures(outcome), std::back_inserter(found.figures));
  }
  found.introduction += to_text("\nThis call took ", duration_text(steady_seconds() - started), ", with ", options.jobs,
      " runs at a time; ", choice.sentence, ".");
  std::cout << text_of(found);
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
