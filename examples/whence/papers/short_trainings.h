// Would this program make what is recorded? Two steps of a small model with each scheme on each task tell: their bits
// differ where anything differs that the numbers depend on, and do not where a comment was changed.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "examples/whence/lab/plan.h"
#include "examples/whence/papers/paper_table.h"

namespace whence::papers {

// By "TASK SCHEME": the first 16 digits of the SHA-256 of the weights and of the results.
using Bits = std::map<std::string, std::string>;

struct ShortTraining {
  const PaperTable* table;
  std::string preset, set;  // the user's --set
};
// Of each; equal trainings of several are run once, `jobs` at a time, in `folder`. Error where one fails.
[[nodiscard]] std::vector<Bits> bits_of(const std::vector<ShortTraining>& trainings,
    const std::filesystem::path& folder, int jobs, const TrainCheck& check);

}  // namespace whence::papers
