// A grid's outcome as tables: everything in long form, two axes across each other, and what differs.
#pragma once

#include <string>
#include <vector>

#include "examples/whence/lab/outcome.h"
#include "examples/whence/report/table.h"

namespace whence {

// Those of all grids of a call, which share their axes. For people, and with one number in each cell.
struct LongTables {
  LongTables(const std::vector<std::string>& axes, bool text);
  void add(const Outcome& outcome);

  Table scores, numbers, runs, differences;
  bool tested = false;  // some difference has enough seeds on both sides for Welch's test
};
inline constexpr int seeds_for_a_test = 3;

// Table of one axis over another; axes besides a grid's own are "scheme", "seed" and "test-set".
struct CrossTable {
  std::string title;  // the task, and the place on all other axes
  Table table;
};
// One for each place on the other axes; over seeds, unless they are one of the two.
[[nodiscard]] std::vector<CrossTable> cross_tables(
    const Outcome& outcome, const std::string& rows, const std::string& columns);

}  // namespace whence
