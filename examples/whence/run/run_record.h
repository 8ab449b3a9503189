// run.json: the options that a run was started with, so that it can be repeated.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "examples/whence/cli/fields.h"
#include "examples/whence/cli/json.h"

namespace whence {

struct RunRecord {
  std::string program, version;                              // "train", "0.1.0"
  std::string subject;                                       // a task's name
  std::vector<std::pair<std::string, std::string>> options;  // every option with its value
  std::vector<std::string> given;                            // options that were on the command line
  std::string data;                                          // SHA-256 of the data
  std::vector<std::pair<std::string, std::string>> facts;    // for readers: parameters, executor, ...

  [[nodiscard]] std::string option(const std::string& name) const;  // its value; empty: none
};

// Texts that read as a number or a truth value become one. A name that occurs several times becomes a list.
[[nodiscard]] Json object_of(const std::vector<std::pair<std::string, std::string>>& pairs);
[[nodiscard]] Json json_of(const RunRecord& record);
// Formats JSON over several lines; texts that read as a number or a truth value are written as such.
[[nodiscard]] std::string text_of(
    const RunRecord& record);  // with a seal: the SHA-256 of the text with 0 as its digits
// Finds the runs at most two folders below, such as lab.py's, in the order of their names.
[[nodiscard]] std::vector<std::string> runs_below(const std::filesystem::path& folder);
// SystemError when it cannot be read; FileError when it is no record; InputError with the runs below its folder, if any.
[[nodiscard]] RunRecord read_run_record(const std::filesystem::path& path);

// Options that say where a run works: no run records them.
extern const std::set<std::string> never_recorded;

// Gives the run's values to those options that `fields` has. Options that were given then are given now; others are defaults.
void set_recorded(Fields& fields, const RunRecord& record);

}  // namespace whence
