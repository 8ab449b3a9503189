// Threads. Work is cut into chunks whose borders depend on the size alone, or change no bits. So every result has the
// same bits for any thread count.
#pragma once

#include "tensor/shape.h"

namespace whence {

int threads();                // how many this process uses; the number of cores at first, or OMP_NUM_THREADS
void set_threads(int count);  // Error unless 1 to 1024

namespace detail {
// run_chunk(body, k) for every k in [0, chunks), on this thread and, where there are several, on helpers. The first
// exception of one goes to the caller when all have ended; of the chunks not yet begun by then some are left out.
void run_chunks(index_t chunks, void (*run_chunk)(const void* body, index_t chunk), const void* body);
}  // namespace detail

// f(begin, end) for consecutive chunks of `grain` indices that cover [0, count). What f throws goes to the caller, from
// the serial loop at once, from helpers when all have ended; the rest of the work is left out.
// A loop inside a loop runs on the thread that comes to it. Note [Threads that wait] is in parallel.cpp.
template <class F> void parallel_for(index_t count, index_t grain, const F& f) {
  const index_t chunks = (count + grain - 1) / grain;
  const auto run_chunk = [count, grain, chunks, &f](
                             index_t chunk) { f(chunk * grain, chunk + 1 == chunks ? count : (chunk + 1) * grain); };
  using Body = decltype(run_chunk);
  // One piece of code for any number of threads: of two, a compiler might fuse other products with other sums.
  detail::run_chunks(
      chunks, [](const void* body, index_t chunk) { (*static_cast<const Body*>(body))(chunk); }, &run_chunk);
}

}  // namespace whence
