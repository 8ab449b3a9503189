// What a laboratory leaves: tables and figures of its outcomes, on the screen and as files.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "examples/whence/lab/outcome.h"
#include "examples/whence/report/report.h"
#include "examples/whence/report/table.h"

namespace whence {

// Table of one axis over another; axes besides a grid's own are "scheme", "seed" and "test-set".
struct CrossTable {
  std::string title;  // the task, and the place on all other axes
  Table table;
};
// One for each place on the other axes; over seeds, unless they are one of the two.
[[nodiscard]] std::vector<CrossTable> cross_tables(
    const Outcome& outcome, const std::string& rows, const std::string& columns);

struct Figure {
  std::string name;  // of its file: "curves_counting"
  report::Plot plot;
};
// Losses of training and of validation, where there is any: over steps, or over the sequences seen where batches
// differ. Means over seeds.
[[nodiscard]] std::vector<Figure> learning_curves(const Outcome& outcome);
// For each axis whose values are numbers, and for lengths of text: the mean, with deviations as bars. A figure for each
// test set.
[[nodiscard]] std::vector<Figure> figures_over_axes(const Outcome& outcome);

// Of all grids of a call, which share their axes.
struct Findings {
  Findings(const std::vector<Axis>& varied, bool of_text);
  void add(const Outcome& outcome);

  std::vector<std::string> axes;
  bool text;
  std::string introduction;
  Table scores, differences;    // for people
  Table numbers, runs, curves;  // with one number in each cell
  bool tested = false;          // some difference has enough seeds on both sides for Welch's test
  std::vector<CrossTable> crossed;
  std::vector<Figure> figures;
  std::vector<std::string> pictures = {};  // SVG, of the models themselves
  std::vector<report::Plot> of_tokens = {};
  std::optional<Table> causes;  // why their gradients are zero, over the training
};

// Everything for a terminal; of differences only as many as can be read there.
[[nodiscard]] std::string text_of(const Findings& found);

// report.html, CSV, SVG, and lab.json with all runs.
void write_findings(const std::filesystem::path& folder, const std::string& title, const Findings& found,
    const std::vector<Grid>& grids);

}  // namespace whence
