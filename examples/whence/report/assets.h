// The scripts and the styles of the pages, built into the program.
#pragma once

#include <span>
#include <string_view>

namespace whence::report {

extern const std::string_view style_sheet;  // of pages
// Modules of `look`'s page (examples/whence/look/viewer/). All go into one async function.
extern const std::span<const std::string_view> look_scripts;
extern const std::string_view playground_style;  // additions for the playground (examples/whence/playground/page/)
extern const std::string_view lessons;           // of schemes, as JSON
extern const std::string_view playground_worker;
extern const std::span<const std::string_view> playground_scripts;  // like look_scripts

}  // namespace whence::report
