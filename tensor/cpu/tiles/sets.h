// The functions of the tiles by instruction set.
#pragma once

#include <optional>

#include "tensor/cpu/instruction_set.h"
#include "tensor/cpu/tiles/problem.h"

namespace whence::tiles {

// Returns nothing if this program was built without that set. T: float or double; of_dual is for dual numbers.
template <class T> std::optional<Functions<T>> functions_of(InstructionSet set);

}  // namespace whence::tiles
