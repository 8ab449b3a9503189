// The run of one cell: what `train` is told, what its folder says of it, and its process while this worker has the claim.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "examples/whence/lab/claim.h"
#include "examples/whence/lab/grid.h"

namespace whence {

// PROGRAM train TASK ...: what makes the run what it is, without where and how fast.
[[nodiscard]] std::vector<std::string> train_words(const Grid& grid, const GridCell& cell, const std::string& program);
[[nodiscard]] bool has_checkpoint(const GridCell& cell);

enum class Finished { not_begun, no, yes, before_hashes };

// Takes from the mark what it says of the run, and the figures of one that has ended. InputError where they are
// damaged; DoesNotFit where they are another run's.
[[nodiscard]] Finished finished(const Grid& grid, GridCell& cell);
// InputError where a run lies that no laboratory began.
void refuse_foreign_run(const GridCell& cell);
// The mark of a run that is to begin, or has; what it says is what the run is.
void mark_as_begun(const Grid& grid, const GridCell& cell);

class CellRun {
 public:
  CellRun(const Grid& grid, const Machine& machine, GridCell& cell, Claim claim);  // starts it, or goes on with it

  const Grid& grid() const { return *grid_; }
  GridCell& cell() const { return *cell_; }
  void interrupt() const;  // asks it to save and end
  // That this worker lives. False: another has the cell, and abandon() is what is left.
  [[nodiscard]] bool beat() { return claim_.beat(); }
  void abandon();  // nothing of this run may be written any more

  // The exit code once it has ended; -1 while it runs. Its figures or its failure are in the cell then, its time in the
  // mark, and the claim is given back, with its failure unless it was interrupted and `asked` to be. Where another has
  // taken the cell meanwhile, nothing is written, and lost() says so.
  [[nodiscard]] int poll(bool asked);
  [[nodiscard]] bool lost() const { return lost_; }

 private:
  const Grid* grid_;
  GridCell* cell_;
  Claim claim_;
  pid_t process_ = 0;
  bool lost_ = false;
};

}  // namespace whence
