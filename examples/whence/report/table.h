// A table of results: for a terminal, for programs, for a page.
#pragma once

#include <string>
#include <vector>

namespace whence {

// Rows of text under a header. A column of numbers ("3.4", "-1e-5", "12.5 %", "38.2 ±1.1", "0.5 (0.1)", "-") is aligned
// right.
class Table {
 public:
  Table(std::vector<std::string> header);

  // Error unless the row has as many cells as the header.
  Table& row(std::vector<std::string> cells);

  [[nodiscard]] Table without_dashes() const;  // without the columns in which every cell is "-"
  [[nodiscard]] std::string text() const;      // aligned by the width of the characters and not their bytes
  [[nodiscard]] std::string csv() const;       // RFC 4180, lines ending in "\n"
  [[nodiscard]] std::string json() const;      // a line for each row, an object; numbers as such, "-" as null
  [[nodiscard]] std::string html() const;      // a <table>, complete without script; the first column names its row

  [[nodiscard]] const std::vector<std::string>& header() const { return header_; }
  [[nodiscard]] const std::vector<std::vector<std::string>>& rows() const { return rows_; }

 private:
  [[nodiscard]] bool is_numeric(std::size_t column) const;

  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace whence
