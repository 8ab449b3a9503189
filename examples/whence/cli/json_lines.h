// Files of one JSON object a line: logs of ours, and what people prepare for training.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "examples/whence/cli/json.h"
#include "examples/whence/cli/output_file.h"

namespace whence {

// Line after line of `text`, the contents of `path`, read strictly: errors are FileError and name file and line
// ("train.jsonl: line 3: no field 'answer'; ..."). Lines of blanks alone count, but say nothing.
void for_each_json_line(std::string_view text, const std::string& path, const std::function<void(const Json&)>& take);

// Returns the object that the first line of `text` is, blank ones apart; none where it is something else.
[[nodiscard]] std::optional<Json> first_json_line(std::string_view text);

// Returns the first line of a file that is not blank; nothing where it is no regular one, or cannot be read.
[[nodiscard]] std::string first_line_of(const std::string& path);

// True if a file is JSON lines: by its name (.jsonl, .ndjson), or by its content `text`, whose first line is then an object
// with a text named `field`.
[[nodiscard]] bool is_jsonl(const std::string& path);
[[nodiscard]] bool is_json_lines(const std::string& path, std::string_view text, const std::string& field);

// Appends objects to a file (examples/whence/cli/output_file.h: one of ours, or SystemError). Each is written before
// append() returns, so that a crash loses at most the present line.
class JsonLog {
 public:
  using Mode = OutputFile::Mode;

  JsonLog(const std::filesystem::path& path, Mode mode) : file_(path.string(), mode) {}
  void append(const Json& record) { file_.append(record.line() + '\n'); }

 private:
  OutputFile file_;
};

}  // namespace whence
