// reproduce: the tables and figures of the papers by name. What can be trained here is trained as `lab` does and stands
// beside the paper's figures, with a verdict on each comparison that the paper makes; what other commands show is run.
#include <algorithm>
#include <ctime>
#include <fstream>
#include <iostream>
#include <optional>

#include "examples/whence/cli/command.h"
#include "examples/whence/cli/interrupt.h"
#include "examples/whence/cli/json_output.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/lab/run.h"
#include "examples/whence/machine/placement.h"
#include "examples/whence/papers/commands.h"
#include "examples/whence/papers/compare.h"
#include "examples/whence/papers/kept.h"
#include "examples/whence/papers/runs.h"
#include "examples/whence/papers/staleness.h"
#include "examples/whence/report/table.h"
#include "examples/whence/run/commit.h"
#include "examples/whence/run/run_files.h"
#include "nn/io/files.h"
#include "tensor/cpu/instruction_set.h"
#include "tensor/cpu/threads.h"
#include "tensor/error.h"

namespace whence {
namespace {

namespace fs = std::filesystem;
using papers::Kind;
using papers::PaperTable;
using papers::Record;

struct Options {
  std::vector<std::string> names;
  papers::Asked asked;
  std::string out = "runs/reproduce", record, records, device = "auto";
  int jobs = threads();
  bool list = false, plan = false, stale = false, check = false, quiet = false, json = false;
};

// Of --records, else those that this program was built with.
std::vector<Record> records_of(const Options& options) {
  return options.records.empty() ? papers::recorded()
                                 : papers::read_records(options.records, read_file(options.records));
}

// The first processor's name and how many threads are used; the device where that is not the CPU.
std::string machine_of(const DeviceChoice& choice) {
  std::ifstream file("/proc/cpuinfo");
  std::string model = "unknown processor";
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name") && line.find(": ") != std::string::npos) {
      model = line.substr(line.find(": ") + 2);
      break;
    }
  return to_text(model, ", ", threads(), " threads", choice.device.is_cpu() ? "" : "; " + choice.sentence);
}

bool reads(const PaperTable& table, const char* word, papers::Reads what) {
  return table.reads == what ||
         std::ranges::any_of(table.commands, [&](const std::string& command) { return papers::names(command, word); });
}

// One table at one preset: its runs, its commands, and what is kept of them.
class Reproduction {
 public:
  // Everything is checked, and nothing written.
  Reproduction(const PaperTable& table, const Options& options, const DeviceChoice& choice)
      : table_(table),
        options_(options),
        choice_(choice),
        folder_(fs::path(options.out) / to_text(table.name, "-", options.asked.preset)),
        vectors_(choice.device.is_cpu() ? to_string(instruction_set()) : choice.sentence) {
    if (!table.presets.empty()) runs_ = papers::plan_runs(table, options.asked);
    for (const std::string& command : table.commands)
      for (const auto& [word, file] : {std::pair("TEXT", options.asked.text), std::pair("CODE", options.asked.code)})
        if (papers::names(command, word) && file.empty())
          throw InputError("--", word[0] == 'T' ? "data" : "code",
              ": nothing given; a file of yours required: ", table.name, " runs whence ", command);
    if (options.check) require_same_runs();
    if (!options.record.empty()) papers::require_own_page(options.record);
  }

  void say() const {
    std::size_t runs = 0;
    for (const Grid& grid : runs_.grids) runs += grid.cells.size();
    std::cout << table_.name << ": " << table_.what << " (" << table_.place << ")\n";
    if (runs > 0) std::cout << runs << " runs, preset " << options_.asked.preset << "; as\n  " << runs_.lab << '\n';
    for (const std::string& command : table_.commands)
      std::cout << "  whence " << shell_command(papers::words_of(command, places())) << '\n';
    if (!table_.note.empty()) std::cout << table_.note << '\n';
    if (table_.presets.empty() && !table_.methods.empty()) std::cout << '\n' << papers::printed_figures(table_).text();
    std::cout << std::flush;
  }

  // The exit code.
  int run() {
    say();
    ensure_output_folder(folder_);
    if (!options_.record.empty()) ensure_output_folder(options_.record);
    Record record = begun();
    if (!runs_.grids.empty()) train(record);
    std::vector<papers::Said> said;
    int code = runs_.grids.empty() ? 0 : say_failures(runs_.grids, "reproduce");
    for (const std::string& command : table_.commands) {
      const papers::Said& each = said.emplace_back(papers::run_command(command, places()));
      std::cout << "\n$ " << each.command << '\n' << each.output << std::flush;
      record.core_seconds += 2 * each.seconds;
      if (each.exit_code != 0) code = 1;
    }
    if (options_.check) require_as_recorded(record);
    if (!options_.record.empty()) keep(record, said);
    return code;
  }

  // Ours beside the paper's as lines of JSON, once it has run.
  const std::string& rows() const { return rows_; }

 private:
  papers::Places places() const {
    const fs::path run = runs_.grids.empty() ? fs::path() : runs_.grids[0].cells[0].folder;
    return {run, folder_, options_.asked.text, options_.asked.code};
  }

  Record begun() const {
    char date[32];
    const std::time_t now = std::time(nullptr);
    std::strftime(date, sizeof date, "%F %R", std::gmtime(&now));
    return {.table = table_.name,
        .preset = options_.asked.preset,
        .date = date,
        .program = program_and_version(),
        .machine = machine_of(choice_),
        .vectors = vectors_,
        .set = options_.asked.set,
        .lab = runs_.lab};
  }

  void train(Record& record) {
    const Machine machine = machine_for(runs_.grids, options_.jobs, options_.device, options_.quiet);
    run_grids(runs_.grids, machine);
    record.measurement = papers::measured(table_, runs_.grids);
    const papers::Preset& preset = papers::find_preset(table_, record.preset);
    record.seeds = runs_.grids[0].seeds;
    for (const Grid& grid : runs_.grids)
      for (const GridCell& cell : grid.cells) {
        ++record.runs, record.failed += !cell.failure.empty();
        record.core_seconds += cell.figures.seconds_in_all * machine.threads;
        if (!cell.data.empty())
          record.text = fs::path(*find_setting(cell.options, "data")).filename().string() + ", SHA-256 " + cell.data;
      }
    if (table_.methods.empty()) return;
    std::cout << record.measurement.measure << (table_.higher_is_better ? ", higher" : ", lower") << " is better; "
              << choice_.sentence << ", " << papers::time_text(record.core_seconds / 2) << " on two cores\n\n";
    const PaperTable shown = papers::with_rows(table_, options_.asked.rows);
    const Table beside = papers::beside_paper(shown, record.measurement),
                verdicts = papers::verdicts(shown, preset, record.measurement);
    std::cout << beside.text() << '\n';
    if (!verdicts.rows().empty()) std::cout << verdicts.text() << std::flush;
    rows_ += beside.json();
    write_file((folder_ / "beside_paper.csv").string(), beside.csv());
    write_file((folder_ / "verdicts.csv").string(), verdicts.csv());
  }

  // What was there stays where runs failed.
  void keep(Record& record, const std::vector<papers::Said>& said) const {
    if (record.failed > 0 && papers::find_record(papers::records_in(options_.record), record.table, record.preset)) {
      std::cout << "not recorded: runs failed, and a record is there already\n";
      return;
    }
    count_operations(record);
    record.bits =
        papers::bits_of({{&table_, record.preset, record.set}}, folder_ / "short_trainings", options_.jobs)[0];
    papers::keep(options_.record, table_, record, said, folder_);
  }

  // Of the presets as they are, whatever else is asked; of none that the user's text has no room for.
  void count_operations(Record& record) const {
    for (const papers::Preset& preset : table_.presets) {
      papers::Asked other = options_.asked;
      other.preset = preset.name, other.set.clear(), other.seeds = 0;
      try {
        record.operations[preset.name] = operations(papers::plan_runs(table_, other));
      } catch (const InputError&) { continue; }
    }
  }

  // ---- --check

  Record kept() const {
    const std::vector<Record> records = records_of(options_);
    const Record* found = papers::find_record(records, table_.name, options_.asked.preset);
    if (!found)
      throw InputError(
          "--check: ", table_.name, " at preset ", options_.asked.preset, " is not recorded; another table required");
    return *found;
  }

  // Only the same runs can have the same numbers.
  void require_same_runs() const {
    const Record record = kept();
    if (runs_.lab != record.lab)
      throw InputError("--check: the runs would be those of '", runs_.lab, "', recorded are those of '", record.lab,
          "'; the recorded options, seeds and file's name required");
  }

  // Error where other numbers came out of the same vectors.
  void require_as_recorded(const Record& now) const {
    const Record record = kept();
    const std::vector<std::string> differ = differences(now, record, options_.asked.rows);
    for (const std::string& each : differ) std::cout << "differs: " << one_line(each) << '\n';
    if (differ.empty()) {
      std::size_t numbers = 0;
      for (const papers::Measured& each : now.measurement.all) numbers += each.values.size();
      std::cout << numbers << " numbers are as recorded on " << one_line(record.date) << ", bit for bit\n";
    } else if (now.vectors == record.vectors && now.text == record.text) {
      throw Error(now.table, ": other numbers than recorded, of the same vectors, ", now.vectors);
    } else {
      std::cout << "recorded with " << one_line(record.vectors + ' ' + record.text) << "; now " << now.vectors << ' '
                << now.text << ": nothing can be told\n";
    }
  }

  const PaperTable& table_;
  const Options& options_;
  const DeviceChoice& choice_;
  fs::path folder_;
  std::string vectors_;  // what the bits depend on
  papers::Runs runs_;
  std::string rows_;  // of --json
};

void declare_options(CommandLine& line, Options& options) {
  std::vector<std::string> known{"all"};
  for (const PaperTable& table : papers::all_papers().tables) known.push_back(table.name);
  line.names("NAME...", &options.names,
          "tables or figures of the papers; all: those that have the preset; --list shows them", known)
      .flag("list", &options.list, {"every table and figure: what it asks, how it is had here, what it costs"})
      .choice("preset", &options.asked.preset, {"mini", "small", "paper"},
          {"mini: for a laptop; small: for a night; paper: the paper's sizes"})
      .integer(
          "seeds", &options.asked.seeds, Range<int>{0, 1000}, {"of each method; verdicts need three; 0: the preset's"})
      .texts("row", &options.asked.rows, {"this row of the table alone, as the paper names it; several make several"})
      .text("data", &options.asked.text, {"of language models: the text to train on"})
      .text("code", &options.asked.code, {"of language models of code: a folder or a file to train on"})
      .text("set", &options.asked.set, {"options of train in place of the preset's, e.g. \"steps=300 dim=32\""})
      .flag("plan", &options.plan, {"checks everything, says what would run, and trains nothing"});
  line.heading("Machine").integer("jobs", &options.jobs, Range<int>{1, 1024}, {"runs at the same time"});
  declare_device(line, &options.device);
  declare_json(line.heading("Output"), &options.json)
      .text("out", &options.out, {"folder of all runs and results. The same command goes on with what is there"})
      .text("record", &options.record,
          {"folder: keeps the results there: recorded.txt and README.md of all tables, and a page of each with its "
           "figures; without a NAME, the page anew"})
      .text("records", &options.records,
          {"of --list, --stale and --check: a recorded.txt in place of the one that this program was built with"})
      .flag("stale", &options.stale,
          {"which recorded results this program would not give: short trainings tell, in a minute"})
      .flag("check", &options.check, {"the numbers must be those recorded, where the processor's vectors are the same"})
      .flag("quiet", &options.quiet, {"no progress"});
  line.example("whence reproduce --list", "what there is");
  line.example("whence reproduce cope/table2-flip_flop", "nine small models, ours beside the paper's");
  line.example("whence reproduce dape-v2/table1 --data austen.txt", "kernels of a convolution, on text");
}

// `all`: those that have the preset, and those of commands alone.
std::vector<const PaperTable*> tables_of(const Options& options) {
  std::vector<const PaperTable*> tables;
  const auto add = [&](const PaperTable& table) {
    if (std::ranges::count(tables, &table) == 0) tables.push_back(&table);
  };
  const auto has_preset = [&](const PaperTable& table) {
    const bool alone = table.presets.empty() && table.kind == Kind::commanded;
    return alone || papers::find_named(table.presets, options.asked.preset);
  };
  for (const std::string& name : options.names) {
    if (name != "all") add(papers::find_table(name));
    for (const PaperTable& table : papers::all_papers().tables)
      if (name == "all" && has_preset(table)) add(table);
  }
  return tables;
}

void check(const CommandLine& line, const Options& options, const std::vector<const PaperTable*>& tables) {
  for (const PaperTable* table : tables)
    if (table->kind == Kind::not_ours)
      throw InputError(table->name, ": ", table->what, "; it cannot be run here: ", table->note);
  line.refuse_unless("row", options.record.empty(), "a table that is printed; --record keeps whole ones");
  const auto any = [&](const auto& is_so) {
    return tables.empty() || std::ranges::any_of(tables, [&](const PaperTable* table) { return is_so(*table); });
  };
  const bool trained = any([](const PaperTable& table) { return !table.presets.empty(); });
  for (const char* name : {"preset", "seeds", "set", "row", "check", "jobs", "device"})
    line.refuse_unless(name, trained, "a table for which something is trained");
  line.refuse_unless("data", any([](const PaperTable& table) { return reads(table, "TEXT", papers::Reads::text); }),
      "a table of language models");
  line.refuse_unless("code", any([](const PaperTable& table) { return reads(table, "CODE", papers::Reads::code); }),
      "a table of models of code");
}

int run(CommandLine& line) {
  Options options;
  declare_options(line, options);
  if (line.shows_page()) return 0;
  if (options.list) return papers::print_list(records_of(options)), 0;
  if (options.stale)
    return papers::print_staleness(records_of(options), fs::path(options.out) / "short_trainings", options.jobs), 0;
  if (options.names.empty() && !options.record.empty())
    return papers::write_records(options.record, papers::records_in(options.record)), 0;
  if (options.names.empty())
    throw InputError("no name given; a table or figure of the papers required; whence reproduce --list lists them");
  const std::vector<const PaperTable*> tables = tables_of(options);
  check(line, options, tables);
  line.refuse_unless("json", !options.plan, "runs; --plan trains nothing");
  const JsonOutput json(options.json);
  const DeviceChoice choice = choose_device(options.device);
  options.asked.device = choice.device.is_cpu() ? "" : to_string(choice.device);
  options.asked.folder = fs::path(options.out) / "runs";
  std::vector<Reproduction> all;
  for (const PaperTable* table : tables) all.emplace_back(*table, options, choice);
  install_interrupt_handler();
  int code = 0;
  for (Reproduction& each : all) {
    if (options.plan)
      each.say();
    else
      code = std::max(code, each.run());
    std::cout << '\n';
    json.lines(each.rows());
  }
  return code;
}

const RegisterCommand registered{
    {"reproduce", Purpose::train, "a table or figure of the papers by name: ours beside theirs, and what holds", run}};

}  // namespace
}  // namespace whence
