// Read a table at a real-valued index: CoPE's interpolation.                       (Golovneva et al. 2024, Listing 1; nn/README.md, A1 and
// A9)
//   table t:[... n]   position p:[... m], 0 <= p <= n-1   ->   y:[... m]
//   y_j  = (1-w) t[a] + w t[c],   a = floor(p_j),  c = ceil(p_j),  w = p_j - a
//   dt[a] += (1-w) dy_j     dt[c] += w dy_j     dp_j = (t[c] - t[a]) dy_j
// At an integer a = c: the value is t[p], and dp_j is exactly 0 although the function has a corner there. Positions outside the table are
// read at its nearest end with derivative 0.
#include "autograd/checked.h"
#include "autograd/ops.h"
#include "tensor/launch.h"
#include "tensor/raw.h"

namespace whence {
namespace {

constexpr index_t block = 128;  // positions that are worked on side by side, so that all but the reads of the table are vector code

// Where the positions of a block lie: the row below and the share w of the row above; and what the table holds there.
template <class T>
struct Places {
  using C = compute_t<T>;
  std::int32_t below[block];
  C share[block], low[block], high[block];

  WHENCE_HD void find(const T* __restrict table, const T* __restrict position, index_t rows, index_t count) {
    const C last = C(static_cast<double>(rows - 1));
    for (index_t j = 0; j < count; ++j) {
      const C given = C(position[j]), above_zero = given > C(0) ? given : C(0);  // NaN: row 0
      const C inside = above_zero < last ? above_zero : last;
      below[j] = static_cast<std::int32_t>(inside);
      share[j] = inside - C(below[j]);
    }
    for (index_t j = 0; j < count; ++j) {
      const std::int32_t n = below[j];
      low[j] = C(table[n]);
      high[j] = C(table[n + (share[j] > C(0) ? 1 : 0)]);  // the row above is the ceiling: the same row at an integer
    }
  }
};

WHENCE_HD inline index_t at_most_block(index_t left) { return left < block ? left : block; }

template <class T>
struct LerpForward {
  const T *table, *position;
  T* y;
  index_t rows, width;
  WHENCE_HD void operator()(index_t row) const {
    using C = compute_t<T>;
    Places<T> at;
    for (index_t begin = row * width; begin < (row + 1) * width; begin += block) {
      const index_t count = at_most_block((row + 1) * width - begin);
      at.find(table + row * rows, position + begin, rows, count);
      for (index_t j = 0; j < count; ++j) y[begin + j] = static_cast<T>((C(1) - at.share[j]) * at.low[j] + at.share[j] * at.high[j]);
    }
  }
};

template <class T>
struct LerpBackward {
  using C = compute_t<T>;
  const T *table, *position, *dy;
  T *dtable, *dposition;
  C* sums;  // [rows of the table] per row; dtable itself unless T is 16 bit: one rounding at the end
  index_t rows, width;

  WHENCE_HD void operator()(index_t row) const {
    C* sum = sums + row * rows;
    for (index_t n = 0; n < rows; ++n) sum[n] = C(0);
    Places<T> at;
    for (index_t begin = row * width; begin < (row + 1) * width; begin += block) {
      const index_t count = at_most_block((row + 1) * width - begin);
      at.find(table + row * rows, position + begin, rows, count);
      // y = (1-w) t[a] + w t[c]
      const T* __restrict g = dy + begin;
      T* __restrict dp = dposition + begin;
      for (index_t j = 0; j < count; ++j) {
        dp[j] = static_cast<T>((at.high[j] - at.low[j]) * C(g[j]));
        at.low[j] = (C(1) - at.share[j]) * C(g[j]);  // from here on: what goes to the row below, and to the row above
        at.high[j] = at.share[j] * C(g[j]);
      }
      add_runs(at, count, sum);
    }
    if constexpr (!std::is_same_v<T, C>) {
      for (index_t n = 0; n < rows; ++n) dtable[row * rows + n] = static_cast<T>(sum[n]);
    }
  }

  // Neighbouring positions often lie between the same rows (CoPE's are sums of gates below 1): their shares stay in registers until the
  // row changes.
  WHENCE_HD void add_runs(const Places<T>& at, index_t count, C* sum) const {
    for (index_t j = 0; j < count;) {
      const std::int32_t n = at.below[j];
      C low = at.low[j], high = at.high[j];
      for (++j; j < count && at.below[j] == n; ++j) low += at.low[j], high += at.high[j];
      sum[n] += low;
      if (n + 1 < rows) sum[n + 1] += high;
    }
  }
};

struct LerpAt {
  static constexpr const char* name = "lerp_at";
  static constexpr bool once = true;
  struct Saved {
    SavedTensor table, position;
  };

  Tensor forward(Saved& saved, const Tensor& table, const Tensor& position) const {
    check(table, position);
    const Tensor t = raw::contiguous(table), p = raw::contiguous(position);
    saved.table = t;
    saved.position = p;
    const Tensor y = Tensor::empty(p.shape(), p.dtype(), p.device());
    visit_floating(name, p.dtype(), [&]<class T>(Type<T>) {
      const index_t rows = t.size(-1), width = p.size(-1);
      launch(name, p.device(), t.numel() / rows, LerpForward<T>{t.data<T>(), p.data<T>(), y.data<T>(), rows, width}, 2 * width);
    });
    return y;
  }

  Grads<2> backward(const Saved& saved, const Tensor& dy, Needs<2>) const {
    const Tensor t = saved.table.get(), p = saved.position.get(), g = raw::contiguous(dy);
    const Tensor dt = Tensor::empty(t.shape(), t.dtype(), t.device()), dp = Tensor::empty(p.shape(), p.dtype(), p.device());
    visit_floating(name, p.dtype(), [&]<class T>(Type<T>) {
      const index_t rows = t.size(-1), width = p.size(-1);
      const Tensor sums = std::is_same_v<T, compute_t<T>> ? dt : Tensor::empty(t.shape(), dtype_of<compute_t<T>>, t.device());
      launch(name, p.device(), t.numel() / rows,
             LerpBackward<T>{t.data<T>(), p.data<T>(), g.data<T>(), dt.data<T>(), dp.data<T>(), sums.data<compute_t<T>>(), rows, width},
             rows + 4 * width);
    });
    return {dt, dp};
  }

  static void check(const Tensor& table, const Tensor& position) {
    raw::require_floating(name, "table", table);
    raw::require_same_dtype(name, table, position);
    raw::require_same_device(name, table, position);
    bool agree = table.rank() == position.rank() && table.rank() > 0 && table.size(-1) > 0;
    for (int axis = 0; agree && axis + 1 < table.rank(); ++axis) agree = table.size(axis) == position.size(axis);
    if (!agree) {
      fail(name, concat("table is ", table.shape(), ", position is ", position.shape(),
                        "; [... n] with n > 0 and [... m] with the same leading axes required; expand one of them"));
    }
  }

  static Samples<LerpAt> samples() {
    return {{"interior", {}, {draw::normal({2, 3, 6}), draw::uniform({2, 3, 5}, 0, 5)}},
            {"integer positions", {}, {draw::normal({1, 6}), draw::integers({1, 9}, 0, 5)}, true},
            {"one-row table", {}, {draw::normal({4, 1}), Tensor::zeros({4, 7}, DType::f64)}, true},
            {"long rows", {}, {draw::normal({2, 9}), draw::uniform({2, 301}, 0, 8)}},
            {"outside the table", {}, {draw::normal({3, 4}), draw::uniform({3, 6}, 3.5, 7)}},
            {"no positions", {}, {draw::normal({2, 4}), draw::normal({2, 0})}}};
  }
  static std::vector<BadInput> bad_inputs() {
    return {
        {"lerp_at: table is [2,4], position is [3,5]; [... n] with n > 0 and [... m] with the same leading axes required; expand one of "
         "them",
         [] {
           (void)lerp_at(Tensor::zeros({2, 4}), Tensor::zeros({3, 5}));
         }}};
  }
  static Tensor reference(const std::vector<Tensor>& in) {
    std::vector<double> y;
    for (index_t b = 0; b < in[1].size(0); ++b) {
      for (index_t i = 0; i < in[1].size(1); ++i) {
        for (index_t j = 0; j < in[1].size(2); ++j) {
          const double p = in[1].at({b, i, j}), w = p - std::floor(p);
          const index_t below = static_cast<index_t>(std::floor(p)), above = static_cast<index_t>(std::ceil(p));
          y.push_back((1 - w) * in[0].at({b, i, below}) + w * in[0].at({b, i, above}));
        }
      }
    }
    return Tensor::of(y, in[1].shape(), DType::f64);
  }
};

const Checked<LerpAt> checked;

}  // namespace

Tensor lerp_at(const Tensor& table, const Tensor& position, Site at) { return apply(LerpAt{}, at, table, position); }

}  // namespace whence
