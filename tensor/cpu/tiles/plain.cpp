// Tiled attention in plain C++: for machines with neither AVX2 nor AVX-512, and for dual numbers.
#define WHENCE_TILES_TARGET plain
#define WHENCE_TILES_BYTES 16
#define WHENCE_TILES_DUAL
#include "tensor/cpu/tiles/functions.h"

namespace whence::tiles {

#ifdef WHENCE_BUILDS_PLAIN
template <> Functions<float> of_plain<float>() { return plain::functions<float>(); }
template <> Functions<double> of_plain<double>() { return plain::functions<double>(); }
#endif
template <> Functions<Dual> of_plain<Dual>() { return plain::functions<Dual>(); }

}  // namespace whence::tiles
