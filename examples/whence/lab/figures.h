// A grid's outcome as figures: what training looked like, and the measure over an axis of numbers.
#pragma once

#include <string>
#include <vector>

#include "examples/whence/lab/outcome.h"
#include "examples/whence/report/report.h"
#include "examples/whence/report/table.h"

namespace whence {

struct Figure {
  std::string name;  // of its file: "curves_counting"
  report::Plot plot;
};

// Losses of training and of validation, where there is any: over steps, or over the sequences seen where batches differ.
// Means over seeds.
[[nodiscard]] std::vector<Figure> learning_curves(const Outcome& outcome);

// For each axis whose values are numbers, and for lengths of text: the mean, with deviations as bars. A figure for each
// test set.
[[nodiscard]] std::vector<Figure> figures_over_axes(const Outcome& outcome);

// Every point of every run's curves, as columns for other programs.
[[nodiscard]] Table curve_points(const std::vector<std::string>& axes, const std::vector<Grid>& grids);

}  // namespace whence
