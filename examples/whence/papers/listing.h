// What there is to reproduce, and what of the recorded results is old.
#pragma once

#include <filesystem>
#include <vector>

#include "examples/whence/lab/plan.h"
#include "examples/whence/papers/record.h"

namespace whence::papers {

// Every table and figure: what it asks, how it is had here, what it costs. At most 120 columns wide.
void print_list(const std::vector<Record>& records);

// Which records this program would not give: of other options now, or short trainings (in `folder`, which is removed)
// give other bits. Of records of other vectors than this processor's nothing is told.
void print_staleness(
    const std::vector<Record>& records, const std::filesystem::path& folder, int jobs, const TrainCheck& check);

}  // namespace whence::papers
