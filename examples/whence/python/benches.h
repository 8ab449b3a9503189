// The benches' cases, for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace whence {

void declare_benches(nanobind::module_& module);

}  // namespace whence
