// A run of `whence train`, or a scheme, for Python: its model, and one pass of it looked into.
#pragma once

#include <nanobind/nanobind.h>

namespace whence {

void declare_loaded_run(nanobind::module_& module);

}  // namespace whence
