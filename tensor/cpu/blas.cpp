#include "tensor/cpu/blas.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <condition_variable>
#include <mutex>

#include "tensor/error.h"

extern "C" {
// From OpenBLAS's cblas.h, declared here because its path and the width of its int differ between distributions.
void cblas_sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float* a, int lda,
    const float* b, int ldb, float beta, float* c, int ldc);
void cblas_dgemm(int order, int trans_a, int trans_b, int m, int n, int k, double alpha, const double* a, int lda,
    const double* b, int ldb, double beta, double* c, int ldc);
void openblas_set_num_threads(int count);
}

namespace whence::blas {
namespace {

constexpr std::size_t buffer_bytes = std::size_t{128} << 20;  // BUFFER_SIZE of OpenBLAS's common.h
constexpr std::size_t reserve_bytes = std::size_t{16} << 20;  // for what other threads map meanwhile
constexpr int most = 128;                                     // OpenBLAS has a list for at least this many buffers

bool can_map_buffer() {
  void* const mapped =
      mmap(nullptr, buffer_bytes + reserve_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return false;
  munmap(mapped, buffer_bytes + reserve_bytes);
  return true;
}

// Counts the buffers. OpenBLAS allocates another one if all that it has are in use, so the count grows by one at a time,
// each after a test that there is room.
class Buffers {
 public:
  void enter() {
    std::unique_lock lock(mutex_);
    while (in_use_ == buffers_) {
      if (buffers_ < most && can_map_buffer()) {
        ++buffers_;
      } else if (buffers_ == 0) {
        throw OutOfMemory(error_at_call_site("matmul",
                              to_text("no room for OpenBLAS, which computes in ", bytes_text(buffer_bytes),
                                  " of address space; a higher limit (ulimit -v) or a smaller model required")),
            {.asked = buffer_bytes});
      } else {
        buffer_freed_.wait(lock);
      }
    }
    ++in_use_;
  }
  void leave() {
    const std::scoped_lock lock(mutex_);
    --in_use_;
    buffer_freed_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable buffer_freed_;
  int buffers_ = 0, in_use_ = 0;
};

// Never destroyed: a helper may be inside a product when the process ends.
Buffers& buffers() {
  static Buffers& all = *new Buffers;
  return all;
}

// Holds a buffer and, while alive, limits OpenBLAS to this thread. An OpenBLAS built with OpenMP asks OpenMP for the
// thread count at every call, on each thread; one with its own threads is told once. OpenMP is looked up by name,
// because only the former loads it.
class OneCall {
 public:
  OneCall() {
    buffers().enter();
    static const bool told = (openblas_set_num_threads(1), true);
    static_cast<void>(told);
    if (set) previous_ = get(), set(1);
  }
  ~OneCall() {
    if (set) set(previous_);
    buffers().leave();
  }
  OneCall(const OneCall&) = delete;
  OneCall& operator=(const OneCall&) = delete;

 private:
  static inline void (*const set)(int) = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  static inline int (*const get)() = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
  int previous_ = 1;
};

}  // namespace

template <class T>
void multiply(
    index_t m, index_t n, index_t k, T alpha, const Factor<T>& a, const Factor<T>& b, T beta, T* c, index_t leading) {
  constexpr int row_major = 101, as_is = 111, transposed = 112;
  const auto gemm = [] {
    if constexpr (std::is_same_v<T, float>)
      return cblas_sgemm;
    else
      return cblas_dgemm;
  }();
  const OneCall call;
  gemm(row_major, a.transposed ? transposed : as_is, b.transposed ? transposed : as_is, static_cast<int>(m),
      static_cast<int>(n), static_cast<int>(k), alpha, a.at, static_cast<int>(a.leading), b.at,
      static_cast<int>(b.leading), beta, c, static_cast<int>(leading));
}
template void multiply(
    index_t, index_t, index_t, float, const Factor<float>&, const Factor<float>&, float, float*, index_t);
template void multiply(
    index_t, index_t, index_t, double, const Factor<double>&, const Factor<double>&, double, double*, index_t);

}  // namespace whence::blas
