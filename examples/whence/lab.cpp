// lab: trains a grid of schemes, options and seeds on one task or several, or on text, and says what came out: means
// and spreads beside the paper's figures and guesses that need no model, what makes a difference, and learning curves,
// as tables, CSV, JSON, SVG and one page.
#include <algorithm>
#include <iostream>
#include <map>

#include "examples/whence/cli/command.h"
#include "examples/whence/cli/interrupt.h"
#include "examples/whence/cli/json_output.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/progress.h"
#include "examples/whence/cli/scheme_names.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/cli/words.h"
#include "examples/whence/lab/findings.h"
#include "examples/whence/lab/run.h"
#include "examples/whence/look/history.h"
#include "examples/whence/look/side_by_side.h"
#include "examples/whence/machine/placement.h"
#include "examples/whence/run/run_files.h"
#include "examples/whence/study/study.h"
#include "examples/whence/tasks/chomsky.h"
#include "nn/io/files.h"
#include "nn/scheme.h"
#include "tensor/cpu/threads.h"
#include "tensor/error.h"
#include "tensor/suggest.h"

namespace whence {
namespace {

struct Options {
  std::vector<std::string> tasks, vary;
  std::string schemes, set;  // no schemes: those that the task's paper compares
  Grid grid;                 // what all tasks share
  std::string measure = "auto", rows, columns, out, device = "auto", slurm, sbatch;
  int jobs = threads();
  bool maps = false, quiet = false, plan = false, collect = false, json = false;
};

const std::map<std::string, std::string> measures{{"auto", ""}, {"token-error", "token error %"},
    {"sequence-error", "sequence error %"}, {"perplexity", "perplexity"}, {"bits-per-byte", "bits per byte"}};

void declare_grid(CommandLine& line, Options& options) {
  std::vector<std::string> known{"chomsky", "lm"};
  for (const tasks::TaskInfo& info : tasks::registered_tasks()) known.push_back(info.name);
  line.names(
          "TASK...", &options.tasks, "whence tasks lists them; chomsky: all fifteen of the hierarchy; lm: text", known)
      .heading("Grid")
      .text("schemes", &options.schemes,
          {.help = "positional schemes, separated by commas; whence schemes lists them; none: those that the task's "
                   "paper compares",
              .known = scheme_names()})
      .integer("seeds", &options.grid.seeds, Range<int>{1, 1000}, {"of each scheme: 0, 1, ..."})
      .texts("vary", &options.vary,
          {"an axis: an option of train with its values, \"variables=1,3,5\", or of a scheme, \"cope.p_max=16,64\"; "
           "several make a grid"})
      .choice(
          "preset", &options.grid.preset, {"mini", "paper"}, {"mini: minutes on a laptop; paper: the papers' sizes"})
      .text("set", &options.set,
          {"options of train in place of the preset's, e.g. \"steps=300 dim=32\"; a value with blanks in quotes"})
      .flag("same-tokens", &options.grid.same_tokens,
          {"the batch follows the length: steps x batch x length is as the preset and --set have it"});
}

void declare_options(CommandLine& line, Options& options) {
  std::vector<std::string> names;
  for (const auto& [name, measure] : measures) names.push_back(name);
  declare_grid(line, options);
  line.heading("Machine").integer("jobs", &options.jobs, Range<int>{1, 1024}, {"runs at the same time"});
  declare_device(line, &options.device);
  line.heading("Output")
      .choice("measure", &options.measure, names, {"what is compared; auto: the paper's"})
      .text("rows", &options.rows, {"axis of the tables' rows: one of --vary, scheme, seed or test-set"})
      .text("columns", &options.columns, {"axis of their columns"})
      .text("out", &options.out, {"folder; runs/lab_TASK if left out. The same command goes on with what is there"})
      .flag("maps", &options.maps,
          {"on the page also the models of the first seed side by side on 128 tokens at most: maps of what each scheme "
           "makes "
           "and of its gradients, and where --set look-every=N keeps them, causes of zeros over the training"})
      .flag("quiet", &options.quiet, {"no progress"});
  declare_json(line, &options.json);
  line.heading("Other engines")
      .flag("plan", &options.plan,
          {"print a line of `whence train` for each run that is not done, for a shell, GNU parallel or any scheduler"})
      .text("slurm", &options.slurm, {"write these lines as an array script of SLURM to this file; -: print it"})
      .text("sbatch", &options.sbatch, {"options of sbatch for that script: \"partition=gpu,time=2:00:00\""})
      .flag("collect", &options.collect, {"make the tables of what is done, run nothing, and say what is missing"});
  for (const std::string name :
      {"steps", "dim", "layers", "heads", "kv-heads", "length", "batch", "lr", "test-sequences", "data"})
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

// ---- What is asked

std::vector<std::string> schemes_of(const CommandLine& line, const std::string& text) {
  std::vector<std::string> schemes;
  for (const std::string& part : list_of(text)) {
    const std::string scheme = canonical_text(parse_schemes(part));
    if (std::ranges::count(schemes, scheme) > 0)
      line.refuse("schemes", to_text(scheme, " once"), "each scheme is one row");
    schemes.push_back(scheme);
  }
  return schemes;
}

// What the task's paper compares; of text, and where no paper prints figures, CoPE's first table.
std::vector<std::string> schemes_of_the_paper(const std::string& task) {
  std::vector<std::string> schemes;
  if (task != "lm")
    for (const tasks::PaperFigure& figure : tasks::make_task(task)->paper_figures(0))
      schemes.push_back(canonical_text(parse_schemes(figure.scheme)));
  return schemes.empty() ? std::vector<std::string>{"absolute", "rope", "cope"} : schemes;
}

// Refuses a file, which `train` takes in a task's place.
void refuse_file(const std::string& name) {
  std::error_code none;
  if (std::ranges::count(study_names(), name) == 0 && std::filesystem::exists(name, none))
    throw InputError(in_quotes(name), " given; a task required; a file of yours is an option of one: lab jsonl, or of ",
        "text lab lm, with --set 'data=\"", one_line(name), "\"'");
}

std::vector<std::string> tasks_of(const std::vector<std::string>& names) {
  std::vector<std::string> found;
  for (const std::string& name : names) {
    if (name == "lm" && names.size() > 1)
      throw InputError("lm: given beside tasks; lm alone required: perplexities and errors do not stand in one table");
    if (name == "chomsky") {
      for (const auto& problem : tasks::chomsky_problems()) found.push_back(problem.name);
      continue;
    }
    refuse_file(name);
    found.push_back(name == "lm" ? name : tasks::find_task(name).name);
  }
  if (found.empty())
    throw InputError("no task given; the name of one required as the first word; whence tasks lists them");
  return found;
}

// One for each task, not planned yet. A single task's lies in `folder`, those of several in folders of their own inside
// it.
std::vector<Grid> grids_of(const CommandLine& line, const Options& options, const std::filesystem::path& folder) {
  const std::vector<std::string> names = tasks_of(options.tasks);
  std::vector<Grid> grids;
  for (const std::string& task : names) {
    Grid& grid = grids.emplace_back(options.grid);
    grid.task = task, grid.folder = names.size() > 1 ? folder / task : folder;
    grid.axes = parse_axes(options.vary);
    grid.schemes = options.schemes.empty() ? schemes_of_the_paper(task) : schemes_of(line, options.schemes);
    grid.set = parse_settings("set", options.set);
  }
  return grids;
}

void check(const CommandLine& line, const Options& options, bool text) {
  const int asked = (options.plan ? 1 : 0) + (options.collect ? 1 : 0) + (options.slurm.empty() ? 0 : 1);
  if (asked > 1) throw InputError("--plan, --slurm, --collect: several given; one at most required");
  line.refuse_unless("sbatch", !options.slurm.empty(), "--slurm");
  const bool of_text = options.measure == "perplexity" || options.measure == "bits-per-byte";
  line.refuse_unless("measure", options.measure == "auto" || of_text == text,
      text ? "a task, which has errors" : "lm, which has perplexities");
}

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

// ---- What comes out

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

std::string introduction_of(const Outcome& outcome) {
  const Grid& grid = outcome.grid;
  std::size_t failed = 0, missing = 0;
  for (const GridCell& cell : grid.cells) missing += cell.missing, failed += !cell.missing && !cell.failure.empty();
  Settings fixed_settings = grid.settings;
  std::erase_if(fixed_settings, [&](const auto& setting) {
    return std::ranges::count(grid.axes, setting.first, &Axis::name) > 0 ||
           (grid.same_tokens && setting.first == "batch");
  });
  std::string arguments, axes;
  for (const std::string& argument : arguments_of(fixed_settings)) arguments += " " + argument;
  for (const Axis& axis : grid.axes)
    axes += to_text(axes.empty() ? " with " : "; ", axis.name, " ", joined(axis.values));
  if (grid.same_tokens) axes += "; the batch such that all see the same tokens";
  return to_text(grid.task, ", ", outcome.measure, ", lower is better. Every run: train ", grid.task, " --preset paper",
      arguments, axes, ". ", grid.cells.size(), " runs", failed > 0 ? to_text(", ", failed, " failed") : "",
      missing > 0 ? to_text(", ", missing, " missing") : "", ".");
}

Findings findings_of(const std::vector<Grid>& grids, const std::string& measure,
    const std::optional<std::pair<std::string, std::string>>& cross) {
  Findings found(grids[0].axes, grids[0].task == "lm");
  for (const Grid& grid : grids) {
    const Outcome outcome(grid, measure);
    found.introduction += (found.introduction.empty() ? "" : "\n") + introduction_of(outcome);
    found.add(outcome);
    if (cross) std::ranges::move(cross_tables(outcome, cross->first, cross->second), std::back_inserter(found.crossed));
    for (auto* figures : {&figures_over_axes, &learning_curves})
      std::ranges::move(figures(outcome), std::back_inserter(found.figures));
  }
  return found;
}

// What the models of the first seed make of one sequence.
void add_maps(Findings& found, const std::vector<Grid>& grids) {
  std::vector<look::SubjectOptions> subjects;
  std::vector<std::pair<std::string, std::filesystem::path>> runs;
  for (const Grid& grid : grids) {
    for (const GridCell& cell : grid.cells) {
      if (cell.seed != 0 || !cell.failure.empty()) continue;
      subjects.push_back(
          {.run = cell.folder.string(), .length = 128, .own_text = true});  // longer maps are large files
      runs.emplace_back(cell.name, cell.folder);
    }
  }
  look::SideBySide models = look::side_by_side(subjects);
  found.pictures = std::move(models.pictures), found.of_tokens = std::move(models.plots);
  if (Table causes = look::causes_over_training(runs); !causes.rows().empty()) found.causes = std::move(causes);
}

int run(CommandLine& line) {
  Options options;
  declare_options(line, options);
  if (line.shows_page()) return 0;
  const std::filesystem::path folder =
      !options.out.empty() ? options.out : "runs/lab_" + (options.tasks.empty() ? "" : options.tasks[0]);
  for (const char* option : {"json", "maps"})
    line.refuse_unless(
        option, !options.plan && options.slurm.empty(), "runs; --plan and --slurm print their own lines");
  const JsonOutput json(options.json);
  std::vector<Grid> grids = grids_of(line, options, folder);
  const bool text = grids[0].task == "lm";
  check(line, options, text);
  const auto cross = crossing(line, options, grids[0].axes, text);
  for (Grid& grid : grids) grid = planned(std::move(grid));  // all of them are checked before anything runs
  if (options.plan || !options.slurm.empty()) return print_for_other_engines(line, options, grids), 0;
  const DeviceChoice choice = choose_device(options.device);
  install_interrupt_handler();
  const double started = steady_seconds();
  if (options.collect)
    collect_grids(grids);
  else
    run_grids(grids, machine_for(grids, options.jobs, options.device, options.quiet));
  Findings found = findings_of(grids, measures.at(options.measure), cross);
  if (options.maps) add_maps(found, grids);
  std::cout << text_of(found) << "This call took " << time_text(steady_seconds() - started) << ", with " << options.jobs
            << " runs at a time; " << choice.sentence << ".\n";
  write_findings(folder, to_text("whence: ", options.tasks[0]), found, grids);
  std::cout
      << "written: " << folder.string()
      << "/{report.html, *.svg, scores.csv, runs.csv, differences.csv, curves.csv, lab.json, one folder per run}\n";
  json.lines(found.numbers.json());
  return say_failures(grids, "lab");
}

const RegisterCommand registered{
    {"lab", Purpose::train, "a grid of schemes, options and seeds: means, spreads, tests, curves, one page", run}};

}  // namespace
}  // namespace whence
