// Files of one JSON object a line: our logs, users' training data, and --json.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <streambuf>
#include <string>
#include <string_view>

#include "examples/whence/cli/fields.h"
#include "examples/whence/cli/json.h"

namespace whence {

// Reads `text`, the contents of `path`, strictly, line by line: errors are FileError and name file and line
// ("train.jsonl: line 3: no field 'answer'; ..."). Blank lines are counted and skipped.
void for_each_json_line(std::string_view text, const std::string& path, const std::function<void(const Json&)>& take);

// Returns the object in the first line of `text` that is not blank; nothing if the line holds something else.
[[nodiscard]] std::optional<Json> first_json_line(std::string_view text);

// Returns the first line of a file that is not blank; nothing if it is no regular file or cannot be read.
[[nodiscard]] std::string first_line_of(const std::string& path);

// True if a file is JSON lines: by its name (.jsonl, .ndjson), or by its content `text`, if the first line is an object
// with a text named `field`.
[[nodiscard]] bool is_jsonl(const std::string& path);
[[nodiscard]] bool is_json_lines(const std::string& path, std::string_view text, const std::string& field);

// Appends objects to a regular file. append() writes each before it returns, so that a crash loses at most the present
// line. Symbolic and hard links are refused, and a pipe is not waited for: SystemError, as when writing fails.
class JsonLog {
 public:
  enum class Mode { fresh, append };

  JsonLog(const std::filesystem::path& path, Mode mode);
  ~JsonLog();
  JsonLog(const JsonLog&) = delete;
  JsonLog& operator=(const JsonLog&) = delete;

  void append(const Json& record) const;

 private:
  std::string path_;
  int descriptor_;
};

// --json: from here to its end, standard output has lines of JSON alone, if `on`; text for people goes to standard error.
class JsonOutput {
 public:
  explicit JsonOutput(bool on);
  ~JsonOutput();
  JsonOutput(const JsonOutput&) = delete;
  JsonOutput& operator=(const JsonOutput&) = delete;

  void lines(const std::string& text) const;  // does nothing if off

 private:
  std::streambuf* output_;
};

inline Fields& declare_json(Fields& line, bool* json) {
  return line.flag("json", json, {"results as lines of JSON on standard output; all else goes to standard error"});
}

// Removes the temporary files that killed processes left in `folder`: regular files named NAME.tmp-PID-COUNT or
// .written-by-PID if process PID has ended, or is this one; with a `file`, only those of this NAME. Files that cannot
// be removed stay.
void remove_leftovers(const std::string& folder, const std::string& file = {});

}  // namespace whence
