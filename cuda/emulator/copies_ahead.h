// The twin of cp.async: asynchronous copies from global to shared memory. The target is an error to touch until the
// thread waits, and the source must not change before; then the numbers are there as if the thread had just written
// them.
#pragma once

#include "cuda/emulator/thread.h"
#include "cuda/vocabulary/fragments.h"

namespace whence::gpu {
namespace emulator {

// Begins a copy of the running thread. `from` null: zeros. `size`: bytes of one number.
void start_copy(std::byte* to, const std::byte* from, std::size_t bytes, std::size_t size, const Site& at);
void wait_for_copies(int left);
void require_no_copies();  // when the thread ends

}  // namespace emulator

template <class T, int count = matrix_row<T>>
void cp_async(Thread&, const Shared<T>& to, Index i, const std::type_identity_t<Global<const T>>& from, Index j,
    bool there = true) {
  static_assert(sizeof(T) * count == 16 || std::is_same_v<T, double>);
  to.require_aligned(i, 16);
  for (int k = 0; k < count; ++k) to.write_one({i.value + k, i.at}, T());
  to.note_cost(i, sizeof(T) * count, true);
  const T* source = nullptr;
  if (there) {
    from.require_aligned(j, 16);
    from.note_cost(j, sizeof(T) * count);
    for (int k = 0; k < count; ++k) to.address(i)[k] = from.read_one({j.value + k, j.at});
    source = from.address(j);
  }
  emulator::start_copy(reinterpret_cast<std::byte*>(to.address(i)), reinterpret_cast<const std::byte*>(source),
      sizeof(T) * count, sizeof(T), i.at);
}
inline void cp_async_commit(Thread&) { ++emulator::running.block_run->copies().group; }
template <int left> void cp_async_wait(Thread&) { emulator::wait_for_copies(left); }

}  // namespace whence::gpu
