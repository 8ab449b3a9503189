// Kerple's table [h n] at distances n [n 1], f64: composed, and by one kernel where there is one.
#pragma once

#include "tensor/tensor.h"

namespace whence {

using KerpleTable = Tensor(bool power, const Tensor& n, DType dtype, const Tensor& r1, const Tensor& r2);
KerpleTable kerple_table;
inline KerpleTable* kerple_on_gpu = nullptr;  // set by nn/kerple_on_gpu.cpp, which is no part of the core

}  // namespace whence
