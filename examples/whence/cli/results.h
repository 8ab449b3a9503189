// Results for people and for programs: a table on the screen and as CSV, and a log of one JSON object per line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "examples/whence/cli/output_file.h"

namespace whence {

// Rows of text under a header. A column whose cells all look like numbers ("3.4", "-1e-5",
// "12.5 %", "-") is aligned right.
class Table {
 public:
  explicit Table(std::vector<std::string> header);

  // Error unless the row has as many cells as the header.
  Table& row(std::vector<std::string> cells);

  // Aligned for a terminal, by the width of the characters and not their bytes.
  [[nodiscard]] std::string text() const;

  // RFC 4180, lines ending in "\n".
  [[nodiscard]] std::string csv() const;

  [[nodiscard]] const std::vector<std::string>& header() const { return header_; }
  [[nodiscard]] const std::vector<std::vector<std::string>>& rows() const { return rows_; }

 private:
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
};

// A number with `digits` after the point; "nan" and "inf" as words.
[[nodiscard]] std::string fixed(double value, int digits);

using LogValue = std::variant<bool, std::int64_t, double, std::string>;
using LogRecord = std::vector<std::pair<std::string, LogValue>>;

// The record as a JSON object on one line, fields in the given order. JSON has no nan and no inf: they become null.
[[nodiscard]] std::string json_line(const LogRecord& record);

// The same object over several lines, for a file that people read.
[[nodiscard]] std::string json_page(const LogRecord& record);

// Appends records to a file (examples/whence/cli/output_file.h: one of ours, or SystemError). Each is written before append()
// returns, so that a crash loses at most the present line.
class JsonLog {
 public:
  using Mode = OutputFile::Mode;

  JsonLog(const std::filesystem::path& path, Mode mode);
  void append(const LogRecord& record);

 private:
  OutputFile file_;
};

}  // namespace whence
