// What the laboratory believes of a run: its mark, FOLDER/lab_cell.json, and the files that figures are taken from,
// results.jsonl and metrics.jsonl. The mark of a finished run holds the SHA-256 of every file in its folder, and each
// mark one of itself. Marks of versions that wrote fewer or none are read as strictly as can be.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "examples/whence/lab/grid.h"

namespace whence {

struct RunMark {
  std::vector<std::string> arguments;  // of train: what the run is
  std::string code;                    // as GridCell has it
  double processor_seconds = 0;
  bool done = false;
  // SHA-256 by path in the folder ("checkpoints/step-000020/weights.safetensors"), of a run that is done; none: of an earlier
  // version.
  std::map<std::string, std::string> hashes = {};
};

void write_mark(const std::filesystem::path& folder, const RunMark& mark);
// Nothing where there is none. FileError when it is not as it was written.
[[nodiscard]] std::optional<RunMark> read_mark(const std::filesystem::path& folder);

// Of all files in the folder and below that a finished run leaves, but its mark, its lock and claims on it.
// SystemError when one cannot be read.
[[nodiscard]] std::map<std::string, std::string> hashes_of(const std::filesystem::path& folder);
// FileError naming the first file that is not as `hashes` have it. One that is gone says nothing that could be
// believed: checkpoints may be removed.
void require_unchanged(const std::filesystem::path& folder, const std::map<std::string, std::string>& hashes);

// Figures of a run that is done, into the cell. FileError naming the file, and the line where one is wrong, when a file
// is not what such a run writes; SystemError when it cannot be read. The cell has no figures then.
void read_figures(GridCell& cell);

// Curves of a run that goes on, as far as they can be read.
void read_curves_so_far(GridCell& cell);

}  // namespace whence
