// A page about a run, as plain numbers and text, and the writer of one self-contained HTML file. It does not depend on
// tensors: a program copies numbers and text into these structs.
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
  enum class Look : unsigned char { plain, quiet, marked, bad };  // marked: a note explains a surprising cell
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
  std::vector<Row> rows;                                     // rows of a group are adjacent
};

struct Curve {
  std::string name;
  std::vector<double> x, y;  // equally long; a point that is not finite (or not positive on a log axis) makes a gap
};

struct Plot {
  std::string title, x_label, y_label;
  std::vector<Curve> curves;
  bool log_y = false;
};

struct Page {
  std::string title, verdict, introduction;                // a blank line starts a new paragraph
  std::vector<std::pair<std::string, std::string>> links;  // of files next to the page: name and description
  std::vector<Matrix> matrices;
  std::vector<PageTable> tables;
  std::vector<Plot> plots;
  std::vector<std::string> footnotes;
};

// Returns a table as HTML. It needs no script.
[[nodiscard]] std::string table_html(const PageTable& table);

// Returns a matrix as a <section>. Without script it can be read and scrolled; table.js adds the filter and the keys. Throws
// Error if a row does not have one cell per column.
[[nodiscard]] std::string matrix_html(const Matrix& matrix);

// Returns plots for a page, or "" if there are none. plot.js draws them, and report::plot_script must follow them. Throws
// Error if a curve does not have one y for each x.
[[nodiscard]] std::string plots_html(const std::vector<Plot>& plots);

// Returns the page as one HTML document without external references. Throws Error as matrix_html and plots_html do.
[[nodiscard]] std::string html(const Page& page);

}  // namespace whence::report
