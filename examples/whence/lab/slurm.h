// A grid as an array of SLURM: one script, a task for each cell.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "examples/whence/lab/grid.h"

namespace whence {

struct SlurmJob {
  std::vector<std::pair<std::string, std::string>> options;  // of sbatch, as given: {"partition", "gpu"}
  int at_once = 0;                                           // tasks at a time; 0: as many as there is room for
};

// "partition=gpu,time=2:00:00,at-once=8". InputError when a part is no key=value, a key is not of small letters and
// dashes, a value has control characters, or the key is one that the script itself sets.
[[nodiscard]] SlurmJob parse_slurm(const std::string& text);

// Writes FOLDER/lab.sbatch, says so, and hands it to sbatch if `submit`. Task K runs what was typed (`lab` and its
// words, without what is said of SLURM) with --cell K behind it, in the folder where this is called. Before its time is
// up, or when it is preempted, it saves, and is put back into the queue by the number of its array and its own: the
// number of the job alone would put back all tasks. InputError as parse_slurm(); SystemError when the script cannot be
// written, or sbatch fails.
void write_slurm_job(const std::string& wanted, const std::vector<Grid>& grids, const std::filesystem::path& folder,
    const std::vector<std::string>& typed, bool submit);

}  // namespace whence
