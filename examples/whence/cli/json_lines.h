// Files of one JSON object a line: our logs, and users' training data.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "examples/whence/cli/json.h"
#include "examples/whence/cli/output_file.h"

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

// Appends objects to a file (examples/whence/cli/output_file.h: one of ours, or SystemError). append() writes each
// before it returns, so that a crash loses at most the present line.
class JsonLog {
 public:
  using Mode = OutputFile::Mode;

  JsonLog(const std::filesystem::path& path, Mode mode) : file_(path.string(), mode) {}
  void append(const Json& record) { file_.append(record.line() + '\n'); }

 private:
  OutputFile file_;
};

}  // namespace whence
