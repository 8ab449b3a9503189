// Kernels on rows. The body of a kernel sees one row of each operand as contiguous numbers of the compute type, whatever
// the strides and dtypes:
//   Operands(Out<T>(y), In<T>(x)).each_row([](auto to, auto from) { for (...) to[j] = -from[j]; });
// A row that is contiguous and of the compute type is read and written where it is. Any other is packed into scratch,
// and rounded once when it leaves. An undefined tensor is read as zeros, and what is written to it is lost. Threads
// share rows in chunks whose borders depend on sizes alone; no row has more than one thread.
#pragma once

#include <algorithm>
#include <memory>
#include <tuple>
#include <vector>

#include "tensor/kernels.h"
#include "tensor/kernels/rows.h"
#include "tensor/strided_loop.h"

namespace whence {

// Contiguous numbers.
template <class C> struct Row {
  C* first;
  index_t count;
  C& operator[](index_t j) const { return first[j]; }
  index_t size() const { return count; }
  operator Row<const C>() const { return {first, count}; }
};
template <class C> auto maximum_of(Row<C> x) { return maximum_of<std::remove_const_t<C>>(x.first, x.count); }
template <class C> auto sum_of(Row<C> x) {
  return sum_of<std::remove_const_t<C>>(x.count, [x](index_t j) { return x[j]; });
}

// On a row's function: one for f16, bf16 and f32, which are all computed in f32.
#define WHENCE_ROW [[gnu::noinline]] static

enum class Way : unsigned char { in, out, total };

// A tensor whose rows run along the last axis: one for each row of the first operand, or one for all. Of `row_each` a
// row is that many numbers, one row after another.
template <class T> using stored_t = std::conditional_t<std::is_same_v<T, bool>, unsigned char, T>;
template <class T, Way w, class As = compute_t<stored_t<T>>> struct Operand {
  using Stored = stored_t<T>;
  using C = As;
  static constexpr Way way = w;
  static constexpr bool widens = !std::is_same_v<Stored, C>;

  explicit Operand(const Tensor& given, index_t row_each = 0) : x(given), each(row_each) {
    if (x.defined()) data = reinterpret_cast<Stored*>(x.bytes());
  }
  index_t width(index_t if_undefined) const { return each ? each : x.defined() ? x.shape()[-1] : if_undefined; }
  index_t step() const { return each || !x.defined() ? 1 : x.strides()[-1]; }
  // Null if the tensor has one row for all, or rows one after another.
  const Strides* strides(int axes) const { return x.defined() && !each && x.rank() == axes ? &x.strides() : nullptr; }

  template <class Sum> void take(Sum*& room, index_t size) {
    if constexpr (way == Way::total) sums = std::exchange(room, room + size);
  }
  // Adds the sums of chunks in order, in double, and rounds once.
  void join(index_t chunks, index_t width_of_sums) const {
    if (way != Way::total || !x.defined()) return;
    std::vector<std::conditional_t<std::is_same_v<C, Dual>, Dual, double>> joined(
        static_cast<std::size_t>(width_of_sums));
    for (index_t chunk = 0; chunk < chunks; ++chunk) {
      const C* const sum = sums + chunk * width_of_sums;
      for (std::size_t j = 0; j < joined.size(); ++j) joined[j] += sum[j];
    }
    store_block(joined.data(), width_of_sums, data, step());
  }

  const Tensor& x;
  Stored* data = nullptr;
  index_t each;
  C* sums = nullptr;  // of a total: a row for each chunk
};
// As T: neither widened nor rounded; a body that meets each number once converts it as fast.
template <class T, class As = compute_t<stored_t<T>>> using In = Operand<T, Way::in, As>;
template <class T, class As = compute_t<stored_t<T>>> using Out = Operand<T, Way::out, As>;
template <class T> using Total = Operand<T, Way::total>;  // the sum of what the body adds to its row, over all rows

// The rows of one operand in one chunk of work.
template <class Of> class Lane {
  using C = typename Of::C;

 public:
  struct Start {
    const Of& of;
    index_t step, chunk, width;
  };
  explicit Lane(const Start& at) : data_(at.of.data), step_(at.step) {
    if constexpr (Of::way == Way::total) sum_ = at.of.sums + at.chunk * at.width;
  }
  Lane(const Lane&) = delete;

  Row<std::conditional_t<Of::way == Way::in, const C, C>> enter(index_t offset, index_t count) {
    if constexpr (Of::way == Way::total) return {sum_, count};
    if constexpr (!Of::widens)
      if ((step_ == 1 || count == 1) && data_) return {data_ + offset, count};
    return {packed(offset, count), count};
  }
  void leave(index_t offset, index_t count) {
    if constexpr (Of::way == Way::out)
      if (data_ && (Of::widens || (step_ != 1 && count != 1))) unpack(offset, count);
  }

 private:
  // Not inline, as these loops would be compiled for each kernel.
  [[gnu::noinline]] C* packed(index_t offset, index_t count) {
    C* const room = scratch(count);
    if (Of::way == Way::in && (!is_packed_ || packed_ != offset || packed_count_ < count)) {
      data_ ? load_block(data_ + offset, step_, count, room) : void(std::fill_n(room, count, C{}));
      packed_ = offset, packed_count_ = count, is_packed_ = true;  // a row for all, as a bias is, is packed once
    }
    return room;
  }
  [[gnu::noinline]] void unpack(index_t offset, index_t count) {
    store_block(scratch(count), count, data_ + offset, step_);
  }
  C* scratch(index_t count) {
    if (static_cast<std::size_t>(count) * sizeof(C) <= sizeof near_) return reinterpret_cast<C*>(near_);
    if (count > room_) far_.reset(new C[static_cast<std::size_t>(room_ = count)]);
    return far_.get();
  }

  typename Of::Stored* data_;
  C* sum_ = nullptr;
  index_t step_, packed_ = 0, packed_count_ = 0, room_ = 0;
  bool is_packed_ = false;
  std::unique_ptr<C[]> far_;
  alignas(64) std::byte near_[4480];  // not 4096: rows that far apart would wait for each other in the cache
};

template <class... Of> class Operands {
  static constexpr std::size_t n = sizeof...(Of);
  using All = std::make_index_sequence<n>;
  using Counts = std::array<index_t, n>;

 public:
  explicit Operands(const Of&... of) : of_(of...) {}

  // Calls body(row of each operand) for each row of the first operand. `work`: of a number, in numbers copied.
  template <class Body> void each_row(const Body& body, index_t work = 1) {
    const Shape& shape = std::get<0>(of_).x.shape();
    const index_t widest = each([](const auto&... of) { return std::max({of.width(0)...}); });
    const Counts width = each([=](const auto&... of) { return Counts{of.width(widest)...}; });
    const Counts step = each([](const auto&... of) { return Counts{of.step()...}; });
    const Counts row_each = each([](const auto&... of) { return Counts{of.each...}; });
    const auto strides = each([&](const auto&... of) { return std::array{of.strides(shape.rank())...}; });
    const StridedLoop<n> loop(shape, shape.rank() - 1,
        [&](std::size_t k, int axis, index_t rows) { return strides[k] ? (*strides[k])[axis] : row_each[k] * rows; });
    constexpr index_t totals = ((Of::way == Way::total) + ... + 0);
    const index_t grain = std::max<index_t>(rows_per_chunk(work * widest), totals > 0 ? 16 : 1);
    const index_t chunks = (loop.count() + grain - 1) / grain;
    Tensor sums;
    if constexpr (totals > 0) {
      using C = typename std::tuple_element_t<n - 1, std::tuple<Of...>>::C;
      sums = Tensor::empty({totals, chunks, widest}, dtype_of<C>);
      C* next = sums.template data<C>();
      std::fill_n(next, sums.numel(), C(0));
      each([&](auto&... of) { (of.take(next, chunks * widest), ...); });
    }
    run(loop, grain, step, widest, [&](auto& lanes, auto at, index_t count) {
      for (index_t row = 0; row < count; ++row) {
        call(body, lanes, at, width, All());
        for (std::size_t k = 0; k < n; ++k) at[k] += loop.inner_stride(k);
      }
    });
    if constexpr (totals > 0) each([&](const auto&... of) { (of.join(chunks, widest), ...); });
  }

  // Calls body(numbers of each operand) for runs that cover all numbers of the first operand; all have its shape.
  // `one_is_short`: if a single operand repeats one number, it is given as a run of size 1.
  template <class Body> void each_run(const Body& body, bool one_is_short = false) {
    const Shape& shape = std::get<0>(of_).x.shape();
    const auto strides = each([](const auto&... of) { return std::array{&of.x.strides()...}; });
    const StridedLoop<n> loop(
        shape, shape.rank(), [&](std::size_t k, int axis, index_t) { return (*strides[k])[axis]; });
    Counts step;
    for (std::size_t k = 0; k < n; ++k) step[k] = loop.inner_stride(k);
    const bool one = one_is_short && std::count(step.begin(), step.end(), 0) == 1;
    const auto is_one = [&](std::size_t k) { return one && step[k] == 0; };
    bool direct = !(Of::widens || ...);
    for (std::size_t k = 0; k < n; ++k) direct = direct && (step[k] == 1 || is_one(k));
    const auto lengths = [&](index_t length) {
      Counts all;
      for (std::size_t k = 0; k < n; ++k) all[k] = is_one(k) ? 1 : length;
      return all;
    };
    run(loop, cpu_grain, step, 0, [&](auto& lanes, auto at, index_t count) {
      if (direct) return call(body, lanes, at, lengths(count), All());
      for (index_t length; count > 0; count -= length) {
        call(body, lanes, at, lengths(length = std::min(count, block_length)), All());
        for (std::size_t k = 0; k < n; ++k) at[k] += length * step[k];
      }
    });
  }

 private:
  template <class F> auto each(const F& f) { return std::apply(f, of_); }

  template <class Chunk>
  void run(const StridedLoop<n>& loop, index_t grain, const Counts& step, index_t width, const Chunk& chunk) {
    parallel_for(loop.count(), grain, [&](index_t begin, index_t end) {
      [&]<std::size_t... k>(std::index_sequence<k...>) {
        std::tuple<Lane<Of>...> lanes(typename Lane<Of>::Start{std::get<k>(of_), step[k], begin / grain, width}...);
        loop.run(begin, end, [&](const auto& at, index_t count) { chunk(lanes, at, count); });
      }(All());
    });
  }

  template <class Body, class Lanes, std::size_t... k>
  static void call(const Body& body, Lanes& lanes, const Counts& at, const Counts& count, std::index_sequence<k...>) {
    body(std::get<k>(lanes).enter(at[k], count[k])...);
    (std::get<k>(lanes).leave(at[k], count[k]), ...);
  }

  std::tuple<Of...> of_;
};

}  // namespace whence
