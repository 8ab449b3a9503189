// What the laboratory believes of a run: its mark, FOLDER/lab_cell.json, and the files that figures are taken from,
// results.jsonl and metrics.jsonl. The mark of a finished run holds the SHA-256 of both, and each mark one of itself.
// Marks of versions that wrote none are read as strictly as can be.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "examples/lab/grid.h"

namespace whence {

struct RunMark {
  std::vector<std::string> arguments;  // of train: what the run is
  std::string code;                    // as GridCell has it
  double processor_seconds = 0;
  bool done = false;
  std::map<std::string, std::string> hashes =
      {};  // SHA-256 by file, of a run that is done; none: of an earlier version
};

void write_mark(const std::filesystem::path& folder, const RunMark& mark);
// Nothing where there is none. FileError when it is not as it was written.
[[nodiscard]] std::optional<RunMark> read_mark(const std::filesystem::path& folder);

// Figures of a run that is done, into the cell; SHA-256 of the files that they are from. FileError naming the file, and
// the line where one is wrong, when a file is not as `hashes` have it, or is not what such a run writes; SystemError when
// it cannot be read. The cell has no figures then.
std::map<std::string, std::string> read_figures(GridCell& cell, const std::map<std::string, std::string>& hashes = {});

// Curves of a run that goes on, as far as they can be read.
void read_curves_so_far(GridCell& cell);

}  // namespace whence
