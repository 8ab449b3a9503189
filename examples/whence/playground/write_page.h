// The playground's page as one file of HTML: style, scripts, and the module of WebAssembly.
#pragma once

#include <string>

#include "examples/whence/look/subject.h"

namespace whence::playground {

// Has lessons, and models that begin; or with `run` opens that run and has its files. `module` is the folder of
// playground.js and playground.wasm; if empty, the folder next to this program's or the installed one. InputError if
// there is none, or if the run is too large for a page.
[[nodiscard]] std::string page_with(const std::string& module, const look::SubjectOptions* run = nullptr);

}  // namespace whence::playground
