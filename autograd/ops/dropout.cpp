// Dropout.  (Srivastava et al. 2014)    y_i = x_i / (1 - p) where number i of the stream is at least p, else 0
//   dx_i = dy_i / (1 - p) at the same positions, which are drawn again: nothing is saved
// For a strip, i counts the elements of the whole tensor, so a strip draws the same numbers as the whole.
#include "autograd/linear_map.h"
#include "autograd/ops.h"
#include "tensor/backend.h"
#include "tensor/divisor.h"
#include "tensor/launch.h"
#include "tensor/random.h"
#include "tensor/raw.h"

namespace whence {
namespace {

// x is runs of `count` elements each; element e of run r has number (r / rows) stride + (r % rows) step + offset + e.
// The whole tensor is one run; a strip has one run for each of its rows.
struct Numbering {
  index_t runs = 1, count, stride = 0, step = 0, offset = 0;
  Divisor rows = {1, 1};
  // Returns how many groups of four numbers (one call of Philox draws a group) a run may touch.
  index_t groups() const { return step == 0 ? (count + 3) / 4 : count / 4 + 2; }
};

template <class T> struct Drop {
  const T* x;
  T* y;
  Numbering at;
  Divisor groups;  // groups of a run
  Stream stream;
  std::uint32_t threshold;  // p 2^24
  compute_t<T> scale;
  WHENCE_HD void operator()(index_t i) const {
    const auto [run, nth] = groups(i);
    const auto [matrix, row] = at.rows(run);
    const index_t first = matrix * at.stride + row * at.step + at.offset, group = first / 4 + nth;
    const index_t last = first + at.count,
                  shift = run * at.count - first;  // from the index of a number to its position in x
    if (group * 4 >= last) return;
    const auto words = philox(stream.key, static_cast<std::uint64_t>(group), stream.step);
    for (index_t k = 0; k < 4; ++k) {
      const index_t n = group * 4 + k;
      if (n < first || n >= last) continue;
      const bool stays = dropout_keeps(words[static_cast<std::size_t>(k)], threshold);
      y[n + shift] = stays ? static_cast<T>(compute_t<T>(x[n + shift]) * scale) : T(compute_t<T>(0));
    }
  }
};

Numbering numbering(const Shape& x, const StripOf& whole) {
  const auto& [first, rows, columns, first_column] = whole;
  if (rows == 0) return {.count = numel(x)};
  if (x.rank() < 2) fail("dropout", "x is ", x, ", a strip of ", rows, " rows; [... i, j] required");
  const index_t i = x[-2], j = x[-1];
  const index_t runs = j == 0 ? 0 : numel(x) / j;
  if (countable({runs, rows, columns}) < 0 || first < 0 || first > rows - i || first_column < 0 ||
      first_column > columns - j) {
    fail("dropout", "x is ", x, " at row ", first, ", column ", first_column, " of [", rows, ",", columns,
        "]; a strip that lies inside required");
  }
  return {.runs = runs,
      .count = j,
      .stride = rows * columns,
      .step = columns,
      .offset = first * columns + first_column,
      .rows = {i, runs}};
}

Tensor drop(const Tensor& x, double probability, const Stream& stream, const StripOf& whole) {
  const IndexLauncher* const launcher = backend_of(x.device()).launcher;
  if (probability > 0 && launcher && launcher->recording())
    fail("dropout",
        "asked for while work is being recorded, which would drop the same elements at each replay; "
        "probability 0 required");
  const Numbering numbers = numbering(x.shape(), whole);
  const Tensor from = raw::contiguous(x), y = Tensor::like(x);
  const std::uint32_t threshold = dropout_threshold(probability);
  visit_floating("dropout", x.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    const index_t count = numbers.runs * numbers.groups();
    launch("dropout", x.device(), count,
        Drop<T>{from.data<T>(), y.data<T>(), numbers, {numbers.groups(), count}, stream, threshold,
            static_cast<C>(1 / (1 - probability))},
        16);
  });
  return y;
}

}  // namespace

Tensor dropout(const Tensor& x, double probability, const Stream& stream, const StripOf& whole, Site site) {
  const CallSite place(site);
  if (!(probability >= 0 && probability < 1))
    fail("dropout", "probability ", probability, " given; a number in [0, 1) required");
  raw::require_floating("dropout", "x", x);
  // Dropout is linear in x and its own adjoint.
  const auto again = [](const Tensor& dy, const Shape&, double share, const Stream& drawn, const StripOf& of) {
    return dropout(dy, share, drawn, of);
  };
  return linear_map("dropout", site, x, drop, again, probability, stream, whole);
}

}  // namespace whence
