// Tiled attention for machines with AVX2: vectors of 32 bytes, 16 registers.
#define WHENCE_TILES_TARGET avx2
#define WHENCE_TILES_BYTES 32

#ifdef __AVX2__
#include "tensor/cpu/tiles/functions.h"

namespace whence::tiles {

template <> Functions<float> of_avx2<float>() { return avx2::functions<float>(); }
template <> Functions<double> of_avx2<double>() { return avx2::functions<double>(); }

}  // namespace whence::tiles
#endif
