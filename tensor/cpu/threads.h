// The threads of tensor/parallel.h.
#pragma once

namespace whence {

int threads();                // in use; at first the number of cores, or OMP_NUM_THREADS
void set_threads(int count);  // Error unless 1 to 1024

}  // namespace whence
