// What is trained for a table: the runs of its grids, in one pool that all tables share. Two tables that ask for the
// same task, scheme, seed and options train them once.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "examples/whence/lab/grid.h"
#include "examples/whence/papers/paper_table.h"

namespace whence::papers {

struct Asked {
  std::string preset = "mini", set = {}, text = {}, code = {};  // --set; the user's files, empty: none given
  std::string device = {};                                      // that changes numbers: empty for the CPU
  std::vector<std::string> rows = {};                           // methods: those alone; empty: all of the preset
  int seeds = 0;                                                // 0: the preset's
  std::filesystem::path folder = {};                            // of the pool
};

struct Runs {
  std::vector<Grid> grids;  // one for each task, none of them empty
  std::string lab;          // the same runs as one would type them to `lab`
};

// InputError as `lab` has it, when a text is needed and none was given, and when the preset has none of the rows.
// Nothing is trained and nothing written.
[[nodiscard]] Runs plan_runs(const PaperTable& table, const Asked& asked);

// Of all training steps of all runs, without tests; each pair of tokens counts, also those that a mask hides.
[[nodiscard]] double operations(const Runs& runs);

// "whence lab TASK ... --set ...", the user's file without its folder.
[[nodiscard]] std::string lab_command(const PaperTable& table, const Asked& asked);

}  // namespace whence::papers
