// Dropout.  (Srivastava et al. 2014)    y_i = x_i / (1 - p) where number i of the stream is at least p, else 0
//   dx_i = dy_i / (1 - p) at the same places, which are drawn again: nothing is saved
#include "autograd/checked.h"
#include "autograd/ops.h"
#include "tensor/launch.h"
#include "tensor/random.h"
#include "tensor/raw.h"

namespace whence {
namespace {

template <class T>
struct Drop {
  const T* x;
  T* y;
  index_t count;
  Stream stream;
  std::uint32_t threshold;  // of 2^24
  compute_t<T> scale;
  WHENCE_HD void operator()(index_t group) const {  // four elements: one call of Philox draws four words
    const auto words = philox(stream.key, static_cast<std::uint64_t>(group), stream.step);
    const index_t begin = group * 4, left = count - begin < 4 ? count - begin : 4;
    for (index_t k = 0; k < left; ++k) {
      const bool stays = (words[static_cast<std::size_t>(k)] >> 8) >= threshold;
      y[begin + k] = stays ? static_cast<T>(compute_t<T>(x[begin + k]) * scale) : T(compute_t<T>(0));
    }
  }
};

struct Dropout {
  static constexpr const char* name = "dropout";
  double probability;
  Stream stream;
  struct Saved {};

  Tensor forward(Saved&, const Tensor& x) const {
    raw::require_floating(name, "x", x);
    const Tensor from = raw::contiguous(x), y = Tensor::empty(x.shape(), x.dtype(), x.device());
    // Word >> 8 is uniform on 24 bits; comparing integers makes the choice the same on every device.
    const std::uint32_t threshold = static_cast<std::uint32_t>(std::ceil(probability * 0x1p24));
    visit_floating(name, x.dtype(), [&]<class T>(Type<T>) {
      using C = compute_t<T>;
      launch(name, x.device(), (x.numel() + 3) / 4,
             Drop<T>{from.data<T>(), y.data<T>(), x.numel(), stream, threshold, static_cast<C>(1 / (1 - probability))}, 16);
    });
    return y;
  }
  // Linear in x, so its own adjoint.
  Grads<1> backward(const Saved&, const Tensor& dy, Needs<1>) const { return {apply(Dropout{*this}, Site::current(), dy)}; }

  static Samples<Dropout> samples() {
    return {{"a third", {1.0 / 3, Stream(7, "dropout", 3)}, {draw::normal({3, 7})}},
            {"none", {0, Stream(7, "dropout", 3)}, {draw::normal({5})}},
            {"0-d", {0.5, Stream(1, "dropout")}, {draw::normal({})}},
            {"nothing", {0.5, Stream(1, "dropout")}, {draw::normal({0, 2})}}};
  }
  static std::vector<BadInput> bad_inputs() {
    return {{"dropout: probability 1 given; a number in [0, 1) required", [] { (void)dropout(Tensor::zeros({2}), 1, Stream()); }}};
  }
};

const Checked<Dropout> checked;

}  // namespace

Tensor dropout(const Tensor& x, double probability, const Stream& stream, Site at) {
  const CallSite place(at);
  if (!(probability >= 0 && probability < 1)) {
    fail(Dropout::name, concat("probability ", probability, " given; a number in [0, 1) required"));
  }
  return apply(Dropout{probability, stream}, at, x);
}

}  // namespace whence
