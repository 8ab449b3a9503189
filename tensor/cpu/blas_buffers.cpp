#include "tensor/cpu/blas_buffers.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>

#include "tensor/error.h"

namespace whence::blas {
namespace {

constexpr std::size_t buffer_bytes = std::size_t{128} << 20;  // BUFFER_SIZE of OpenBLAS's common.h
constexpr std::size_t beside_it = std::size_t{16} << 20;      // for what other threads map meanwhile
constexpr int most = 128;                                     // OpenBLAS keeps a list of that many and more

bool there_is_room() {
  void* const mapped =
      mmap(nullptr, buffer_bytes + beside_it, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return false;
  munmap(mapped, buffer_bytes + beside_it);
  return true;
}

class Buffers {
 public:
  void require(int threads) {
    const int wanted = std::min(threads, most);
    if (asked_for_.load(std::memory_order_acquire) >= wanted) return;
    std::unique_lock lock(mutex_);
    one_is_free_.wait(lock, [this] { return in_use_ == 0; });  // so that OpenBLAS gives those that it has first
    take_up_to(wanted);
    if (there_are_ == 0) {
      throw OutOfMemory(error_at_call_site(
                            "matmul", to_text("no room for OpenBLAS, which computes in ", bytes_text(buffer_bytes),
                                          " of address space; a higher limit (ulimit -v) or a smaller model required")),
          {.asked = buffer_bytes});
    }
    asked_for_.store(std::max(asked_for_.load(), wanted), std::memory_order_release);
  }

  void enter() {
    std::unique_lock lock(mutex_);
    one_is_free_.wait(lock, [this] { return in_use_ < there_are_; });
    ++in_use_;
  }
  void leave() {
    {
      const std::scoped_lock lock(mutex_);
      --in_use_;
    }
    one_is_free_.notify_all();
  }

 private:
  // Without these two functions it is not the OpenBLAS that asks for ever.
  void take_up_to(int wanted) {
    const auto take = reinterpret_cast<void* (*)(int)>(dlsym(RTLD_DEFAULT, "blas_memory_alloc"));
    const auto give_back = reinterpret_cast<void (*)(void*)>(dlsym(RTLD_DEFAULT, "blas_memory_free"));
    std::array<void*, most> held{};
    int count = 0;
    while (count < wanted && (count < there_are_ || there_is_room())) {
      void* const buffer = take && give_back ? take(0) : nullptr;
      if (take && give_back && !buffer) break;
      held[static_cast<std::size_t>(count++)] = buffer;
    }
    for (int k = 0; k < count; ++k)
      if (held[static_cast<std::size_t>(k)]) give_back(held[static_cast<std::size_t>(k)]);
    there_are_ = std::max(there_are_, count);
  }

  std::mutex mutex_;
  std::condition_variable one_is_free_;
  std::atomic<int> asked_for_{0};
  int there_are_ = 0, in_use_ = 0;
};

// Never destroyed: a helper may be in a product when the process ends.
Buffers& buffers() {
  static Buffers& all = *new Buffers;
  return all;
}

}  // namespace

void require_buffers(int threads) { buffers().require(threads); }
Buffer::Buffer() { buffers().enter(); }
Buffer::~Buffer() { buffers().leave(); }

}  // namespace whence::blas
