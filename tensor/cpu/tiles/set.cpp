// Tiled attention for one instruction set, or for dual numbers: tensor/CMakeLists.txt compiles this for each.
#include "tensor/cpu/tiles/heads.h"
#include "tensor/cpu/tiles/mix_backward.h"
#include "tensor/cpu/tiles/mix_forward.h"

#define WHENCE_PASTE(a, b) a##b
#define WHENCE_TABLE_OF(set) WHENCE_PASTE(of_, set)

namespace whence::tiles {
namespace WHENCE_TILES_TARGET {
template <class T> static Functions<T> functions() {
  using P = const Problem<T>&;
  return {[](P p) { return Forward<T>(p, 0, 0).layout(nullptr); },
      [](P p, extent b, extent h, extent first_query, extent queries, T* scratch) {
        Forward<T>(p, b, h).run(first_query, queries, scratch);
      },
      [](P p) { return Backward<T>(p, 0, 0).layout(nullptr); },
      [](P p, extent b, extent h, T* scratch) { Backward<T>(p, b, h).run(scratch); }, mix_block<T>, block_rows<T>,
      [](P p) { return MixForward<T>().layout(p, nullptr); }, mix_forward<T>,
      [](P p) { return MixBackward<T>(p, 0, 0).layout(nullptr); },
      [](P p, extent b, extent block, T* scratch) { MixBackward<T>(p, b, block).run(scratch); }};
}
}  // namespace WHENCE_TILES_TARGET

#ifdef WHENCE_TILES_DUAL
template <> Functions<Dual> of_dual() { return dual::functions<Dual>(); }
#else
template <> Functions<float> WHENCE_TABLE_OF(WHENCE_TILES_TARGET)() { return WHENCE_TILES_TARGET::functions<float>(); }
template <> Functions<double> WHENCE_TABLE_OF(WHENCE_TILES_TARGET)() {
  return WHENCE_TILES_TARGET::functions<double>();
}
#endif

}  // namespace whence::tiles
