// Packs: neighbours that are moved together, 16 bytes in one access. How many fit, and if a tensor's memory allows it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/vocabulary/thread.h"

namespace whence::gpu {

// Numbers of T in 16 bytes.
template <class T> inline constexpr int pack_size = static_cast<int>(16 / sizeof(T));

// True if packs of `size` elements may begin at the tensor's first element.
inline bool begins_with_pack(const Tensor& x, index_t size) {
  return reinterpret_cast<std::uintptr_t>(x.bytes()) % (static_cast<std::size_t>(size) * size_of(x.dtype())) == 0;
}

// Converts a number of a pack for computing, and back.
template <class C, class T> WHENCE_HD Number<C> from_stored(T stored) {
  return Number<C>(convert<C>(static_cast<compute_t<T>>(stored)));
}
template <class T, class V> WHENCE_HD T to_stored(V number) { return convert<T>(plain(number)); }

// Returns a pack from [i] on, or the one number at [i] repeated.
template <int N, class T> WHENCE_HD Pack<T, N> load_pack_of(Global<const T> from, index_t i, bool one_number) {
  if (!one_number) return load_pack<N>(from, i);
  Pack<T, N> all;
  for (int k = 0; k < N; ++k) all.of[k] = to_stored<T>(load<compute_t<T>>(from, i));
  return all;
}

constexpr index_t blocks_for(index_t count, index_t each) { return (count + each - 1) / each; }

}  // namespace whence::gpu
