// The script and the style of the pages: page.css, heat_map.js, viewer.js and table.js, built into the program.
#pragma once

#include <string_view>

namespace whence::report {

extern const std::string_view style_sheet;
extern const std::string_view viewer_script;  // heat_map.js, then viewer.js: they share one scope
extern const std::string_view table_script;   // of matrices

}  // namespace whence::report
