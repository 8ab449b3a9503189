// The papers' printed results for a task, from their tables (examples/whence/papers).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "examples/whence/tasks/task.h"

namespace whence::tasks {

extern const std::span<const std::string_view> paper_tables;  // the text of each papers/*.table, from CMake

// Returns a column of a paper's table ("cope/table3"), found by its name or its task's: a figure for each scheme,
// without the scheme's options.
[[nodiscard]] std::vector<PaperFigure> printed_in(const std::string& table, const std::string& column);

// Finds the paper's figure for the scheme. Null without one: the scheme's size must be its default here or that of the
// task's model (`own`).
[[nodiscard]] const PaperFigure* figure_of(
    const std::vector<PaperFigure>& figures, const std::string& scheme, const std::string& own);
// Returns "6.8 (6.9)", or "-".
[[nodiscard]] std::string figure_text(const PaperFigure* figure);

}  // namespace whence::tasks
