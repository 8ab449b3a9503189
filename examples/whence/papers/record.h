// What is recorded of a table: the numbers of every seed, how they were made, and the bits of short trainings by which
// one knows whether this program would make them again. recorded.txt holds all of it as text.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "examples/whence/papers/compare.h"

namespace whence::papers {

// By "TASK SCHEME", the first 16 digits of the SHA-256 of what a short training leaves, weights and results
// (staleness.h).
using Bits = std::map<std::string, std::string>;

struct Record {
  std::string table = {}, preset = {};
  std::string date = {}, program = {};  // "2026-11-24 13:05", "whence 0.1.0 (commit 4729dbe1)"
  std::string machine = {};             // "AMD EPYC, 2 threads"
  std::string vectors = {};             // what the bits depend on: "avx512", or the GPU
  std::string set = {}, text = {};      // the user's --set; name and SHA-256 of the user's file, empty: none
  std::string lab = {};                 // the same runs, as they are typed for `lab`
  int seeds = 0, runs = 0, failed = 0;
  double core_seconds = 0;                        // of all runs and commands, those too that another table trained
  std::map<std::string, double> operations = {};  // of the runs of each preset
  Measurement measurement = {};
  Bits bits = {};
};

// In the papers' order; a line for each method and column.
[[nodiscard]] std::string text_of(std::vector<Record> records);
// FileError "recorded.txt: line 12: ..." with what was expected.
[[nodiscard]] std::vector<Record> read_records(const std::string& file, std::string_view text);
// What this program was built with: papers/recorded.txt.
[[nodiscard]] const std::vector<Record>& recorded();

[[nodiscard]] const Record* find_record(
    const std::vector<Record>& records, const std::string& table, const std::string& preset);  // nullptr: none

// What becomes of the paper's comparisons; none of a table that is not there any more.
[[nodiscard]] std::vector<Judged> judged_of(const Record& record);

// What differs from a record of the same table, one line each. `rows`: those alone; empty: all.
[[nodiscard]] std::vector<std::string> differences(
    const Record& now, const Record& recorded, const std::vector<std::string>& rows);

// Seconds on two cores that do nothing else.
[[nodiscard]] std::string time_text(double seconds);  // "7.2 min"
// Of another preset, as many times as it has more operations: "about 9 h"; empty where that is not known.
[[nodiscard]] std::string cost_text(const Record& record, const std::string& preset);

// Every table and figure: what it asks, how it is had here, what it costs. At most 120 columns wide.
void print_list(const std::vector<Record>& records);

// The page of all records: what the papers claim, and what of it holds here.
[[nodiscard]] std::string summary_page(const std::vector<Record>& records);

}  // namespace whence::papers
