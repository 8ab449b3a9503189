// run.json: what a run was started with, so that it can be repeated.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "examples/whence/cli/fields.h"
#include "examples/whence/cli/json.h"

namespace whence {

struct RunRecord {
  std::string program, version;                              // "train", "0.1.0"
  std::string subject;                                       // what it was run on: a task's name
  std::vector<std::pair<std::string, std::string>> options;  // every option with its value
  std::vector<std::string> given;                            // those that were on the command line
  std::string data;                                          // SHA-256 of the data
  std::vector<std::pair<std::string, std::string>> facts;    // for readers: parameters, executor, ...

  [[nodiscard]] std::string option(const std::string& name) const;  // its value; empty: it has none
};

[[nodiscard]] Json json_of(const RunRecord& record);
// JSON over several lines; what reads as a number or a truth value is written as one.
[[nodiscard]] std::string text_of(const RunRecord& record);
// The runs at most two folders below this one, as lab.py's are below its own, in the order of their names.
[[nodiscard]] std::vector<std::string> runs_below(const std::filesystem::path& folder);
// SystemError when it cannot be read; FileError when it is none; InputError that names them where runs are below its folder in its place.
[[nodiscard]] RunRecord read_run_record(const std::filesystem::path& path);

// Options that say where, not what: no run records them.
extern const std::set<std::string> never_recorded;

// The options among the words of a command line, each with what stands behind its "=", or else in the next word.
using TypedOptions = std::map<std::string, std::string>;
[[nodiscard]] TypedOptions options_in(const std::vector<std::string>& words);

// Gives the run's values to those options that `fields` has: what was given then is given now, and the rest is the default.
void set_recorded(Fields& fields, const RunRecord& record);

// The run.json that a command line asks for: that of --from; with --resume, the one in --out if there is one.
[[nodiscard]] std::optional<std::string> record_to_repeat(const TypedOptions& typed);

}  // namespace whence
