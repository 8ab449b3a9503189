// reproduce: the tables and figures of the papers by name. What can be trained here is trained as `lab` does and stands
// beside the paper's figures, with a verdict on each comparison that the paper makes; what other commands show is run.
#include <algorithm>
#include <ctime>
#include <iostream>
#include <map>
#include <optional>
#include <set>

#include "examples/whence/cli/command.h"
#include "examples/whence/cli/command_line.h"
#include "examples/whence/cli/interrupt.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/lab/run.h"
#include "examples/whence/machine/device_choice.h"
#include "examples/whence/machine/placement.h"
#include "examples/whence/papers/commands.h"
#include "examples/whence/papers/compare.h"
#include "examples/whence/papers/record.h"
#include "examples/whence/papers/runs.h"
#include "examples/whence/run/code_hash.h"
#include "examples/whence/run/run_files.h"
#include "examples/whence/train.h"
#include "nn/io/files.h"
#include "tensor/error.h"
#include "tensor/parallel.h"

namespace whence {
namespace {

namespace fs = std::filesystem;
using papers::Kind;
using papers::PaperTable;
using papers::Record;

struct Options {
  std::vector<std::string> names;
  std::string preset = "mini", data, code, set, out = "runs/reproduce", record, records, device = "auto";
  int seeds = 0, jobs = threads();  // seeds 0: the preset's
  std::vector<std::string> rows;
  bool list = false, plan = false, stale = false, check = false, quiet = false;
};

fs::path records_of(const Options& options) {
  return options.records.empty() ? "examples/whence/papers" : fs::path(options.records);
}

std::string recorded_text(const PaperTable& table, const std::vector<Record>& records) {
  std::string text;
  for (const Record& record : records) {
    if (record.table != table.name || !has_place(record)) continue;
    const papers::Count count = papers::count_of(judged_of(record));
    text += to_text(text.empty() ? "" : "; ", record.preset, " ", record.date.substr(0, 10),
        count.all() > 0 ? to_text(", ", count.holds, " of ", count.all(), " hold") : "");
  }
  return text.empty() ? "-" : text;
}

std::string cost_of(const PaperTable& table, const std::vector<Record>& records) {
  std::string text;
  for (const papers::Preset& preset : table.presets) {
    std::string cost;
    for (const Record& record : records)
      if (record.table == table.name && (cost.empty() || record.preset == preset.name))
        cost = papers::cost_text(record, preset.name);
    if (cost.empty()) cost = "not known";
    text += to_text(text.empty() ? "" : "; ", preset.name, " ", cost);
  }
  return text.empty() ? "-" : text;
}

std::string how(const PaperTable& table) {
  switch (table.kind) {
    case Kind::compared: return "trained, compared";
    case Kind::commanded: return table.presets.empty() ? "commands" : "trained, then commands";
    case Kind::not_ours: return "lacks: " + table.note;
  }
  throw Error(table.name, ": of no kind");
}

void print_list(const std::vector<Record>& records) {
  Table list({"name", "what it asks", "in the paper", "how", "cost of its presets, on two cores", "recorded"});
  for (const PaperTable& table : papers::all_papers().tables)
    list.row({table.name, table.what, table.place, how(table), cost_of(table, records), recorded_text(table, records)});
  std::cout << list.text();
}

int print_staleness(const std::vector<Record>& records) {
  std::size_t stale = 0;
  for (const Record& record : records) {
    const std::string why = papers::staleness(record);
    if (why.empty()) continue;
    ++stale;
    std::cout << "STALE: " << record.table << ", " << record.preset << ", of " << record.date.substr(0, 10) << ": "
              << why << '\n';
  }
  std::cout << records.size() << " results recorded, " << stale
            << " older than the code or the options that make them\n";
  return 0;
}

bool reads(const PaperTable& table, const char* word, papers::Reads what) {
  return table.grid.reads == what ||
         std::ranges::any_of(table.commands, [&](const std::string& command) { return papers::names(command, word); });
}

// One table at one preset: its runs, its commands, and what is kept of them.
class Reproduction {
 public:
  // Everything is checked, and nothing written.
  Reproduction(const PaperTable& table, const Options& options)
      : table_(table),
        options_(options),
        folder_(fs::path(options.out) / to_text(table.name, "-", options.preset)),
        choice_(choose_device(options.device)) {
    if (!table.presets.empty()) runs_ = papers::plan_runs(table, asked(), checked_train_options);
    for (const std::string& command : table.commands)
      for (const auto& [word, file] : {std::pair("TEXT", options.data), std::pair("CODE", options.code)})
        if (papers::names(command, word) && file.empty())
          throw InputError("--", word[0] == 'T' ? "data" : "code",
              ": nothing given; a file of yours required: ", table.name, " runs whence ", command);
    if (options.check && !recorded(records_of(options)))
      throw InputError(
          "--check: ", table.name, " at preset ", options.preset, " is not recorded; another table required");
    if (options.record.empty()) return;
    papers::require_own_page(options.record);
    const auto kept = recorded(options.record);
    if (kept && kept->command != command())
      throw InputError("--record: ", options.record, " holds ", table.name, " as made by '", kept->command,
          "'; the same command, or another folder, required");
    count_operations();
  }

  void say() const {
    std::size_t runs = 0;
    for (const Grid& grid : runs_.grids) runs += grid.cells.size();
    std::cout << table_.name << ": " << table_.what << " (" << table_.place << ")\n";
    if (runs > 0) std::cout << runs << " runs, preset " << options_.preset << "; as\n";
    for (const std::string& command : runs_.commands) std::cout << "  " << command << '\n';
    for (const std::string& command : table_.commands) std::cout << "  whence " << command << '\n';
    if (!table_.note.empty()) std::cout << table_.note << '\n';
    std::cout << std::flush;
  }

  // The exit code.
  int run() {
    say();
    ensure_output_folder(folder_);
    if (!options_.record.empty()) ensure_output_folder(options_.record);
    Record record = begun();
    if (!runs_.grids.empty()) train(record);
    const papers::Places places{
        runs_.grids.empty() ? fs::path() : runs_.grids[0].cells[0].folder, folder_, options_.data, options_.code};
    for (const std::string& command : table_.commands) {
      const papers::Said& said = record.said.emplace_back(papers::run_command(command, places));
      std::cout << "\n$ " << said.command << '\n' << said.output << std::flush;
    }
    if (options_.check) require_as_recorded(record);
    if (!options_.record.empty()) keep(record);
    int code = runs_.grids.empty() ? 0 : say_failures(runs_.grids, "reproduce");
    for (const papers::Said& said : record.said) code = std::max(code, said.exit_code == 0 ? 0 : 1);
    return code;
  }

 private:
  papers::Asked asked() const {
    return {.preset = options_.preset,
        .set = options_.set,
        .text = options_.data,
        .code = options_.code,
        .device = choice_.device.is_cpu() ? "" : to_string(choice_.device),
        .methods = options_.rows,
        .seeds = options_.seeds,
        .folder = fs::path(options_.out) / "runs"};
  }

  Record begun() const {
    Record record;
    record.table = table_.name, record.preset = options_.preset, record.command = command();
    if (!options_.record.empty()) record.commit = papers::commit_of(options_.record, folder_ / "commit.txt");
    record.machine = papers::machine_of(choice_), record.code = code_hash();
    record.set = options_.set, record.lab = runs_.commands, record.operations = operations_;
    char date[32];
    const std::time_t now = std::time(nullptr);
    std::strftime(date, sizeof date, "%F %R", std::gmtime(&now));
    record.date = date;
    return record;
  }

  // As typed, the user's files without their folders.
  std::string command() const {
    std::vector<std::string> words{"whence", "reproduce", table_.name};
    if (!table_.presets.empty()) words.insert(words.end(), {"--preset", options_.preset});
    const auto add = [&](const char* name, const std::string& value) {
      if (!value.empty()) words.insert(words.end(), {name, value});
    };
    if (options_.seeds != 0) add("--seeds", std::to_string(options_.seeds));
    if (reads(table_, "TEXT", papers::Reads::text)) add("--data", fs::path(options_.data).filename());
    if (reads(table_, "CODE", papers::Reads::code)) add("--code", fs::path(options_.code).filename());
    add("--set", options_.set);
    return shell_command(words);
  }

  void train(Record& record) {
    const Machine machine = machine_for(runs_.grids, options_.jobs, options_.device, options_.quiet);
    run_grids(runs_.grids, machine);
    record.measurement = papers::measured(table_, runs_.grids);
    const papers::Preset& preset = papers::find_preset(table_, options_.preset);
    record.seeds = options_.seeds == 0 ? preset.seeds : options_.seeds;
    for (const Grid& grid : runs_.grids)
      for (const GridCell& cell : grid.cells) {
        ++record.runs, record.failed += !cell.failure.empty(),
            record.processor_seconds += cell.seconds_in_all * machine.threads;
        if (!cell.data.empty())
          record.text = fs::path(*find_setting(cell.options, "data")).filename().string() + ", SHA-256 " + cell.data;
      }
    std::cout << record.measurement.measure << (table_.higher_is_better ? ", higher" : ", lower") << " is better; "
              << choice_.sentence << ", " << papers::cost_text(record) << " on two cores\n\n";
    if (table_.methods.empty()) return;
    const PaperTable shown = papers::with_rows(table_, options_.rows);
    const Table beside = papers::beside_paper(shown, record.measurement),
                verdicts = papers::verdicts(shown, preset, record.measurement);
    std::cout << beside.text() << '\n' << verdicts.text() << std::flush;
    write_file((folder_ / "beside_paper.csv").string(), beside.csv());
    write_file((folder_ / "verdicts.csv").string(), verdicts.csv());
  }

  std::optional<Record> recorded(const fs::path& folder) const {
    for (const Record& record : papers::read_records(folder))
      if (record.table == table_.name && record.preset == options_.preset) return record;
    return std::nullopt;
  }

  // What was there stays where runs failed.
  void keep(Record& record) const {
    if (record.failed > 0 && recorded(options_.record)) {
      std::cout << "not recorded: runs failed, and a record is there already\n";
      return;
    }
    const std::string name = papers::record_name(record.table, record.preset);
    const fs::path kept = fs::path(options_.record) / "results" / "figures" / name;
    std::set<std::string> seen;  // figures of a part of the layers may be one picture
    std::vector<std::string> figures;
    for (const papers::Said& said : record.said) std::ranges::copy(said.figures, std::back_inserter(figures));
    for (const std::string& figure : figures) {
      const std::string drawn = read_file((folder_ / figure).string());
      if (!seen.insert(drawn).second) continue;
      if (drawn.size() > papers::largest_figure) {
        record.too_large.push_back(figure);
        continue;
      }
      ensure_output_folder(kept);
      write_file((kept / figure).string(), drawn);
      record.figures.push_back(name + "/" + figure);
    }
    papers::write_record(options_.record, record);
  }

  // Of the presets as they are, whatever else is asked; of none that the user's text has no room for.
  void count_operations() {
    for (const papers::Preset& preset : table_.presets) {
      papers::Asked other = asked();
      other.preset = preset.name, other.set.clear(), other.seeds = 0;
      try {
        operations_[preset.name] =
            operations(papers::plan_runs(table_, other, checked_train_options), operations_per_sequence);
      } catch (const InputError&) { continue; }
    }
  }

  // Error where the same code gave other numbers on the same machine.
  void require_as_recorded(const Record& now) const {
    const Record kept = recorded(records_of(options_)).value();
    const std::vector<std::string> differ = differences(now, kept, options_.rows);
    for (const std::string& each : differ) std::cout << "differs: " << each << '\n';
    if (differ.empty()) {
      std::size_t numbers = 0;
      for (const papers::Measured& each : now.measurement.all) numbers += each.values.size();
      std::cout << numbers << " numbers are as recorded on " << kept.date << ", bit for bit\n";
      return;
    }
    if (kept.code == now.code && kept.machine == now.machine && kept.lab == now.lab)
      throw Error(now.table, ": other numbers than recorded, of the same code on the same machine");
    std::cout << "recorded with code " << kept.code << " on " << kept.machine << "; now " << now.code << " on "
              << now.machine << '\n';
  }

  const PaperTable& table_;
  const Options& options_;
  fs::path folder_;
  DeviceChoice choice_;
  papers::Runs runs_;
  std::map<std::string, double> operations_;  // by preset
};

void declare_options(CommandLine& line, Options& options) {
  std::vector<std::string> known{"all"};
  for (const PaperTable& table : papers::all_papers().tables) known.push_back(table.name);
  line.names("NAME...", &options.names,
          "tables or figures of the papers; all: those that have the preset; --list shows them", known)
      .flag("list", &options.list, {"every table and figure: what it asks, how it is had here, what it costs"})
      .choice("preset", &options.preset, {"mini", "small", "paper"},
          {"mini: for a laptop; small: for a night; paper: the paper's sizes"})
      .integer("seeds", &options.seeds, Range<int>{0, 1000}, {"of each method; verdicts need three; 0: the preset's"})
      .texts("row", &options.rows, {"this row of the table alone, as the paper names it; several make several"})
      .text("data", &options.data, {"of language models: the text to train on"})
      .text("code", &options.code, {"of language models of code: a folder or a file to train on"})
      .text("set", &options.set, {"options of train in place of the preset's, e.g. \"steps=300 dim=32\""})
      .flag("plan", &options.plan, {"checks everything, says what would run, and trains nothing"});
  line.heading("Machine").integer("jobs", &options.jobs, Range<int>{1, 1024}, {"runs at the same time"});
  declare_device(line, &options.device);
  line.heading("Output")
      .text("out", &options.out, {"folder of all runs and results. The same command goes on with what is there"})
      .text("record", &options.record,
          {"folder: keeps the results there as JSON and writes its README.md from all of them; without a NAME, that "
           "alone"})
      .text("records", &options.records,
          {"of --list, --stale and --check: the folder with what is recorded; examples/whence/papers where that is"})
      .flag("stale", &options.stale, {"which recorded results are older than the code or the options that make them"})
      .flag("check", &options.check, {"the numbers must be those recorded, where code and machine are the same"})
      .flag("quiet", &options.quiet, {"no progress"});
  line.example("whence reproduce --list", "what there is");
  line.example("whence reproduce cope/table2-flip_flop", "nine small models, ours beside the paper's");
  line.example("whence reproduce dape-v2/table1 --data austen.txt", "kernels of a convolution, on text");
}

bool has_preset(const PaperTable& table, const std::string& preset) {
  const bool alone = table.presets.empty() && table.kind == Kind::commanded;
  return alone || std::ranges::count(table.presets, preset, &papers::Preset::name) > 0;
}

std::vector<PaperTable> tables_of(const Options& options) {
  std::vector<PaperTable> tables;
  const auto add = [&](const PaperTable& table) {
    if (std::ranges::count(tables, table.name, &PaperTable::name) == 0) tables.push_back(table);
  };
  for (const std::string& name : options.names) {
    if (name != "all") {
      add(papers::find_table(name));
      continue;
    }
    for (const PaperTable& table : papers::all_papers().tables)
      if (has_preset(table, options.preset)) add(table);
  }
  return tables;
}

void check(const CommandLine& line, const Options& options, const std::vector<PaperTable>& tables) {
  for (const PaperTable& table : tables)
    if (table.kind == Kind::not_ours)
      throw InputError(table.name, ": ", table.what, "; it cannot be run here: ", table.note);
  line.refuse_unless("row", options.record.empty(), "no --record, which keeps whole tables");
  const auto any = [&](const auto& is_so) { return tables.empty() || std::ranges::any_of(tables, is_so); };
  const bool trained = any([](const PaperTable& table) { return !table.presets.empty(); });
  for (const char* name : {"preset", "seeds", "set", "row", "check", "jobs", "device"})
    line.refuse_unless(name, trained, "a table for which something is trained");
  line.refuse_unless("data", any([](const PaperTable& table) { return reads(table, "TEXT", papers::Reads::text); }),
      "a table of language models");
  line.refuse_unless("code", any([](const PaperTable& table) { return reads(table, "CODE", papers::Reads::code); }),
      "a table of models of code");
}

int run(int argc, char** argv) {
  Options options;
  CommandLine line("whence reproduce", "A table or figure of the papers: ours beside theirs, and what holds.");
  declare_options(line, options);
  if (line.shows_page(argc, argv)) return 0;
  if (options.list) return print_list(papers::read_records(records_of(options))), 0;
  if (options.stale) return print_staleness(papers::read_records(records_of(options)));
  if (options.names.empty() && options.record.empty())
    throw InputError("no name given; a table or figure of the papers required; whence reproduce --list lists them");
  const std::vector<PaperTable> tables = tables_of(options);
  check(line, options, tables);
  std::vector<Reproduction> all;
  for (const PaperTable& table : tables) all.emplace_back(table, options);
  install_interrupt_handler();
  int code = 0;
  for (Reproduction& each : all) {
    if (options.plan)
      each.say();
    else
      code = std::max(code, each.run());
    if (!options.plan && !options.record.empty()) papers::write_page(options.record);
    std::cout << '\n';
  }
  if (options.names.empty()) papers::write_page(options.record);
  return code;
}

const RegisterCommand registered{
    {"reproduce", Purpose::train, "a table or figure of the papers by name: ours beside theirs, and what holds", run}};

}  // namespace
}  // namespace whence
