// The playground's page as one file of HTML: style, scripts, and the module of WebAssembly.
#pragma once

#include <string>

#include "examples/whence/look/subject.h"

namespace whence::playground {

// With lessons, and models that begin; or with `run`, which the page opens, and what that reads of the disk. `module`:
// the folder of playground.js and playground.wasm; empty: beside this program, or where it was installed. InputError
// where there is none, or no page has room for the run.
[[nodiscard]] std::string page_with(const std::string& module, const look::SubjectOptions* run = nullptr);

}  // namespace whence::playground
