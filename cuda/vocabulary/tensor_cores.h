// Tensor cores and their loads: the only place in whence with instructions that C++ has no words for. Each function is
// one instruction of PTX, under its name there. Under g++ the emulator has a checked and counted twin of each.
#pragma once

#include "cuda/vocabulary/fragments.h"

#ifndef __CUDACC__
#include "cuda/emulator/approximate.h"
#include "cuda/emulator/copies_ahead.h"
#include "cuda/emulator/matrices.h"
#else

namespace whence::gpu {
#ifdef __CUDA_ARCH__

// ---- Matrices. All lanes of a warp take part.

// c += a b, with T f16, bf16, or float: tf32, whose registers to_tf32 has made. Products are exact; sums are f32, in
// the card's own order and rounding (cuda/README.md). b0 and b1: the upper and the lower half of b.
template <class T>
__device__ void mma(Thread&, FragmentC<T>& c, const FragmentA<T>& a, Register<T> b0, Register<T> b1) {
  float &c0 = c[Nth<0>{}], &c1 = c[Nth<1>{}], &c2 = c[Nth<2>{}], &c3 = c[Nth<3>{}];
  const Register<T> a0 = a[Nth<0>{}], a1 = a[Nth<1>{}], a2 = a[Nth<2>{}], a3 = a[Nth<3>{}];
  if constexpr (std::is_same_v<T, Float16>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  else if constexpr (std::is_same_v<T, BFloat16>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  else if constexpr (std::is_same_v<T, float>)
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  else
    static_assert(sizeof(T) == 0, "f16, bf16 or float required");
}

// The same with half the depth, of f16: a has two registers, b one.
template <class T> __device__ void mma8(Thread&, FragmentC<T>& c, Register<T> a0, Register<T> a1, Register<T> b) {
  static_assert(std::is_same_v<T, Float16>);
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+f"(c[Nth<0>{}]), "+f"(c[Nth<1>{}]), "+f"(c[Nth<2>{}]), "+f"(c[Nth<3>{}])
      : "r"(a0), "r"(a1), "r"(b));
}

__device__ inline unsigned shared_address(const void* in) {
  return static_cast<unsigned>(__cvta_generic_to_shared(in));
}

// Loads four matrices of eight rows: lane l gives the address of row l % 8 of matrix l / 8, at a multiple of 16 bytes,
// and gets its places (matrix_place) of all four.
template <class T> __device__ Registers<Register<T>, 4> ldmatrix(Thread&, const T* from, int i) {
  static_assert(sizeof(T) <= 4);
  Registers<Register<T>, 4> r;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[Nth<0>{}]), "=r"(r[Nth<1>{}]), "=r"(r[Nth<2>{}]), "=r"(r[Nth<3>{}])
               : "r"(shared_address(from + i))
               : "memory");
  return r;
}
// The same, each matrix transposed: its columns become rows.
template <class T> __device__ Registers<Register<T>, 4> ldmatrix_trans(Thread&, const T* from, int i) {
  static_assert(sizeof(T) == 2);
  Registers<Register<T>, 4> r;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[Nth<0>{}]), "=r"(r[Nth<1>{}]), "=r"(r[Nth<2>{}]), "=r"(r[Nth<3>{}])
               : "r"(shared_address(from + i))
               : "memory");
  return r;
}
// Transposes a matrix 8 x 8 in registers.
template <class T> __device__ Register<T> movmatrix(Thread&, Register<T> matrix) {
  static_assert(sizeof(T) == 2);
  Register<T> transposed;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(matrix));
  return transposed;
}

// Stores four matrices, each transposed: the reverse of ldmatrix_trans. A row that is not `there` may be stored, too, at
// its address, where nobody reads it.
template <class T>
__device__ void stmatrix_trans(Thread& t, T* to, int i, const Registers<Register<T>, 4>& of, bool there) {
  static_assert(sizeof(T) == 2);
#if __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(to + i)),
               "r"(of[Nth<0>{}]), "r"(of[Nth<1>{}]), "r"(of[Nth<2>{}]), "r"(of[Nth<3>{}])
               : "memory");
#else
  each<4>([&](auto matrix) {
    const Register<T> row = movmatrix<T>(t, of[matrix]);
    const int at = t.shuffle(there ? i : -1, matrix * 8 + t.lane() / 4);
    if (at >= 0) *reinterpret_cast<Register<T>*>(to + at + t.lane() % 4 * 2) = row;
  });
#endif
}

// ---- Asynchronous copies from global to shared memory, which do not pass through registers.

// Copies `count` numbers from from[j] on, 16 bytes at multiples of 16, to to[i]; zeros if not `there`. Their thread may
// use them after it has waited, others after a barrier that follows.
template <class T, int count = matrix_row<T>>
__device__ void cp_async(Thread&, T* to, int i, const std::type_identity_t<T>* from, index_t j, bool there = true) {
  static_assert(count * sizeof(T) == 16);
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to + i)), "l"(from + j), "r"(there ? 16 : 0)
      : "memory");
}
// Makes a group of this thread's copies since its last commit.
__device__ inline void cp_async_commit(Thread&) { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until all groups of this thread but the last `left` have arrived.
template <int left> __device__ void cp_async_wait(Thread&) {
  asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
}

// ---- Numbers.

// Returns the nearest tf32, of two equally near ones the larger in magnitude; and a tf32's value.
__device__ inline Register<float> to_tf32(float x) {
  Register<float> r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
  return r;
}
__device__ inline float from_tf32(Register<float> x) { return __uint_as_float(x); }

// Returns 2^x to 2^-22, and 1 / x to one unit in the last place. Subnormal numbers count as 0.
__device__ inline float ex2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float rcp_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// Returns the smaller of two; if one is NaN, the other.
__device__ inline float min_number(float a, float b) { return fminf(a, b); }
// Returns the larger of two; NaN if either is.
__device__ inline float max_nan(float a, float b) {
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
}
// Returns a + b, rounded down.
__device__ inline float add_down(float a, float b) {
  float sum;
  asm("add.rm.f32 %0, %1, %2;" : "=f"(sum) : "f"(a), "f"(b));
  return sum;
}

// Packs two numbers, each rounded to nearest, into a register, and unpacks them.
template <class T> __device__ Register<T> pack_two(float low, float high) {
  static_assert(sizeof(T) == 2);
  Register<T> r;
  if constexpr (std::is_same_v<T, Float16>)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
// The same, f16 beyond its range is its largest number; NaN stays.
template <class T> __device__ Register<T> pack_within(float low, float high) {
  if constexpr (!std::is_same_v<T, Float16>) return pack_two<T>(low, high);
  Register<T> r;
  asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
template <class T> __device__ Two<float> unpack_two(Register<T> of) {
  static_assert(sizeof(T) == 2);
  if constexpr (std::is_same_v<T, BFloat16>) return {__uint_as_float(of << 16), __uint_as_float(of & 0xFFFF0000u)};
  Two<float> two;
  asm("{.reg .f16 a, b; mov.b32 {a, b}, %2; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b;}"
      : "=f"(two.low), "=f"(two.high)
      : "r"(of));
  return two;
}
// For each of the two numbers of a register: a b, or the larger (NaN if either is).
template <class T> __device__ Register<T> times_two(Register<T> a, Register<T> b) {
  Register<T> r;
  if constexpr (std::is_same_v<T, Float16>)
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  else  // plus -0, as 8.0 has no product alone
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(0x80008000u));
  return r;
}
template <class T> __device__ Register<T> max_two(Register<T> a, Register<T> b) {
  static_assert(std::is_same_v<T, Float16>);
  Register<T> r;
  asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}
// Returns the signs of both, in bits 15 and 31; the others are 0.
template <class T> __device__ std::uint32_t signs_of(Register<T> of) { return of & 0x80008000u; }
// For each of the two: `yes` if `of` has its sign set, else `no`.
template <class T, class Of> __device__ Register<T> where_negative(Register<Of> of, Register<T> yes, Register<T> no) {
  static_assert(sizeof(T) == 2 && sizeof(Of) == 2);
  Register<T> mask;
  asm("prmt.b32 %0, %1, 0, 0xBB99;" : "=r"(mask) : "r"(of));
  return (mask & (yes ^ no)) ^ no;
}

#else
// As in thread.h: declared for nvcc's reading for the host, never defined.
template <class T> void mma(Thread&, FragmentC<T>& c, const FragmentA<T>& a, Register<T> b0, Register<T> b1);
template <class T> Registers<Register<T>, 4> ldmatrix(Thread&, const T* from, int i);
template <class T> Registers<Register<T>, 4> ldmatrix_trans(Thread&, const T* from, int i);
template <class T> void mma8(Thread&, FragmentC<T>& c, Register<T> a0, Register<T> a1, Register<T> b);
template <class T> Register<T> movmatrix(Thread&, Register<T> matrix);
template <class T> void stmatrix_trans(Thread&, T* to, int i, const Registers<Register<T>, 4>& of, bool there);
template <class T, int count = matrix_row<T>>
void cp_async(Thread&, T* to, int i, const std::type_identity_t<T>* from, index_t j, bool there = true);
void cp_async_commit(Thread&);
template <int left> void cp_async_wait(Thread&);
Register<float> to_tf32(float x);
float from_tf32(Register<float> x);
float ex2_approx(float x);
float rcp_approx(float x);
float min_number(float a, float b);
float max_nan(float a, float b);
float add_down(float a, float b);
template <class T> Register<T> pack_two(float low, float high);
template <class T> Register<T> pack_within(float low, float high);
template <class T> Two<float> unpack_two(Register<T> of);
template <class T> Register<T> times_two(Register<T> a, Register<T> b);
template <class T> Register<T> max_two(Register<T> a, Register<T> b);
template <class T> std::uint32_t signs_of(Register<T> of);
template <class T, class Of> Register<T> where_negative(Register<Of> of, Register<T> yes, Register<T> no);
#endif
}  // namespace whence::gpu
#endif

namespace whence::gpu {

// The largest whole number <= x, and the same as an index. The sum has no bits after the point, so rounding it down is
// all the work: conversions to integers and back are as scarce on a GPU as ex2. REQUIRES: |x| < 2^22.
template <class Real> struct Whole {
  Real value;
  int index;
};
template <class Real> WHENCE_HD Whole<Real> whole_below(Real x) {
  using C = decltype(plain(x));
  using Bits = std::conditional_t<sizeof(C) == 4, std::int32_t, std::int64_t>;
  constexpr C whole = sizeof(C) == 4 ? C(0x1.8p23) : C(0x1.8p52);
  const Real sum = add_down(x, Real(whole));
  return {sum - whole, static_cast<int>(std::bit_cast<Bits>(plain(sum)) - std::bit_cast<Bits>(whole))};
}

}  // namespace whence::gpu
