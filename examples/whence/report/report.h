// A table of a page. It does not depend on tensors: a program copies numbers and text into it.
#pragma once

#include <string>

#include "examples/whence/report/table.h"

namespace whence::report {

struct PageTable {
  std::string title, note;
  Table table;
  bool folded = false;  // closed until the reader opens it
};

// Returns a table as HTML. It needs no script.
[[nodiscard]] std::string table_html(const PageTable& table);

}  // namespace whence::report
