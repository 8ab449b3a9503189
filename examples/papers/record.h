// Results that are kept: a JSON file for each table and preset, and the page that is written from all of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "examples/papers/compare.h"

namespace whence::papers {

// What a command of a table said.
struct Said {
  std::string command, output;
  int exit_code = 0;
  double seconds = 0;
};

struct Record {
  std::string table, preset, command;  // as it is typed, the user's files without their folders
  std::vector<std::string> lab;        // the same runs, as words for `lab`
  std::string code;                    // code_hash() of what trained; "several" where the runs are not of one code
  std::string commit, machine, date;   // of the record
  std::string text;                    // name and SHA-256 of the user's file; empty: none
  int seeds = 0, runs = 0, failed = 0;
  double processor_seconds = 0;  // of all runs, those too that another table trained; 0: nothing was trained
  std::map<std::string, double> operations;  // of the runs of each preset; without a recorded time, what it may cost
  Measurement measurement;
  std::vector<Said> said;
  std::vector<std::string> figures;  // file names in FOLDER/results/figures
};

// Of a figure that is kept: larger ones are pages of their own, which the command writes again.
inline constexpr std::uintmax_t largest_figure = 200'000;  // bytes

// FOLDER/results/NAME-PRESET.json, "/" in the name as "-".
void write_record(const std::filesystem::path& folder, const Record& record);
// By table, in the papers' order; InputError for a file that is none.
[[nodiscard]] std::vector<Record> read_records(const std::filesystem::path& folder);

// "code c0ffee" where a record is of other code than this program, or its runs would be others by now; empty: neither.
[[nodiscard]] std::string staleness(const PaperTable& table, const Record& record);

// What differs from a record of the same table, one line each: the same code must give the same numbers on the same machine.
[[nodiscard]] std::vector<std::string> differences(const Record& now, const Record& recorded);

// FOLDER/README.md, of all records there.
void write_page(const std::filesystem::path& folder);

// What all its runs take on two cores: "7 min".
[[nodiscard]] std::string cost_text(const Record& record);
// Of another preset, as many times as it has more operations: "about 9 h"; empty where that is not known.
[[nodiscard]] std::string cost_text(const Record& record, const std::string& preset);

// The commit of the sources around `folder`, with "+" where those that train differ from it; "unknown" without git, whose
// words go to the file `said`.
[[nodiscard]] std::string commit_of(const std::filesystem::path& folder, const std::filesystem::path& said);
// "AMD EPYC 9B14, 2 threads"
[[nodiscard]] std::string this_machine();

}  // namespace whence::papers
