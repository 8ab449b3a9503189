// The tables and figures of the papers as data: what each asks, how it is had here, and what the paper printed. One file
// for each paper.
#pragma once

#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace whence::papers {

enum class Kind {
  grid,          // trained by `reproduce` itself, as `lab` does
  lab,           // many runs, for which there is a command, but no comparison here yet
  figure,        // drawn by `look` from a run
  timing,        // measured by `bench`
  plan,          // of models too large: planned by `models --plan`
  construction,  // weights by design, by `recall`
  not_ours       // needs other people's models, data or services
};

// The arguments of `lab` that all presets share.
struct GridText {
  std::string task;  // or lm
  std::string schemes;
  std::vector<std::string> vary = {};
};

struct Preset {
  std::string name;  // "mini", "small" or "paper"
  std::string lab;   // lab's own preset
  std::string set;   // and its --set
};

struct Method {
  std::string name;    // as the paper has it
  std::string scheme;  // as it stands in the grid
};

// Where a column's numbers lie in the grid.
struct Column {
  std::string name;                             // as the paper has it
  std::string set = {};                         // the test set; empty: perplexity at so many times the training length
  int times = 0;                                // that many
  std::pair<std::string, std::string> at = {};  // an axis and its value; empty: there is none
};

struct Printed {
  std::string method, column;  // by name
  double mean;
  double deviation = std::numeric_limits<double>::quiet_NaN();  // nan: not printed
};

// Of error or perplexity: lower is better.
struct Claim {
  std::string better, worse;  // methods
  std::string column;
};

struct PaperTable {
  std::string name;   // as it is typed: "cope/table3"
  std::string what;   // in a few words
  std::string place;  // "Table 3, 9; section 5.3"
  Kind kind;
  std::vector<std::string> commands =
      {};                 // of other kinds than grid, to be typed with what stands in capitals replaced
  std::string note = {};  // what a reader of the result should know

  // Of grids alone.
  GridText grid = {};
  std::vector<Preset> presets = {};
  std::vector<Method> methods = {};
  std::vector<Column> columns = {};
  std::vector<Printed> printed = {};
  std::vector<Claim> claims = {};
};

[[nodiscard]] const std::vector<PaperTable>& cope_tables();     // arXiv:2405.18719
[[nodiscard]] const std::vector<PaperTable>& dape_tables();     // arXiv:2405.14722
[[nodiscard]] const std::vector<PaperTable>& dape_v2_tables();  // arXiv:2410.04798

}  // namespace whence::papers
