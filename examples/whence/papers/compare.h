// Ours beside the papers' figures, and what becomes of the comparisons that the papers make.
#pragma once

#include <string>
#include <vector>

#include "examples/whence/lab/grid.h"
#include "examples/whence/papers/paper_table.h"
#include "examples/whence/report/table.h"

namespace whence::papers {

// InputError with the names that are near.
[[nodiscard]] const PaperTable& find_table(const std::string& name);
[[nodiscard]] const Preset& find_preset(const PaperTable& table, const std::string& name);  // InputError: has no such
[[nodiscard]] const std::vector<std::string>& tasks_at(const PaperTable& table, const Preset& preset);

inline constexpr const char* best_guess = "best guess";  // stands as a method behind the others: it needs no model

// What was found here for a method in a column.
struct Measured {
  std::string method, column;  // by name
  std::vector<double> values;  // one for each seed whose run did not fail
};

struct Measurement {
  std::string measure;  // of lab's
  int digits = 0;       // after the point that are worth reading
  std::vector<Measured> all;
  [[nodiscard]] std::vector<double> of(const std::string& method, const std::string& column) const;  // may be empty
};

// Is the cell the method's, whatever its column?
[[nodiscard]] bool is_of(const GridCell& cell, const Method& method);

// Error where a method of the preset, or a column of its tasks, has no cell in the grids.
void require_cells(const PaperTable& table, const Preset& preset, const std::vector<Grid>& grids);

// Of grids that are trained.
[[nodiscard]] Measurement measured(const PaperTable& table, const std::vector<Grid>& grids);

enum class Verdict { holds, does_not, not_decided };
struct Decision {
  Verdict verdict;
  std::string test;  // behind it: "Welch's test, 3 and 3 seeds: p = 0.0012"
};
// Are the first values lower than the second?
[[nodiscard]] Decision decide(const std::vector<double>& lower, const std::vector<double>& higher);

struct Judged {
  Claim claim;
  Decision decision;
  std::string by_the_paper;  // the same test of the figures that the paper prints; "-": they have no deviations
};
// Of the claims whose methods and column the preset has.
[[nodiscard]] std::vector<Judged> judged(const PaperTable& table, const Preset& preset, const Measurement& measurement);

// The table with these methods alone, and the claims between them; empty: the whole table. InputError for one that the
// table does not have.
[[nodiscard]] PaperTable with_rows(const PaperTable& table, const std::vector<std::string>& methods);

// A line for each method and column. Mean and, from two seeds on, standard deviation.
[[nodiscard]] Table beside_paper(const PaperTable& table, const Measurement& measurement);
// The paper's alone, of a table for which nothing is trained.
[[nodiscard]] Table printed_figures(const PaperTable& table);
// A line for each claim.
[[nodiscard]] Table verdicts(const PaperTable& table, const Preset& preset, const Measurement& measurement);

}  // namespace whence::papers
