// Sums, maxima and running sums over the threads of a warp or of a block. The number of threads alone decides the order
// of joins, so the bits are the same in every run.
#pragma once

#include <limits>
#include <utility>

#include "cuda/vocabulary/launch_kernel.h"

namespace whence::gpu {

// Two values that are reduced together, for the price of one barrier.
template <class A, class B> struct Pair {
  A first;
  B second;
};
template <class V> inline constexpr bool is_pair = false;
template <class A, class B> inline constexpr bool is_pair<Pair<A, B>> = true;

// A shuffle moves at most 64 bits: a pair goes in two halves. `move` shuffles one simple value.
template <class V, class Move> WHENCE_HD V moved(V value, const Move& move) {
  if constexpr (is_pair<V>)
    return {moved(value.first, move), moved(value.second, move)};
  else
    return move(value);
}

// Returns the value of another lane of the warp. All lanes take part.
template <class V> WHENCE_HD V from_lane(Thread& t, V value, int lane) {
  return moved(value, [&](auto part) { return t.shuffle(part, lane); });
}
template <class V> WHENCE_HD V from_lane_xor(Thread& t, V value, int mask) {
  return moved(value, [&](auto part) { return t.shuffle_xor(part, mask); });
}

// Joins of two partial results. The maximum is NaN if either is.
struct Plus {
  template <class V> WHENCE_HD V operator()(V a, V b) const { return a + b; }
};
struct PlusBoth {
  template <class V> WHENCE_HD V operator()(V a, V b) const { return {a.first + b.first, a.second + b.second}; }
};
struct Larger {
  template <class V> WHENCE_HD V operator()(V a, V b) const { return b > a || !(b == b) ? b : a; }
};

// The maximum of nothing: no number is below it.
template <class C> WHENCE_HD Number<C> lowest() { return Number<C>(C(-std::numeric_limits<double>::infinity())); }

// Joins the values of the first `lanes` lanes; all lanes get lane 0's result. If join(a, b) and join(b, a) differ in
// the last bit, the lanes' own results would differ.
template <int lanes = Thread::warp_size, class V, class Join>
WHENCE_HD V warp_reduce(Thread& t, V value, const Join& join) {
  for (int mask = lanes / 2; mask > 0; mask /= 2) value = join(value, from_lane_xor(t, value, mask));
  return from_lane(t, value, 0);
}

// One value of each warp in the block's memory.
template <class V> class Slots {
 public:
  using Stored = std::remove_cvref_t<decltype(plain(std::declval<V>()))>;
  static constexpr std::size_t bytes(int count) { return shared_bytes_for<Stored>(static_cast<std::size_t>(count)); }
  WHENCE_HD Slots(Thread& t, int count) : memory_(t.template shared<Stored>(count)) {}
  WHENCE_HD V get(int i) const { return load<Stored>(memory_, i); }
  WHENCE_HD void set(int i, V value) const { store(memory_, i, value); }

 private:
  Shared<Stored> memory_;
};
template <class A, class B> class Slots<Pair<A, B>> {
 public:
  static constexpr std::size_t bytes(int count) { return Slots<A>::bytes(count) + Slots<B>::bytes(count); }
  WHENCE_HD Slots(Thread& t, int count) : first_(t, count), second_(t, count) {}
  WHENCE_HD Pair<A, B> get(int i) const { return {first_.get(i), second_.get(i)}; }
  WHENCE_HD void set(int i, Pair<A, B> value) const { first_.set(i, value.first), second_.set(i, value.second); }

 private:
  Slots<A> first_;
  Slots<B> second_;
};

constexpr bool is_power_of_two(int n) { return n > 0 && (n & (n - 1)) == 0; }

// The value of one lane of each warp, for all warps. sets = 1: for one use. sets = 2: for repeated use in a loop; two
// sets of slots alternate, so that a thread that still reads one set meets no writer: the barrier of the other set is
// between them.
template <int threads, class V, int sets> class WarpValues {
 public:
  static constexpr int warps = threads / Thread::warp_size;
  static_assert((is_power_of_two(warps) && warps <= Thread::warp_size) || warps == 0);
  static constexpr std::size_t shared_bytes = Slots<V>::bytes(sets * warps);
  WHENCE_HD explicit WarpValues(Thread& t) : slots_(t, sets * warps) {}

  // Returns the value of the warp whose number is this thread's lane, modulo the number of warps. All threads of the
  // block take part.
  WHENCE_HD V operator()(Thread& t, V value, int from_lane) {
    if constexpr (sets == 2) first_ = warps - first_;
    if (t.lane() == from_lane) slots_.set(first_ + t.warp(), value);
    t.sync();
    return slots_.get(first_ + (t.lane() & (warps - 1)));
  }
  // Joins `value` of all threads; all threads get the result.
  template <class Join> WHENCE_HD V reduce(Thread& t, V value, const Join& join) {
    return warp_reduce<warps>(t, (*this)(t, warp_reduce(t, value, join), 0), join);
  }

 private:
  Slots<V> slots_;
  int first_ = 0;
};

// Joins the values of all threads; all threads get the result. Every call takes new shared memory, block_reduce_bytes
// of it: not for loops.
template <int threads, class V>
inline constexpr std::size_t block_reduce_bytes = WarpValues<threads, V, 1>::shared_bytes;
template <int threads, class V, class Join> WHENCE_HD V block_reduce(Thread& t, V value, const Join& join) {
  return WarpValues<threads, V, 1>(t).reduce(t, value, join);
}

// A running sum: the sum before this thread's value, and the sum of all.
template <class V> struct Before {
  V before, all;
};

template <class V> WHENCE_HD V warp_running_sum(Thread& t, V value) {  // the sum of all lanes up to this one
  for (int distance = 1; distance < Thread::warp_size; distance *= 2) {
    const V below = t.shuffle_up(value, distance);
    if (t.lane() >= distance) value = below + value;
  }
  return value;
}

template <class V> WHENCE_HD Before<V> warp_sum_before(Thread& t, V value) {
  const V upto = warp_running_sum(t, value), below = t.shuffle_up(upto, 1);
  return {t.lane() == 0 ? V(0) : below, from_lane(t, upto, Thread::warp_size - 1)};
}

// The same over the block, for use in a loop.
template <int threads, class V>
WHENCE_HD Before<V> block_sum_before(Thread& t, WarpValues<threads, V, 2>& of_warps, V value) {
  constexpr int last = Thread::warp_size - 1;
  const V upto = warp_running_sum(t, value), below = t.shuffle_up(upto, 1);
  const V warps_upto = warp_running_sum(t, of_warps(t, upto, last));
  const V warps_before = from_lane(t, warps_upto, (t.warp() + last) & last);
  const V first = t.warp() == 0 ? V(0) : warps_before;
  return {t.lane() == 0 ? first : first + below, from_lane(t, warps_upto, of_warps.warps - 1)};
}

}  // namespace whence::gpu
