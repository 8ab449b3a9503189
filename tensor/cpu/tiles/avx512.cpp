// Tiled attention for machines with AVX-512: vectors of 64 bytes, 32 registers.
#define WHENCE_TILES_TARGET avx512
#define WHENCE_TILES_BYTES 64

#ifdef __AVX512F__
#include "tensor/cpu/tiles/functions.h"

namespace whence::tiles {

template <> Functions<float> of_avx512<float>() { return avx512::functions<float>(); }
template <> Functions<double> of_avx512<double>() { return avx512::functions<double>(); }

}  // namespace whence::tiles
#endif
