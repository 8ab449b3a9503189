// reproduce: the tables and figures of the papers by name. What can be trained here is trained as `lab` does and stands
// beside the paper's figures, with a verdict on each comparison that the paper makes; for the rest it says what to type.
#include <algorithm>
#include <iostream>

#include "examples/app/command.h"
#include "examples/app/command_line.h"
#include "examples/app/interrupt.h"
#include "examples/app/placement.h"
#include "examples/app/text.h"
#include "examples/lab/request.h"
#include "examples/papers/compare.h"
#include "examples/train.h"
#include "nn/io/files.h"
#include "tensor/device_choice.h"
#include "tensor/error.h"
#include "tensor/parallel.h"

namespace whence {
namespace {

using papers::Kind;
using papers::PaperTable;

struct Options {
  std::vector<std::string> names;
  std::string preset = "mini", data, set, out, device = "auto";
  int seeds = 3, jobs = threads();
  bool list = false, plan = false, quiet = false;
};

// A word as a shell takes it.
std::string typed(const std::string& word) {
  return word.find_first_of(" ()'\"&;|*") == std::string::npos ? word : "'" + word + "'";
}

std::string presets_of(const PaperTable& table) {
  std::string names;
  for (const papers::Preset& preset : table.presets) names += (names.empty() ? "" : ", ") + preset.name;
  return table.presets.empty() ? "-" : names + ": not measured";
}

void print_list() {
  Table list({"name", "what it asks", "in the paper", "how", "cost of its presets", "recorded"});
  for (const PaperTable& table : papers::all_tables())
    list.row({table.name, table.what, table.place, papers::how(table) + (table.kind == Kind::grid ? ", compared" : ""),
        presets_of(table), "-"});
  std::cout << list.text();
}

void print_commands(const PaperTable& table) {
  std::cout << table.name << ": " << table.what << " (" << table.place << ")\n";
  if (table.kind == Kind::not_ours) std::cout << "not ours: " << table.note << '\n';
  if (!table.commands.empty()) std::cout << "to type, with what stands in capitals replaced:\n";
  for (const std::string& command : table.commands) std::cout << "  " << command << '\n';
}

// The words that `lab` would take, read as lab reads them.
class PaperGrid {
 public:
  PaperGrid(const PaperTable& table, const Options& options, const std::filesystem::path& folder)
      : words_(papers::lab_words(table, papers::find_preset(table, options.preset))) {
    words_.insert(words_.end(), {"--seeds", std::to_string(options.seeds)});
    GridOptions grid;
    CommandLine line("whence lab", "");
    declare_grid_options(line, grid);
    std::vector<const char*> arguments{"lab"};
    for (const std::string& word : words_) arguments.push_back(word.c_str());
    (void)line.parse(static_cast<int>(arguments.size()), arguments.data());
    Settings more = parse_settings("set", options.set);
    if (!options.data.empty()) put_setting(more, "data", options.data);
    planned_ = plan_grids(line, grid, more, folder, checked_train_options);
    papers::require_cells(table, planned_.grids[0]);
  }

  std::vector<Grid>& grids() { return planned_.grids; }
  std::string command() const {
    std::string text = "whence lab";
    for (const std::string& word : words_) text += " " + typed(word);
    return text;
  }

 private:
  std::vector<std::string> words_;
  PlannedGrids planned_;
};

int reproduce(const PaperTable& table, const Options& options) {
  const std::filesystem::path folder =
      options.out.empty() ? to_text("runs/reproduce/", table.name, "-", options.preset) : options.out;
  PaperGrid paper_grid(table, options, folder);
  std::vector<Grid>& grids = paper_grid.grids();
  std::cout << table.name << ": " << table.what << " (" << table.place << ")\n"
            << grids[0].cells.size() << " runs of " << grids[0].task << ", preset " << options.preset << "; as "
            << paper_grid.command() << '\n';
  if (options.plan) return 0;
  const DeviceChoice choice = choose_device(options.device);
  install_interrupt_handler();
  run_grids(grids, machine_for(grids, options.jobs, options.device, options.quiet));
  const Outcome outcome(grids[0], "");
  const Table beside = papers::beside_paper(table, outcome), verdicts = papers::verdicts(table, outcome);
  std::cout << outcome.measure() << "; " << choice.sentence << ". " << table.note << "\n\n"
            << beside.text() << '\n'
            << verdicts.text();
  write_file((folder / "beside_paper.csv").string(), beside.csv());
  write_file((folder / "verdicts.csv").string(), verdicts.csv());
  std::cout << "written: " << folder.string() << "/{beside_paper.csv, verdicts.csv, one folder per run}\n";
  return say_failures(grids, "reproduce");
}

void declare_options(CommandLine& line, Options& options) {
  std::vector<std::string> known;
  for (const PaperTable& table : papers::all_tables()) known.push_back(table.name);
  line.names("NAME", &options.names, "a table or figure of the papers; --list shows all", known)
      .flag("list", &options.list, {"every table and figure: what it asks, how it is had here, what it costs"})
      .choice("preset", &options.preset, {"mini", "small", "paper"},
          {"mini: for a laptop; small: for a night; paper: the paper's sizes"})
      .integer("seeds", &options.seeds, Range<int>{1, 1000}, {"of each method; verdicts need three"})
      .text("data", &options.data, {"of language models: the text to train on"})
      .text("set", &options.set, {"options of train in place of the preset's, e.g. \"steps=300 dim=32\""})
      .flag("plan", &options.plan, {"checks everything, says what would run, and trains nothing"});
  line.heading("Machine").integer("jobs", &options.jobs, Range<int>{1, 1024}, {"runs at the same time"});
  declare_device(line, &options.device);
  line.heading("Output")
      .text("out", &options.out,
          {"folder; runs/reproduce/NAME-PRESET if left out. The same command goes on with what is there"})
      .flag("quiet", &options.quiet, {"no progress"});
  line.example("whence reproduce --list", "what there is");
  line.example("whence reproduce cope/table2-flip_flop", "nine small models, ours beside the paper's");
  line.example("whence reproduce dape-v2/table1 --data austen.txt", "kernels of a convolution, on text");
}

int run(int argc, char** argv) {
  Options options;
  CommandLine line("whence reproduce", "A table or figure of the papers: ours beside theirs, and what holds.");
  declare_options(line, options);
  if (line.shows_page(argc, argv)) return 0;
  if (options.list) return print_list(), 0;
  if (options.names.size() != 1)
    throw InputError(
        options.names.size(), " names given; one table or figure required; whence reproduce --list lists them");
  const PaperTable table = papers::find_table(options.names[0]);
  if (table.kind != Kind::grid) {
    for (const char* name : {"preset", "seeds", "data", "set", "plan", "jobs", "out"})
      line.refuse_unless(name, false, "a table that is trained here; " + table.name + " is not");
    return print_commands(table), 0;
  }
  const bool text = table.grid.task == "lm";
  line.refuse_unless("data", text, "a table of language models");
  if (text && options.data.empty())
    throw InputError("--data: nothing given; a text file of yours required; ", table.name,
        " trains language models, and the papers' texts are not ours to give");
  return reproduce(table, options);
}

const RegisterCommand registered{
    {"reproduce", Purpose::train, "a table or figure of the papers by name: ours beside theirs, and what holds", run}};

}  // namespace
}  // namespace whence
