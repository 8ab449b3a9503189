// Dropout.  (Srivastava et al. 2014)    y_i = x_i / (1 - p) where number i of the stream is at least p, else 0
//   dx_i = dy_i / (1 - p) at the same places, which are drawn again: nothing is saved
// Of a strip of rows, i counts the elements of the whole tensor, so that a strip draws what the whole would.
#include "autograd/check/checked.h"
#include "autograd/ops.h"
#include "tensor/device/backend.h"
#include "tensor/device/device_runtime.h"
#include "tensor/device/launch.h"
#include "tensor/divisor.h"
#include "tensor/random.h"
#include "tensor/raw.h"

namespace whence {
namespace {

// x is runs of `count` elements each; element e of run r has number r stride + offset + e.
// A tensor that is no strip is one run.
struct Numbering {
  index_t runs = 1, count, stride = 0, offset = 0;
  // Groups of four numbers, which one call of Philox draws, that a run may touch.
  index_t groups() const { return offset == 0 && stride == 0 ? (count + 3) / 4 : count / 4 + 2; }
};

template <class T> struct Drop {
  const T* x;
  T* y;
  Numbering at;
  Divisor groups;  // of a run
  Stream stream;
  std::uint32_t threshold;  // of 2^24
  compute_t<T> scale;
  WHENCE_HD void operator()(index_t i) const {
    const auto [run, nth] = groups(i);
    const index_t first = run * at.stride + at.offset, group = first / 4 + nth;
    const index_t last = first + at.count, shift = run * at.count - first;  // from a number to its place in x
    if (group * 4 >= last) return;
    const auto words = philox(stream.key, static_cast<std::uint64_t>(group), stream.step);
    for (index_t k = 0; k < 4; ++k) {
      const index_t n = group * 4 + k;
      if (n < first || n >= last) continue;
      const bool stays = (words[static_cast<std::size_t>(k)] >> 8) >= threshold;
      y[n + shift] = stays ? static_cast<T>(compute_t<T>(x[n + shift]) * scale) : T(compute_t<T>(0));
    }
  }
};

struct Dropout {
  static constexpr const char* name = "dropout";
  double probability;
  Stream stream;
  RowsOf rows = {};
  struct Saved {};

  Tensor forward(Saved&, const Tensor& x) const {
    const bool runs = !x.device().is_cpu() && !x.device().is_planned();
    if (runs && probability > 0 && runtime_of(x.device()).recording())
      fail(name,
          "asked for while work is being recorded, which would drop the same elements at each replay; "
          "probability 0 required");
    const Numbering numbers = numbering(x.shape());
    const Tensor from = raw::contiguous(x), y = Tensor::empty(x.shape(), x.dtype(), x.device());
    // Word >> 8 is uniform on 24 bits; comparing integers makes the choice the same on every device.
    const std::uint32_t threshold = static_cast<std::uint32_t>(std::ceil(probability * 0x1p24));
    visit_floating(name, x.dtype(), [&]<class T>(Type<T>) {
      using C = compute_t<T>;
      const index_t count = numbers.runs * numbers.groups();
      launch(name, x.device(), count,
          Drop<T>{from.data<T>(), y.data<T>(), numbers, {numbers.groups(), count}, stream, threshold,
              static_cast<C>(1 / (1 - probability))},
          16);
    });
    return y;
  }
  // Linear in x, so its own adjoint.
  Grads<1> backward(const Saved&, const Tensor& dy, Needs<1>) const {
    return {apply(Dropout{*this}, Site::current(), dy)};
  }

  Numbering numbering(const Shape& x) const {
    if (rows.total == 0) return {.count = numel(x)};
    if (x.rank() < 2) fail(name, "x is ", x, ", a strip of ", rows.total, " rows; [... i, j] required");
    const index_t i = x[-2], j = x[-1];
    if (rows.begin < 0 || rows.begin + i > rows.total) {
      fail(name, "x is ", x, ", rows [", rows.begin, ", ", rows.begin + i, ") of ", rows.total, "; rows inside [0, ",
          rows.total, ") required");
    }
    return {.runs = i * j == 0 ? 0 : numel(x) / (i * j),
        .count = i * j,
        .stride = rows.total * j,
        .offset = rows.begin * j};
  }

  static Samples<Dropout> samples() {
    return {{"a third", {1.0 / 3, Stream(7, "dropout", 3)}, {draw::normal({3, 7})}},
        {"none", {0, Stream(7, "dropout", 3)}, {draw::normal({5})}},
        {"a strip", {0.4, Stream(7, "dropout", 3), {2, 9}}, {draw::normal({2, 3, 5})}},
        {"0-d", {0.5, Stream(1, "dropout")}, {draw::normal({})}},
        {"nothing", {0.5, Stream(1, "dropout")}, {draw::normal({0, 2})}}};
  }
  static std::vector<BadInput> bad_inputs() {
    return {{"dropout: probability 1 given; a number in [0, 1) required",
                [] { (void)dropout(Tensor::zeros({2}), 1, Stream()); }},
        {"dropout: x is [2], a strip of 4 rows; [... i, j] required",
            [] {
              (void)dropout(Tensor::zeros({2}), 0.5, Stream(), {0, 4});
            }},
        {"dropout: x is [3,2], rows [2, 5) of 4; rows inside [0, 4) required", [] {
           (void)dropout(Tensor::zeros({3, 2}), 0.5, Stream(), {2, 4});
         }}};
  }
};

const Checked<Dropout> checked;

}  // namespace

Tensor dropout(const Tensor& x, double probability, const Stream& stream, Site at) {
  return dropout(x, probability, stream, RowsOf{}, at);
}

Tensor dropout(const Tensor& x, double probability, const Stream& stream, const RowsOf& rows, Site at) {
  const CallSite place(at);
  if (!(probability >= 0 && probability < 1))
    fail(Dropout::name, "probability ", probability, " given; a number in [0, 1) required");
  raw::require_floating(Dropout::name, "x", x);
  return apply(Dropout{probability, stream, rows}, at, x);
}

}  // namespace whence
