// Loops in chunks. Either the borders of chunks depend on the size alone, or they do not affect bits. So every result
// has the same bits for any thread count.
#pragma once

#include "tensor/shape.h"

namespace whence {

namespace detail {
using RunChunk = void (*)(const void* body, index_t chunk);
inline void run_in_order(index_t chunks, RunChunk run_chunk, const void* body) {
  for (index_t chunk = 0; chunk < chunks; ++chunk) run_chunk(body, chunk);
}
// Calls run_chunk(body, k) for every k in [0, chunks): in order, or on this thread and helpers if
// tensor/cpu/threads.cpp is linked. With helpers, the first exception reaches the caller after all have stopped; chunks
// that have not begun by then may be skipped.
inline void (*run_chunks)(index_t chunks, RunChunk run_chunk, const void* body) = run_in_order;
}  // namespace detail

// Elements of a chunk of work: enough to hide the start of a thread, few enough to stay in cache.
inline constexpr index_t cpu_grain = 16384;
// Returns the number of rows of `width` elements in a chunk.
constexpr index_t rows_per_chunk(index_t width) { return width >= cpu_grain ? 1 : cpu_grain / (width > 0 ? width : 1); }

// Calls f(begin, end) for consecutive chunks of `grain` indices that cover [0, count). Exceptions of f reach the
// caller, from the serial loop at once, from helpers after all have stopped; the remaining work is skipped. A nested
// loop runs on the thread that reaches it. Note [Threads that wait] is in threads.cpp.
template <class F> void parallel_for(index_t count, index_t grain, const F& f) {
  const index_t chunks = (count + grain - 1) / grain;
  const auto run_chunk = [count, grain, chunks, &f](
                             index_t chunk) { f(chunk * grain, chunk + 1 == chunks ? count : (chunk + 1) * grain); };
  using Body = decltype(run_chunk);
  // Serial and parallel runs share one compiled loop. Two copies could contract a*b+c differently and differ in bits.
  detail::run_chunks(
      chunks, [](const void* body, index_t chunk) { (*static_cast<const Body*>(body))(chunk); }, &run_chunk);
}

}  // namespace whence
