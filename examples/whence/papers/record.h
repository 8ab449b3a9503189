// Results that are kept: a JSON file for each table and preset, and the page that is written from all of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "examples/whence/machine/device_choice.h"
#include "examples/whence/papers/compare.h"

namespace whence::papers {

// What a command of a table said.
struct Said {
  std::string command, output;
  int exit_code = 0;
  double seconds = 0;
  std::vector<std::string> figures = {};  // files that it drew, none where it failed; not kept with what is said
};

struct Record {
  std::string table, preset, command;  // as it is typed, the user's files without their folders
  std::vector<std::string> lab;        // the same runs, as they are typed for `lab`
  std::string set;                     // the user's --set
  std::string code;                    // code_hash() of what trained; "several" where the runs are not of one code
  std::string commit, machine, date;   // of the record
  std::string text;                    // name and SHA-256 of the user's file; empty: none
  int seeds = 0, runs = 0, failed = 0;
  double processor_seconds = 0;              // of all runs, those too that another table trained
  std::map<std::string, double> operations;  // of the runs of each preset; without a recorded time, what it may cost
  Measurement measurement;
  std::vector<Said> said;
  std::vector<std::string> figures;    // files in FOLDER/results/figures, "cope-figure4-mini/cope-4.svg"
  std::vector<std::string> too_large;  // those that are not kept: the command writes them again
};

inline constexpr std::uintmax_t largest_figure = 150'000;  // bytes, of what is kept

// "cope-table3-mini": what is kept of a table and preset has this name.
[[nodiscard]] std::string record_name(const std::string& table, const std::string& preset);
// FOLDER/results/RECORD_NAME.json
void write_record(const std::filesystem::path& folder, const Record& record);
// By table, in the papers' order, then those of tables that are not known; FileError for a file that is none, with its
// name and the field or the line.
[[nodiscard]] std::vector<Record> read_records(const std::filesystem::path& folder);

// Its table and preset are there.
[[nodiscard]] bool has_place(const Record& record);
// What becomes of the paper's comparisons. REQUIRES: it has a place.
[[nodiscard]] std::vector<Judged> judged_of(const Record& record);
// Why a record is old: of other code than this program, of a table or preset that is gone, or of runs that would be
// others by now; empty: it is not.
[[nodiscard]] std::string staleness(const Record& record);

// What differs from a record of the same table, one line each: the same code must give the same numbers on the same
// machine. `rows`: those alone; empty: all.
[[nodiscard]] std::vector<std::string> differences(
    const Record& now, const Record& recorded, const std::vector<std::string>& rows);

// InputError where FOLDER/README.md is there and is not such a page.
void require_own_page(const std::filesystem::path& folder);
// FOLDER/README.md, of all records there.
void write_page(const std::filesystem::path& folder);

// Seconds of all its runs and commands: half of the processor's time, as on two cores that do nothing else.
[[nodiscard]] double cost_of(const Record& record);
[[nodiscard]] std::string time_text(double seconds);  // "7.2 min"
[[nodiscard]] std::string cost_text(const Record& record);
// Of another preset, as many times as it has more operations: "about 9 h"; empty where that is not known.
[[nodiscard]] std::string cost_text(const Record& record, const std::string& preset);

// The commit of whence's sources around `folder`, with "+" where those that train differ from it; "unknown" where there
// are none, or no git, whose words go to the file `said`.
[[nodiscard]] std::string commit_of(const std::filesystem::path& folder, const std::filesystem::path& said);
// "AMD EPYC 9B14, 2 threads", and the device where that is not the CPU
[[nodiscard]] std::string machine_of(const DeviceChoice& choice);

}  // namespace whence::papers
