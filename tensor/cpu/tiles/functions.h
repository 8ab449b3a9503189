// The table of functions of one instruction set. Each file that is compiled for one set includes it.
#pragma once

#include "tensor/cpu/tiles/heads.h"
#include "tensor/cpu/tiles/mix_backward.h"
#include "tensor/cpu/tiles/mix_forward.h"

namespace whence::tiles::WHENCE_TILES_TARGET {

template <class T> static Functions<T> functions() {
  return {forward_scratch<T>, forward<T>, backward_scratch<T>, backward<T>, mix_block<T>, block_rows<T>,
      mix_forward_scratch<T>, mix_forward<T>, mix_backward_scratch<T>, mix_backward<T>};
}

}  // namespace whence::tiles::WHENCE_TILES_TARGET
