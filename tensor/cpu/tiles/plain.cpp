// Tiled attention in plain C++, for machines with neither AVX2 nor AVX-512: vectors of 16 bytes, which every processor
// of 64 bits has.
#define WHENCE_TILES_TARGET plain
#define WHENCE_TILES_BYTES 16
#include "tensor/cpu/tiles/functions.h"

namespace whence::tiles {

template <> Functions<float> of_plain<float>() { return plain::functions<float>(); }
template <> Functions<double> of_plain<double>() { return plain::functions<double>(); }

}  // namespace whence::tiles
