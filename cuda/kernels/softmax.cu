// Softmax over rows: y_j = e^(x_j - max x) / sum_l e^(x_l - max x), and its backward.
#include "cuda/kernels/kernels.h"
#include "cuda/vocabulary/power.h"
#include "cuda/vocabulary/rows.h"
#include "tensor/strided_index.h"

namespace whence::gpu {
namespace {

// A row's mask may be at any address. Without a mask every entry that a row has is kept.
struct MaskRows {
  index_t width;                       // entries of a row
  Global<const bool> first = nullptr;  // null: no mask
  StridedIndex<1> row_start = {};
  index_t step = 0;
  bool in_packs = false;  // of pack_size<T> bytes, parallel to a row of T
};

template <class T> MaskRows mask_rows(const Tensor& x, const Tensor& mask) {
  if (!mask.defined()) return {.width = x.size(-1)};
  const Strides strides = mask.strides().leading(-1);
  bool in_packs = mask.strides()[-1] == 1 && begins_with_pack(mask, pack_size<T>);
  for (const index_t stride : strides) in_packs = in_packs && stride % pack_size<T> == 0;
  return {x.size(-1), global<const bool>(mask), {x.shape().leading(-1), {strides}}, mask.strides()[-1], in_packs};
}

// One thread's part of a row's mask, one bit per entry; read again in each pass if the row is.
template <class P> class MaskPart {
 public:
  WHENCE_HD MaskPart(const MaskRows& mask, index_t row)
      : mask_(mask), begin_(mask.first ? mask.row_start(row)[0] : 0), width_(mask.width) {}
  WHENCE_HD void hold(const Team<P>& team) {
    if constexpr (P::packs > 0) {
      static_assert(P::packs * P::pack <= 32);
      if (mask_.first) kept_ = 0;
      if (mask_.first) team.each_pack(width_, [this](int p, index_t j) { kept_ |= read(j) << (p * P::pack); });
    }
  }
  // Bit k is 1 if entry j + k is kept.
  WHENCE_HD unsigned operator()(int p, index_t j) const {
    const unsigned there = j + P::pack <= width_ ? ~0u : (1u << (width_ - j)) - 1;
    if constexpr (P::packs > 0) return kept_ >> (p * P::pack) & there;
    return mask_.first ? read(j) & there : there;
  }

 private:
  WHENCE_HD unsigned read(index_t j) const {
    unsigned bits = 0;
    if constexpr (P::pack > 1) {
      if (mask_.in_packs) {
        const auto pack = load_pack<P::pack>(mask_.first, begin_ + j);
        for (int k = 0; k < P::pack; ++k) bits |= (pack.of[k] ? 1u : 0u) << k;
        return bits;
      }
    }
    for (int k = 0; k < P::pack; ++k) bits |= (mask_.first[begin_ + (j + k) * mask_.step] ? 1u : 0u) << k;
    return bits;
  }
  const MaskRows& mask_;
  index_t begin_, width_;
  unsigned kept_ = ~0u;
};

template <class T> struct Logits {
  Global<const T> x;
  index_t begin;
  template <int N> WHENCE_HD Numbers<compute_t<T>, N> read(index_t j) const {
    return load_numbers<compute_t<T>, N>(x, begin + j);
  }
};

// The fast implementation: a row stays in the registers of a warp or of a block, and memory is read and written in
// packs.
// Per entry: 1 number and 1 byte of a mask read, 1 number written, 4 operations, 1 power: memory. For a row too wide to
// be held both are read twice, with 2 powers.
template <class T, class P> struct Softmax {
  static constexpr const char* name = "softmax";
  static constexpr int threads = P::threads;
  // For rows that are read again nvcc would limit itself to 32 registers and spill the bias's addresses.
  static constexpr int blocks_at_once = P::packs == 0 ? 2 : 0;
  using C = compute_t<T>;
  static constexpr std::size_t shared_bytes =
      P::packs > 0 ? 2 * P::template reduce_bytes<Number<C>> : P::template reduce_bytes<PowerSum<C>>;
  using Row = Logits<T>;
  Global<const T> x;
  MaskRows mask;
  Global<T> y;
  index_t rows, width;

  WHENCE_HD void operator()(Thread& t) const {
    const Team<P> team(t);
    const index_t row = team.row();
    if (row >= rows) return;
    RowPart<P, Row> values({x, row * width});
    MaskPart<P> kept(mask, row);
    values.hold(team, width);
    kept.hold(team);
    const PowerSum<C> sum = power_sum(team, values, kept);
    // The largest term is e^0 = 1, so the sum is at least 1 and the quotient is safe if any entry is kept.
    const Number<C> scale = Number<C>(C(1)) / sum.second;
    team.each_pack(width, [&](int p, index_t j) {
      const unsigned bits = kept(p, j);
      Numbers<C, P::pack> pack = values(p, j);
      for (int k = 0; k < P::pack; ++k) {
        const Number<C> power = P::packs > 0 ? pack.of[k] : math::exp(pack.of[k] - sum.first);
        pack.of[k] = bits >> k & 1u ? Number<C>(power * scale) : Number<C>(C(0));
      }
      store_numbers(y, row * width + j, pack);
    });
  }

  // Returns the row's maximum and the sum of powers below it: two passes over registers, which then hold the powers, or
  // one over memory.
  WHENCE_HD PowerSum<C> power_sum(const Team<P>& team, RowPart<P, Row>& values, const MaskPart<P>& kept) const {
    if constexpr (P::packs == 0) {
      PowerSum<C> sum = empty_power_sum<C>();
      team.each_pack(width, [&](int p, index_t j) { add_pack(sum, values(p, j), kept(p, j)); });
      return team.reduce(sum, JoinPowerSums<C>{});
    } else {
      Number<C> top = lowest<C>(), total = Number<C>(C(0));
      team.each_pack(width, [&](int p, index_t j) {
        const auto pack = values(p, j);
        const unsigned bits = kept(p, j);
        for (int k = 0; k < P::pack; ++k) top = bits >> k & 1u ? Larger{}(top, pack.of[k]) : top;
      });
      top = team.reduce(top, Larger{});
      team.each_pack(width, [&](int p, index_t j) {
        auto pack = values(p, j);
        const unsigned bits = kept(p, j);
        for (int k = 0; k < P::pack; ++k) {
          pack.of[k] = bits >> k & 1u ? math::exp(pack.of[k] - top) : Number<C>(C(0));
          total += pack.of[k];
        }
        values.hold(p, pack);
      });
      return {top, team.reduce(total, Plus{})};
    }
  }
};

// dx = y (dy - sum_l y_l dy_l)
// Per entry: 2 numbers read, 1 written, 4 operations: memory. A row too wide to be held is read twice.
template <class T, class P> struct SoftmaxBackward {
  static constexpr const char* name = "softmax_backward";
  static constexpr int threads = P::threads;
  using C = compute_t<T>;
  static constexpr std::size_t shared_bytes = P::template reduce_bytes<Number<C>>;
  Global<const T> y, dy;
  Global<T> dx;
  index_t rows, width;

  WHENCE_HD void operator()(Thread& t) const {
    const Team<P> team(t);
    const index_t row = team.row();
    if (row >= rows) return;
    RowPart<P, StoredRow<T>> pattern({y, row * width}), gradient({dy, row * width});
    pattern.hold(team, width);
    gradient.hold(team, width);
    Number<C> mean = Number<C>(C(0));
    team.each_pack(width, [&](int p, index_t j) {
      const auto a = pattern(p, j), b = gradient(p, j);
      for (int k = 0; k < P::pack; ++k) mean = j + k < width ? mean + a.of[k] * b.of[k] : mean;
    });
    mean = team.reduce(mean, Plus{});
    team.each_pack(width, [&](int p, index_t j) {
      const auto a = pattern(p, j);
      auto b = gradient(p, j);
      for (int k = 0; k < P::pack; ++k) b.of[k] = a.of[k] * (b.of[k] - mean);
      store_numbers(dx, row * width + j, b);
    });
  }
};

}  // namespace
}  // namespace whence::gpu

namespace whence {

using namespace gpu;

void CudaKernels::softmax(const Tensor& x, const Tensor& mask, const Tensor& y) {
  if (x.numel() == 0) return;
  const index_t width = x.size(-1), rows = x.numel() / width;
  visit_real("softmax", x.dtype(), [&]<class T>(Type<T>) {
    launch_rows<T, one_row>(rows, width, rows_fit_packs<T>(width, {&x, &y}), [&]<class P>(P) {
      return Softmax<T, P>{global<const T>(x), mask_rows<T>(x, mask), global<T>(y), rows, width};
    });
  });
}

void CudaKernels::softmax_backward(const Tensor& y, const Tensor& dy, const Tensor& dx) {
  if (y.numel() == 0) return;
  const index_t width = y.size(-1), rows = y.numel() / width;
  visit_real("softmax_backward", y.dtype(), [&]<class T>(Type<T>) {
    launch_rows<T, one_row>(rows, width, rows_fit_packs<T>(width, {&y, &dy, &dx}), [&]<class P>(P) {
      return SoftmaxBackward<T, P>{global<const T>(y), global<const T>(dy), global<T>(dx), rows, width};
    });
  });
}

}  // namespace whence
