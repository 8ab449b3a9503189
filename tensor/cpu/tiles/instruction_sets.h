// Which instruction sets tiled attention was compiled for. One is chosen at run time: one program runs everywhere.
#pragma once

#include "tensor/cpu/tiles/problem.h"

namespace whence::tiles {

template <class T> Functions<T> of_avx512();  // float, double; only where WHENCE_X86
template <class T> Functions<T> of_avx2();
template <class T> Functions<T> of_plain();  // float, double, Dual

}  // namespace whence::tiles
