// Ours beside the papers' figures, and what becomes of the comparisons that the papers make.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "examples/app/results.h"
#include "examples/lab/outcome.h"
#include "examples/papers/paper_table.h"

namespace whence::papers {

[[nodiscard]] std::vector<PaperTable> all_tables();

// InputError with the names that are near.
[[nodiscard]] PaperTable find_table(const std::string& name);
[[nodiscard]] const Preset& find_preset(const PaperTable& table, const std::string& name);  // InputError: has no such

// "lab" for grids, "look", "bench", ...
[[nodiscard]] std::string how(const PaperTable& table);

// The words behind `lab`, without --seeds.
[[nodiscard]] std::vector<std::string> lab_words(const PaperTable& table, const Preset& preset);

enum class Verdict { holds, does_not, not_decided };
struct Decision {
  Verdict verdict;
  std::string test;  // behind it: "Welch's test, 3 and 3 seeds: p = 0.0012"
};
// Are the first values lower than the second? Values of equal seeds, one each.
[[nodiscard]] Decision decide(const std::vector<double>& better, const std::vector<double>& worse);
[[nodiscard]] std::string verdict_text(Verdict verdict);

// Error where a method, or a column, has no cell in the grid.
void require_cells(const PaperTable& table, const Grid& grid);

// A line for each method and column. Mean and, from two seeds on, standard deviation.
[[nodiscard]] Table beside_paper(const PaperTable& table, const Outcome& outcome);
// A line for each claim.
[[nodiscard]] Table verdicts(const PaperTable& table, const Outcome& outcome);

}  // namespace whence::papers
