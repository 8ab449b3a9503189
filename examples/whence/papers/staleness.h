// Would this program make what is recorded? Two steps of a small model with each scheme on each task tell: their bits
// differ where anything differs that the numbers depend on, and do not where a comment was changed.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "examples/whence/papers/record.h"

namespace whence::papers {

struct ShortTraining {
  const PaperTable* table;
  std::string preset, set;  // the user's --set
};
// Record::bits of each; equal trainings of several are run once, `jobs` at a time, in `folder`. Error where one fails.
[[nodiscard]] std::vector<Bits> bits_of(
    const std::vector<ShortTraining>& trainings, const std::filesystem::path& folder, int jobs);

// Which records this program would not give: of other options now, or short trainings (in `folder`, which is removed)
// give other bits. Of records of other vectors than this processor's nothing is told.
void print_staleness(const std::vector<Record>& records, const std::filesystem::path& folder, int jobs);

}  // namespace whence::papers
