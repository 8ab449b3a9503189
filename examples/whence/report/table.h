// A table of results, for a terminal, a program or a page.
#pragma once

#include <string>
#include <vector>

namespace whence {

// Rows of text under a header. A column of numbers ("3.4", "-1e-5", "12.5 %", "38.2 ±1.1", "0.5 (0.1)", "-") is right-aligned.
class Table {
 public:
  Table(std::vector<std::string> header);

  // Throws Error if the numbers of cells in the row and in the header differ.
  Table& row(std::vector<std::string> cells);

  [[nodiscard]] Table without_dashes() const;  // drops columns in which every cell is "-"
  [[nodiscard]] std::string text() const;      // aligned by the display width of characters, not by bytes
  [[nodiscard]] std::string json() const;      // an object on a line for each row; numbers as numbers, "-" as null
  [[nodiscard]] std::string html() const;      // a <table> that needs no script; the first column names the row

  [[nodiscard]] const std::vector<std::string>& header() const { return header_; }
  [[nodiscard]] const std::vector<std::vector<std::string>>& rows() const { return rows_; }

 private:
  [[nodiscard]] std::vector<bool> numeric_columns() const;

  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace whence
