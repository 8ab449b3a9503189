// The playground's page as one file of HTML: style, scripts, and the module of WebAssembly.
#pragma once

#include <string>

#include "examples/whence/look/subject.h"

namespace whence::playground {

// Has lessons, and models that begin; or with `run` opens that run and has its files. playground.js and playground.wasm are
// in the folder next to this program's, or the installed one. InputError if they are not, or if the run is too large.
[[nodiscard]] std::string page_with(const look::SubjectOptions* run);

}  // namespace whence::playground
