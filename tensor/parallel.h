// Threads. Work is cut into chunks whose borders depend on the size alone, never on the number of threads. So every
// result has the same bits for any thread count.
#pragma once

#include <omp.h>

#include "tensor/shape.h"

namespace whence {

int threads();                // how many this process uses; the number of cores at first, or OMP_NUM_THREADS
void set_threads(int count);  // Error unless 1 to 1024

// f(begin, end) for consecutive chunks of `grain` indices that cover [0, count). f must not throw.
template <class F> void parallel_for(index_t count, index_t grain, const F& f) {
  const index_t chunks = (count + grain - 1) / grain;
  if (chunks <= 1 || threads() == 1 || omp_in_parallel()) {
    for (index_t chunk = 0; chunk < chunks; ++chunk)
      f(chunk * grain, chunk + 1 == chunks ? count : (chunk + 1) * grain);
    return;
  }
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads())
  for (index_t chunk = 0; chunk < chunks; ++chunk) f(chunk * grain, chunk + 1 == chunks ? count : (chunk + 1) * grain);
}

}  // namespace whence
