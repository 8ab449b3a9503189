// What came out of a grid: its cells by place, one measure of them, and what it is compared with.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/statistics.h"
#include "examples/whence/lab/grid.h"
#include "examples/whence/tasks/task.h"

namespace whence {

// Cells that differ in the seed alone.
struct Group {
  std::string scheme, label;                 // "cope", and with the options that vary: "cope, variables 3"
  std::map<std::string, std::string> place;  // as of its cells, without the seed
  std::vector<const GridCell*> cells;
  std::size_t failed() const;  // of the cells, the missing ones too
};

class Outcome {
 public:
  // `measure`: a name of GridCell::Score::measures; empty: the task's own, or what lm's runs can be compared by.
  // REQUIRES: the grid outlives it.
  Outcome(const Grid& grid, const std::string& measure);

  const Grid& grid() const { return grid_; }
  const std::string& measure() const { return measure_; }  // lower is better, but of Delta-P
  int digits() const { return digits_; }                   // after the point that are worth reading
  const std::vector<Group>& groups() const { return groups_; }
  const std::vector<std::string>& sets() const { return sets_; }  // that any cell was tested on; not empty
  // Sets worth a row: all of them, or their average alone where a task has many, such as lengths.
  std::vector<std::string> rows() const;

  // Of one run on one set, or on the average of all; nan where there is none.
  double value(const GridCell& cell, const std::string& set) const;
  // Of those that did not fail, one number each.
  std::vector<double> values(const std::vector<const GridCell*>& cells, const std::string& set) const;
  double best_guess(const Group& group, const std::string& set) const;  // nan: none is known
  // Of the task with the options that this group varies, and its defaults otherwise: those that the figures are for.
  std::optional<tasks::PaperFigure> paper(const Group& group, const std::string& set) const;

  // "0.31 (0.02)"; "failed" where all cells did; "0.31, 1 failed".
  std::string text(const std::vector<const GridCell*>& cells, const std::string& set) const;

 private:
  bool is_average(const std::string& set) const;
  void find_sets();

  const Grid& grid_;
  std::string measure_;
  int digits_ = 2;
  std::vector<Group> groups_;
  std::vector<std::string> sets_;
};

// A number with so many digits after the point; "-" for nan.
[[nodiscard]] std::string shown(double number, int digits);
// "0.31 (0.02)", or the mean alone of one value.
[[nodiscard]] std::string mean_and_deviation(const Summary& found, int digits);

}  // namespace whence
