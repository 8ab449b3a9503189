// The instruction sets whose tiles the library has: WHENCE_TILES_AVX512, _AVX2, _PLAIN (tensor/CMakeLists.txt).
#include "tensor/cpu/tiles/sets.h"

namespace whence::tiles {

template <class T> std::optional<Functions<T>> functions_of([[maybe_unused]] InstructionSet set) {
#ifdef WHENCE_TILES_AVX512
  if (set == InstructionSet::avx512) return of_avx512<T>();
#endif
#ifdef WHENCE_TILES_AVX2
  if (set == InstructionSet::avx2) return of_avx2<T>();
#endif
#ifdef WHENCE_TILES_PLAIN
  if (set == InstructionSet::plain) return of_plain<T>();
#endif
  return {};
}
template std::optional<Functions<float>> functions_of(InstructionSet set);
template std::optional<Functions<double>> functions_of(InstructionSet set);

}  // namespace whence::tiles
