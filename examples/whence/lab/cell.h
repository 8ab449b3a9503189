// What the folder of a cell says: is its run this one, and done? And the figures that it left.
#pragma once

#include <string>
#include <vector>

#include "examples/whence/lab/grid.h"

namespace whence {

// `train TASK ...` as the words behind the program that make the cell in its folder, or go on with it.
[[nodiscard]] std::vector<std::string> train_words(const Grid& grid, const GridCell& cell);

// A cell is done where its results are whole and of its options: then its figures are in it, and this is true. Else
// `missing` and `failure` say why. DoesNotFit where run.json is of other options or of another text.
[[nodiscard]] bool read_if_done(const Grid& grid, GridCell& cell);

// Figures of a run that has ended, into the cell. FileError naming the file, and the line where one is wrong, when a file
// is not what such a run writes; SystemError when it cannot be read. The cell has no figures then.
void read_figures(GridCell& cell);

// The newest training loss of a run that goes on; step 0 where there is none.
[[nodiscard]] LossPoint newest_loss(const GridCell& cell);

[[nodiscard]] std::string log_of(const GridCell& cell);  // the file of what its run says

}  // namespace whence
