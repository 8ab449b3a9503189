// A grid as an array of SLURM: one script, a task for each cell.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace whence {

struct SlurmJob {
  std::vector<std::pair<std::string, std::string>> options;  // of sbatch, as given: {"partition", "gpu"}
  int at_once = 0;                                           // tasks at a time; 0: as many as there is room for
};

// "partition=gpu,time=2:00:00,at-once=8". InputError when a part is no key=value, a key is not of small letters and
// dashes, a value has control characters, or the key is one that the script itself sets.
[[nodiscard]] SlurmJob parse_slurm(const std::string& text);

// The script. Task K runs `worker` with --cell K behind it, in the folder where this is called. Before its time is
// up, or when it is preempted, it saves, and is put back into the queue by the number of its array and its own: the
// number of the job alone would put back all tasks.
[[nodiscard]] std::string slurm_script(const SlurmJob& job, const std::string& name, std::size_t cells,
    const std::vector<std::string>& worker, const std::filesystem::path& folder);

}  // namespace whence
