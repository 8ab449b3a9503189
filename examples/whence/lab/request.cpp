#include "examples/whence/lab/request.h"

#include <algorithm>
#include <iostream>

#include "examples/whence/cli/scheme_names.h"
#include "examples/whence/lab/axes.h"
#include "examples/whence/tasks/chomsky.h"
#include "nn/scheme.h"
#include "tensor/error.h"
#include "tensor/parallel.h"

namespace whence {
namespace {

// Of `lab lm`: minutes on a laptop, and the papers' ordering can show. Its text is the user's.
constexpr const char* mini_of_text = "dim=128 layers=2 length=128 steps=1000";

std::vector<std::string> schemes_of(const CommandLine& line, const std::string& text) {
  std::vector<std::string> schemes;
  for (const std::string& part : split_outside_parentheses(text)) {
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

// Options of --set in place of the preset's. InputError when an axis has one of them.
void put_settings(
    Settings& settings, const Settings& given, const GridOptions& options, const std::vector<Axis>& axes) {
  for (const auto& [name, value] : given) {
    for (const Axis& axis : axes)
      if (axis.name == name && !(options.same_tokens && name == "length"))
        throw InputError("--set: ", name, "=", value, " given; options other than ", name, " required; --vary has it");
    put_setting(settings, name, value);
  }
}

GridRequest request_of(const CommandLine& line, const GridOptions& options, const std::string& task,
    const std::vector<Axis>& axes, const std::filesystem::path& folder, const TrainCheck& check) {
  const std::string mini = task == "lm" ? mini_of_text : tasks::find_task(task).mini;
  return {.task = task,
      .schemes = options.schemes.empty() ? schemes_of_the_paper(task) : schemes_of(line, options.schemes),
      .seeds = options.seeds,
      .axes = axes,
      .settings = parse_settings("preset", options.preset == "mini" ? mini : ""),
      .same_tokens = options.same_tokens,
      .folder = folder,
      .check = [task, check](const std::vector<std::string>& words) { return check(task, words); }};
}

}  // namespace

void declare_grid_options(CommandLine& line, GridOptions& options) {
  std::vector<std::string> known{"chomsky", "lm"};
  for (const tasks::TaskInfo& info : tasks::registered_tasks()) known.push_back(info.name);
  line.names(
          "TASK...", &options.tasks, "whence tasks lists them; chomsky: all fifteen of the hierarchy; lm: text", known)
      .heading("Grid")
      .text("schemes", &options.schemes,
          {.help = "positional schemes, separated by commas; whence schemes lists them; none: those that the task's "
                   "paper "
                   "compares",
              .known = scheme_names()})
      .integer("seeds", &options.seeds, Range<int>{1, 1000}, {"of each scheme: 0, 1, ..."})
      .texts("vary", &options.vary,
          {"an axis: an option of train with its values, \"variables=1,3,5\", or of a scheme, \"cope.p_max=16,64\"; "
           "several make a grid"})
      .choice("preset", &options.preset, {"mini", "paper"}, {"mini: minutes on a laptop; paper: the papers' sizes"})
      .text("set", &options.set,
          {"options of train in place of the preset's, e.g. \"steps=300 dim=32\"; a value with blanks in quotes"})
      .flag("same-tokens", &options.same_tokens,
          {"the batch follows the length: steps x batch x length is as the preset and --set have it"});
}

std::vector<std::string> tasks_of(const std::vector<std::string>& names) {
  std::vector<std::string> found;
  for (const std::string& name : names) {
    if (name == "lm" && names.size() > 1)
      throw InputError("lm: given beside tasks; lm alone required: perplexities and errors do not stand in one table");
    if (name != "chomsky") {
      found.push_back(name == "lm" ? name : tasks::find_task(name).name);
      continue;
    }
    for (const auto& problem : tasks::chomsky_problems()) found.push_back(problem.name);
  }
  if (found.empty())
    throw InputError("no task given; the name of one required as the first word; whence tasks lists them");
  return found;
}

PlannedGrids plan_grids(const CommandLine& line, const GridOptions& options, const Settings& more,
    const std::filesystem::path& folder, const TrainCheck& check) {
  const std::vector<std::string> names = tasks_of(options.tasks);
  PlannedGrids planned{.axes = parse_axes(options.vary), .requests = {}, .grids = {}};
  for (const std::string& name : names) {
    const std::filesystem::path own = names.size() > 1 ? folder / name : folder;
    GridRequest request = request_of(line, options, name, planned.axes, own, check);
    for (const Settings& given : {parse_settings("set", options.set), more})
      put_settings(request.settings, given, options, planned.axes);
    planned.grids.push_back(plan_grid(request));
    planned.requests.push_back(std::move(request));
  }
  return planned;
}

void declare_work(CommandLine& line, WorkOptions& options) {
  line.heading("Several machines")
      .number("dead-after", &options.dead_after, Range<double>{5, 86400},
          {"without a sign of life of another worker, after which its runs are taken over; the same command on any "
           "number "
           "of machines that share --out shares the work",
              "seconds"})
      .flag("plan", &options.plan, {"print a line of `whence train` for each cell that is not done, and end"})
      .flag("collect", &options.collect, {"make the tables of what is there, run nothing, and say what is missing"})
      .integer("cell", &options.cell, Range<std::int64_t>{-1, 1000000000},
          {"run this cell alone, from 0, without tables; -1: all"})
      .text("slurm", &options.slurm,
          {"write OUT/lab.sbatch, an array with a task for each cell, with these options of sbatch: "
           "\"partition=gpu,time=2:00:00\"; at-once=8: so many tasks at a time"})
      .flag("submit", &options.submit, {"with --slurm: submit it too"});
}

void declare_damaged(CommandLine& line, bool* accept) {
  line.flag("accept-damaged", accept,
      {"go on where finished runs' results are damaged: these are not counted, and tables say so"});
}

Machine machine_for(
    const std::vector<Grid>& grids, int jobs, const std::string& device, bool quiet, bool accept_damaged) {
  std::size_t runs = 0;
  for (const Grid& grid : grids) runs += grid.cells.size();
  const int at_a_time = static_cast<int>(std::min(static_cast<std::size_t>(jobs), runs));
  return {.jobs = at_a_time,
      .threads = std::max(1, threads() / at_a_time),
      .device = device,
      .program = "/proc/self/exe",  // this very file for every run, even when another is built in its place
      .quiet = quiet,
      .accept_damaged = accept_damaged};
}

int say_failures(const std::vector<Grid>& grids, const std::string& command) {
  std::size_t failed = 0;
  for (const Grid& grid : grids) {
    for (const GridCell& cell : grid.cells) {
      if (cell.failure.empty() || cell.damaged || cell.missing) continue;
      std::cerr << "failed: " << cell.folder.string() << ": " << cell.failure << "; all of it: " << log_of(cell)
                << '\n';
      ++failed;
    }
  }
  if (failed > 0) std::cerr << command << ": " << failed << " runs failed; the same command tries them again\n";
  return failed > 0 ? 1 : 0;
}

}  // namespace whence
