// The names that kernels are written with: one thread's view of its block, its memory and its numbers. Under nvcc every
// name here is the plain CUDA thing and costs nothing. Under g++ the emulator (cuda/emulator/) provides a checked and
// counted twin. cuda/README.md is the guide, and has an example kernel.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "tensor/convert.h"
#include "tensor/shape.h"
#include "tensor/tensor.h"

// Before a loop whose code nvcc shall repeat so often, or not: what several warps run must fit into the caches of
// instructions.
#ifdef __CUDA_ARCH__
#define WHENCE_PRAGMA(text) _Pragma(#text)
#define WHENCE_UNROLLED(times) WHENCE_PRAGMA(unroll(times))
#else
#define WHENCE_UNROLLED(times)
#endif
#define WHENCE_ROLLED WHENCE_UNROLLED(1)

#ifndef __CUDACC__
// Global, Shared, Number, Thread, load, store as below, which also count their use
#include "cuda/emulator/thread.h"
#else

namespace whence::gpu {

template <class T> using Global = T*;  // numbers in the device's memory
template <class T> using Shared = T*;  // numbers in the block's memory
template <class C> using Number = C;   // float or double in a kernel

class Thread {
 public:
  static constexpr int warp_size = 32;
  static constexpr unsigned all_lanes = 0xFFFFFFFFu;

#ifdef __CUDA_ARCH__
  __device__ index_t block() const { return static_cast<index_t>(blockIdx.x); }
  __device__ index_t blocks() const { return static_cast<index_t>(gridDim.x); }
  __device__ int index() const { return static_cast<int>(threadIdx.x); }  // in the block
  __device__ int lane() const { return static_cast<int>(threadIdx.x & 31u); }
  __device__ int warp() const { return static_cast<int>(threadIdx.x >> 5); }

  // All its threads must reach a barrier at the same line; a thread that has ended counts as missing.
  __device__ void sync() const { __syncthreads(); }    // all threads of the block
  __device__ void sync_warp() const { __syncwarp(); }  // the 32 of this warp

  // All lanes of the warp take part, and get another lane's value.
  template <class V> __device__ V shuffle(V value, int lane) const { return __shfl_sync(all_lanes, value, lane); }
  template <class V> __device__ V shuffle_xor(V value, int mask) const {
    return __shfl_xor_sync(all_lanes, value, mask);
  }
  template <class V> __device__ V shuffle_up(V value, int distance) const {  // its own value if there is no such lane
    return __shfl_up_sync(all_lanes, value, static_cast<unsigned>(distance));
  }

  // memory[i] += value; returns the value before. Integers only: threads arrive in no fixed order, and sums of integers
  // do not depend on it. `memory` is a Global or a Shared.
  template <class I> __device__ I atomic_add(I* memory, index_t i, I value) const {
    static_assert(std::is_integral_v<I>, "sums of floating numbers would depend on the order of the threads");
    return atomicAdd(memory + i, value);
  }

  // Returns the next `count` numbers of the block's shared memory, unset. Every thread of the block must request the
  // same ones in the same order. All together must fit into the launch's shared_bytes. Each begins at a multiple of 16
  // bytes.
  template <class T> __device__ Shared<T> shared(int count) {
    extern __shared__ __align__(16) unsigned char shared_memory[];
    unsigned char* const first = shared_memory + shared_used_;
    shared_used_ += (static_cast<unsigned>(count) * static_cast<unsigned>(sizeof(T)) + 15u) & ~15u;
    return reinterpret_cast<T*>(first);
  }

 private:
  unsigned shared_used_ = 0;
#else
  // nvcc parses bodies a second time for the host, where no kernel runs: declared, never defined.
  index_t block() const;
  index_t blocks() const;
  int index() const;
  int lane() const;
  int warp() const;
  void sync() const;
  void sync_warp() const;
  template <class V> V shuffle(V value, int lane) const;
  template <class V> V shuffle_xor(V value, int mask) const;
  template <class V> V shuffle_up(V value, int distance) const;
  template <class I> I atomic_add(I* memory, index_t i, I value) const;
  template <class T> Shared<T> shared(int count);
#endif
};

// Returns a tensor's numbers for a kernel. REQUIRES: T is the tensor's dtype, const or not.
template <class T> Global<T> global(const Tensor& x) {
  return x.defined() ? x.data<std::remove_const_t<T>>() : nullptr;
}

// Returns element i as a number to compute with.
template <class C, class T> WHENCE_HD Number<C> load(const T* from, index_t i) {
  return convert<C>(static_cast<compute_t<std::remove_const_t<T>>>(from[i]));
}

// Sets element i to the number, rounded once.
template <class T, class C> WHENCE_HD void store(T* to, index_t i, C value) { to[i] = convert<T>(value); }

// Adds the number to element i; no thread waits for that. REQUIRES: no other thread writes there in the same launch, so
// that a sum has one order.
template <class C> WHENCE_HD void add_in_place(C* to, index_t i, C value) {
#ifdef __CUDA_ARCH__
  atomicAdd(to + i, value);
#else
  to[i] += value;
#endif
}

// Returns the plain value, for integers and decisions that are not counted.
template <class C> WHENCE_HD C plain(C value) { return value; }

// N neighbours in one access: [i] to [i + N - 1]. REQUIRES: i is a multiple of N, and the memory aligned to N numbers.
template <class T, int N> struct alignas(sizeof(T) * N) Pack {
  T of[N];
};
template <int N, class T> WHENCE_HD Pack<std::remove_const_t<T>, N> load_pack(T* from, index_t i) {
  return *reinterpret_cast<const Pack<std::remove_const_t<T>, N>*>(from + i);
}
template <int N, class T> WHENCE_HD void store_pack(T* to, index_t i, const Pack<T, N>& pack) {
  // nvcc would store members one by one, even those of one register: in parts of a sector.
#ifdef __CUDA_ARCH__
  using Wide = std::conditional_t<sizeof(pack) == 16, uint4, uint2>;
  if constexpr (sizeof(pack) == sizeof(Wide))
    if (!__isShared(to)) return __stcg(reinterpret_cast<Wide*>(to + i), std::bit_cast<Wide>(pack));
#endif
  using Word = std::conditional_t<sizeof(pack) == 8, std::uint64_t,
      std::conditional_t<sizeof(pack) == 4, std::uint32_t, Pack<T, N>>>;
  *reinterpret_cast<Word*>(to + i) = std::bit_cast<Word>(pack);
}

}  // namespace whence::gpu
#endif
