// A page that shows a run, as plain numbers and text, and the writer of one self-contained HTML file. Knows nothing of
// tensors: a program copies what it wants to show into these structs.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "examples/whence/report/table.h"

namespace whence::report {

struct PageTable {
  std::string title, note;
  Table table;
  bool folded = false;  // closed until the reader opens it
};

// A table longer and wider than the screen.
struct Matrix {
  enum class Look : unsigned char { plain, quiet, marked, bad };  // marked: a note explains what surprises
  struct Cell {
    std::string text, note;
    Look look = Look::plain;
  };
  struct Row {
    std::string group, name;
    std::vector<Cell> cells;  // one per column
  };
  std::string title, note;
  std::vector<std::pair<std::string, std::string>> columns;  // name and meaning
  std::vector<Row> rows;                                     // those of one group together
};

struct Curve {
  std::string name;
  std::vector<double> x, y;  // equally long; a point that is not finite (or not positive on a log axis) leaves a gap
};

struct Plot {
  std::string title, x_label, y_label;
  std::vector<Curve> curves;
  bool log_y = false;
};

struct Page {
  std::string title, verdict, introduction;                // a blank line starts a new paragraph
  std::vector<std::pair<std::string, std::string>> links;  // of files beside the page: name, and what is there
  std::vector<Matrix> matrices;
  std::vector<PageTable> tables;
  std::vector<Plot> plots;
  std::vector<std::string> footnotes;
};

// One table as HTML, complete without script.
[[nodiscard]] std::string table_html(const PageTable& table);

// A matrix as a <section>. Without script it can be read and scrolled; table.js adds the filter and the keys. Error
// where a row has not one cell per column.
[[nodiscard]] std::string matrix_html(const Matrix& matrix);

// Plots for a page; nothing of none. plot.js draws them, and report::plot_script must stand behind them. Error where a curve
// has not one y for every x.
[[nodiscard]] std::string plots_html(const std::vector<Plot>& plots);

// The page as one HTML document that refers to nothing outside. Throws where sizes or ranges contradict each other.
[[nodiscard]] std::string html(const Page& page);

}  // namespace whence::report
