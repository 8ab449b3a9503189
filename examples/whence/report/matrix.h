// A large table of short cells with notes: rows in groups under a head that stays in sight, with a filter.
#pragma once

#include <string>

#include "examples/whence/report/report.h"

namespace whence::report {

// As a <section>. Without script it can be read and scrolled; table.js adds the filter and the keys. Error where a
// row has not one cell per column.
[[nodiscard]] std::string matrix_html(const Matrix& matrix);

}  // namespace whence::report
