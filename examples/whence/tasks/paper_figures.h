// What the papers print for a task, out of their tables (examples/whence/papers).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "examples/whence/tasks/task.h"

namespace whence::tasks {

extern const std::span<const std::string_view> paper_tables;  // the text of each papers/*.table, put here by CMake

// What a paper's table ("cope/table3") prints in a column, by its name or its task's: a figure for each scheme, whose
// options are left out.
[[nodiscard]] std::vector<PaperFigure> printed_in(const std::string& table, const std::string& column);

// What the paper printed for the scheme. Null when it printed nothing: for a scheme of another size than its default
// here or in the task's own model (`own`).
[[nodiscard]] const PaperFigure* figure_of(
    const std::vector<PaperFigure>& figures, const std::string& scheme, const std::string& own);
// "6.8 (6.9)", or "-".
[[nodiscard]] std::string figure_text(const PaperFigure* figure);

}  // namespace whence::tasks
