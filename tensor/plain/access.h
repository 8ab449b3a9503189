// Access of plain kernels to a tensor's numbers: x[i][j] is number j of row i, and x(n) is number n of all. Rows run
// along the last axis and are numbered row-major, for any strides. Arithmetic is in the compute type, and a number is
// rounded when it is set. A GPU's tensor is copied: In reads a copy on the CPU, and Out writes its copy back at the
// end.
#pragma once

#include <vector>

#include "tensor/convert.h"
#include "tensor/kernels.h"
#include "tensor/raw.h"

namespace whence::plain {

template <class T> using wide_t = std::conditional_t<std::is_same_v<T, Dual>, Dual, double>;  // for long sums

// One number of an Out.
template <class T> class Place {
 public:
  explicit Place(T& number) : number_(number) {}
  Place(const Place&) = default;
  operator compute_t<T>() const { return compute_t<T>(number_); }
  void operator=(const Place& other) { number_ = other.number_; }
  template <class V> void operator=(V value) { number_ = convert<T>(value); }
  void operator+=(compute_t<T> value) { *this = compute_t<T>(number_) + value; }

 private:
  T& number_;
};

// An undefined tensor has no rows, and counts as false.
template <class T> class In {
 public:
  struct Row {
    const T* first;
    index_t step;
    compute_t<T> operator[](index_t j) const { return compute_t<T>(first[j * step]); }
  };

  explicit In(const Tensor& given) {
    if (!given.defined()) return;
    here_ = raw::to_device(given, Device::cpu());
    const Tensor x = here_.rank() == 0 ? here_.view({1}, {1}) : here_;
    first_ = x.data<T>(), width_ = x.size(-1), step_ = x.strides()[-1];
    const Shape outer = x.shape().leading(-1);
    for (index_t row = 0; row < numel(outer); ++row) {
      const Shape at = position_of(row, outer);
      index_t offset = 0;
      for (int axis = 0; axis < outer.rank(); ++axis) offset += at[axis] * x.strides()[axis];
      starts_.push_back(offset);
    }
  }

  explicit operator bool() const { return here_.defined(); }
  index_t rows() const { return static_cast<index_t>(starts_.size()); }
  index_t width() const { return width_; }
  Row operator[](index_t i) const { return {first_ + starts_[static_cast<std::size_t>(i)], step_}; }
  compute_t<T> operator()(index_t n) const { return (*this)[n / width_][n % width_]; }

 protected:
  Tensor here_;
  T* first_ = nullptr;
  index_t width_ = 0, step_ = 0;
  std::vector<index_t> starts_;  // of the rows
};

template <class T> class Out : public In<T> {
 public:
  struct Row {
    T* first;
    index_t step;
    Place<T> operator[](index_t j) const { return Place<T>(first[j * step]); }
  };

  explicit Out(const Tensor& given) : In<T>(given), given_(given) {}
  Out(const Out&) = delete;
  Out& operator=(const Out&) = delete;
  ~Out() noexcept(false) {
    if (!given_.defined() || given_.device().is_cpu()) return;
    kernels(given_.device()).copy(raw::to_device(this->here_, given_.device()), given_);
  }

  Row operator[](index_t i) const { return {this->first_ + this->starts_[static_cast<std::size_t>(i)], this->step_}; }
  Place<T> operator()(index_t n) const { return (*this)[n / this->width_][n % this->width_]; }

 private:
  Tensor given_;
};

}  // namespace whence::plain
