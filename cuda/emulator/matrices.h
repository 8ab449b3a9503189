// The twins of mma, ldmatrix, stmatrix and movmatrix. Each lane brings the address of its registers to the meeting of its warp;
// the last to arrive does the work of all. The lanes' numbers follow the tables of the PTX manual, not the maps of
// fragments.h: a test checks that both agree.
#pragma once

#include "cuda/emulator/thread.h"
#include "cuda/vocabulary/fragments.h"

namespace whence::gpu {
namespace emulator {

template <class T> struct MmaLane {
  FragmentC<T>* c;
  const FragmentA<T>* a;
  Register<T> b0, b1;
};
template <class T> struct RowLane {
  T row[matrix_row<T>];
  Registers<Register<T>, 4>* registers;
};
template <class T> struct StoredLane {
  Registers<Register<T>, 4> registers;
  T row[matrix_row<T>];
};
// Types: f16, bf16, float and double.
template <class T> void multiply_together(const std::uint64_t* lanes);                   // of MmaLane<T>
template <class T, bool transposed> void give_out_together(const std::uint64_t* lanes);  // of RowLane<T>
template <class T> void transpose_together(const std::uint64_t* lanes);                  // of Register<T>
template <class T> void collect_together(const std::uint64_t* lanes);                    // of StoredLane<T>

template <class Lane> void meet(const char* name, const Lane& own, BlockRun::Together together, const Site& at) {
  running.block_run->meet_warp(name, reinterpret_cast<std::uintptr_t>(&own), at, together);
}

template <class T, bool transposed>
Registers<Register<T>, 4> load_matrices(const char* name, const Shared<const T>& from, const Index& i) {
  Registers<Register<T>, 4> registers;
  RowLane<T> own{{}, &registers};
  from.require_aligned(i, 16);
  from.note_cost(i, sizeof own.row);
  for (int k = 0; k < matrix_row<T>; ++k) own.row[k] = from.read_one({i.value + k, i.at});
  meet(name, own, &give_out_together<T, transposed>, i.at);
  return registers;
}

}  // namespace emulator

template <class T>
void mma(Thread&, FragmentC<T>& c, const FragmentA<T>& a, Register<T> b0, Register<T> b1, Site at = Site::current()) {
  const emulator::MmaLane<T> own{&c, &a, b0, b1};
  emulator::meet("mma", own, &emulator::multiply_together<T>, at);
}
template <class T>
void mma8(Thread& t, FragmentC<T>& c, Register<T> a0, Register<T> a1, Register<T> b, Site at = Site::current()) {
  FragmentA<T> a;
  a[Nth<0>{}] = a0, a[Nth<1>{}] = a1;
  mma<T>(t, c, a, b, Register<T>{}, at);
}
template <class T> Registers<Register<std::remove_const_t<T>>, 4> ldmatrix(Thread&, const Shared<T>& from, Index i) {
  return emulator::load_matrices<std::remove_const_t<T>, false>("ldmatrix", from, i);
}
template <class T>
Registers<Register<std::remove_const_t<T>>, 4> ldmatrix_trans(Thread&, const Shared<T>& from, Index i) {
  static_assert(per_register<std::remove_const_t<T>> == 2);
  return emulator::load_matrices<std::remove_const_t<T>, true>("ldmatrix_trans", from, i);
}
template <class T> Register<T> movmatrix(Thread&, Register<T> matrix, Site at = Site::current()) {
  static_assert(per_register<T> == 2);
  emulator::meet("movmatrix", matrix, &emulator::transpose_together<T>, at);
  return matrix;
}
template <class T>
void stmatrix_trans(Thread&, const Shared<T>& to, Index i, const Registers<Register<T>, 4>& matrices, bool there) {
  emulator::StoredLane<T> own{matrices, {}};
  emulator::meet("stmatrix_trans", own, &emulator::collect_together<T>, i.at);
  if (!there) return;
  to.require_aligned(i, 16);
  to.note_cost(i, sizeof own.row, true);
  for (int k = 0; k < matrix_row<T>; ++k) to.write_one({i.value + k, i.at}, own.row[k]);
}

}  // namespace whence::gpu
