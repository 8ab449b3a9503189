// Tiled attention for dual numbers, on every machine.
#define WHENCE_TILES_TARGET dual
#define WHENCE_TILES_BYTES 16
#define WHENCE_TILES_DUAL
#include "tensor/cpu/tiles/functions.h"

namespace whence::tiles {

Functions<Dual> of_dual() { return dual::functions<Dual>(); }

}  // namespace whence::tiles
