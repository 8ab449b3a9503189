// Pointers of kernels under the emulator. Each access must stay inside the memory that the pointer was made for, is
// checked against shadow memory, and is counted.
#pragma once

#include <cstddef>
#include <type_traits>

#include "cuda/emulator/costs.h"
#include "cuda/emulator/counted.h"
#include "cuda/emulator/shadow.h"
#include "tensor/tensor.h"

namespace whence::gpu {

// An index with its place in the source, for reports: x[i] needs no macro for it.
struct Index {
  template <class I>
    requires std::is_integral_v<I>
  Index(I i, Site site = Site::current()) : value(static_cast<index_t>(i)), at(site) {}
  index_t value;
  Site at;
};

namespace emulator {
[[noreturn]] void outside(
    Space space, bool writes, const void* number, const void* first, const void* end, std::size_t size, const Site& at);
[[noreturn]] void misaligned(const void* number, std::size_t size, const Site& at);
}  // namespace emulator

template <class T, emulator::Space space> class Element;

// A pointer and the memory that it may access. Null is allowed, and tested as for a plain pointer.
template <class T, emulator::Space space> class Pointer {
  using Value = std::remove_const_t<T>;
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;

 public:
  Pointer() = default;
  Pointer(std::nullptr_t) {}
  Pointer(T* first, Byte* begin, Byte* end) : at_(first), begin_(begin), end_(end) {}
  template <class U>
    requires std::is_same_v<T, const U>
  Pointer(const Pointer<U, space>& other) : at_(other.at_), begin_(other.begin_), end_(other.end_) {}

  explicit operator bool() const { return at_ != nullptr; }
  friend bool operator==(const Pointer& a, const Pointer& b) { return a.at_ == b.at_; }
  Pointer operator+(index_t count) const { return {shifted(count), begin_, end_}; }
  Pointer operator-(index_t count) const { return {shifted(-count), begin_, end_}; }
  Pointer& operator+=(index_t count) { return *this = *this + count; }
  Pointer& operator-=(index_t count) { return *this = *this - count; }
  index_t operator-(const Pointer& other) const { return at_ - other.at_; }

  auto operator[](Index i) const {
    if constexpr (std::is_const_v<T>)
      return read(i);
    else
      return Element<T, space>(*this, i);
  }

  // Notes what the running thread accesses at once; read and write then access the numbers.
  void note_cost(const Index& i, std::size_t bytes, bool writes = false) const {
    if (emulator::running.costs) emulator::running.costs->note(space, shifted(i.value), bytes, i.at, writes);
  }
  Value read(Index i) const {
    note_cost(i, sizeof(T));
    return read_one(i);
  }
  void write(Index i, const Value& value) const {
    note_cost(i, sizeof(T), true);
    write_one(i, value);
  }
  Value read_one(Index i) const {
    const T* const number = checked(i, false);
    emulator::note_read<sizeof(T)>(space, number, i.at);
    bytes_read() += sizeof(T);
    return *number;
  }
  void write_one(Index i, const Value& value) const {
    T* const number = checked(i, true);
    emulator::note_write<sizeof(T)>(space, number, i.at);
    bytes_written() += sizeof(T);
    *number = value;
  }
  Value add_atomically(Index i, const Value& value) const {
    T* const number = checked(i, true);
    emulator::note_write<sizeof(T)>(space, number, i.at, true);
    ++emulator::running.now.atomics;
    if (space == emulator::Space::global) note_cost(i, sizeof(T), true);
    bytes_read() += sizeof(T), bytes_written() += sizeof(T);
    const Value before = *number;
    *number = static_cast<Value>(before + value);
    return before;
  }
  T* address(const Index& i) const { return shifted(i.value); }
  void require_aligned(Index i, std::size_t bytes) const {
    if (reinterpret_cast<std::uintptr_t>(shifted(i.value)) % bytes != 0)
      emulator::misaligned(shifted(i.value), bytes, i.at);
  }

 private:
  template <class, emulator::Space> friend class Pointer;

  static std::uint64_t& bytes_read() {
    emulator::Counters& now = emulator::running.now;
    return space == emulator::Space::global ? now.global_read : now.shared_read;
  }
  static std::uint64_t& bytes_written() {
    emulator::Counters& now = emulator::running.now;
    return space == emulator::Space::global ? now.global_written : now.shared_written;
  }
  // Through integers: a pointer past its array is only an error when it is followed.
  T* shifted(index_t count) const {
    return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(at_) + static_cast<std::uintptr_t>(count) * sizeof(T));
  }
  T* checked(const Index& i, bool writes) const {
    T* const number = shifted(i.value);
    const auto at = reinterpret_cast<std::uintptr_t>(number), begin = reinterpret_cast<std::uintptr_t>(begin_);
    if (at < begin || at - begin + sizeof(T) > static_cast<std::size_t>(end_ - begin_))
      emulator::outside(space, writes, number, begin_, end_, sizeof(T), i.at);
    return number;
  }

  T* at_ = nullptr;
  Byte *begin_ = nullptr, *end_ = nullptr;
};

// The result of x[i] if it may be written. It reads and writes when it is used, so do not hold it in an `auto`; load()
// gives a number.
template <class T, emulator::Space space> class Element {
 public:
  Element(const Pointer<T, space>& pointer, Index i) : pointer_(pointer), i_(i) {}
  operator T() const { return pointer_.read(i_); }
  template <class C>
    requires std::is_floating_point_v<T>
  operator Counted<C>() const {
    return Counted<C>(pointer_.read(i_));
  }
  template <class V> Element& operator=(const V& value) {
    pointer_.write(i_, static_cast<T>(value));
    return *this;
  }
  Element& operator=(const Element& other) { return *this = static_cast<T>(other); }
  Element(const Element&) = default;
  template <class V> Element& operator+=(const V& value) { return *this = static_cast<T>(pointer_.read(i_) + value); }
  template <class V> Element& operator-=(const V& value) { return *this = static_cast<T>(pointer_.read(i_) - value); }
  template <class V> Element& operator*=(const V& value) { return *this = static_cast<T>(pointer_.read(i_) * value); }

 private:
  Pointer<T, space> pointer_;
  Index i_;
};

template <class T, emulator::Space space> struct NumberTraits<Element<T, space>> : NumberTraits<T> {
  static auto plain(const Element<T, space>& a) { return NumberTraits<T>::plain(static_cast<T>(a)); }
};

template <class T> using Global = Pointer<T, emulator::Space::global>;  // numbers in the device's memory
template <class T> using Shared = Pointer<T, emulator::Space::shared>;  // numbers in the block's memory

namespace emulator {
// Returns where kernels see the bytes of a storage on the device. Throws Error if it is not there.
std::byte* kernel_bytes(const Storage& storage);
}  // namespace emulator

// Returns a tensor's numbers as a kernel accesses them: its whole storage, since kernels use strides. REQUIRES: T is
// the tensor's dtype, const or not.
template <class T> Global<T> global(const Tensor& x) {
  if (!x.defined()) return nullptr;
  std::byte* const begin = emulator::kernel_bytes(x.storage());
  const std::ptrdiff_t offset =
      reinterpret_cast<const std::byte*>(x.data<std::remove_const_t<T>>()) - x.storage().bytes();
  return {reinterpret_cast<T*>(begin + offset), begin, begin + x.storage().size()};
}

// Returns element i as a number to compute with.
template <class C, class T, emulator::Space space> Number<C> load(const Pointer<T, space>& from, Index i) {
  using Value = std::remove_const_t<T>;
  if constexpr (NumberTraits<Value>::counted)
    return convert<C>(from.read(i));
  else
    return Number<C>(convert<C>(static_cast<compute_t<Value>>(from.read(i))));
}

// Sets element i to the number, rounded once.
template <class T, emulator::Space space, class C> void store(const Pointer<T, space>& to, Index i, const C& value) {
  if constexpr (NumberTraits<T>::counted)
    to.write(i, T(value));
  else
    to.write(i, static_cast<T>(convert<T>(value)));
}
template <class T, emulator::Space space, class C>
void add_in_place(const Pointer<T, space>& to, Index i, const C& value) {
  store(to, i, load<T>(to, i) + value);
}

// N neighbours in one access: [i] to [i + N - 1]. REQUIRES: i is a multiple of N, and the memory aligned to N numbers.
template <class T, int N> struct alignas(sizeof(T) * N) Pack {
  T of[N];
};
template <int N, class T, emulator::Space space>
Pack<std::remove_const_t<T>, N> load_pack(const Pointer<T, space>& from, Index i) {
  from.require_aligned(i, sizeof(T) * N);
  from.note_cost(i, sizeof(T) * N);
  Pack<std::remove_const_t<T>, N> pack = {};
  for (int k = 0; k < N; ++k) pack.of[k] = from.read_one({i.value + k, i.at});
  return pack;
}
template <int N, class T, emulator::Space space>
void store_pack(const Pointer<T, space>& to, Index i, const Pack<T, N>& pack) {
  to.require_aligned(i, sizeof(T) * N);
  to.note_cost(i, sizeof(T) * N, true);
  for (int k = 0; k < N; ++k) to.write_one({i.value + k, i.at}, pack.of[k]);
}

}  // namespace whence::gpu
