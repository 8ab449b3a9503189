// Random numbers: element n is number n of the stream.
#include "tensor/random.h"

#include "tensor/plain/access.h"

namespace whence {

using plain::Out;

// out_n = low + (high - low) u_n, u uniform on [0, 1): of 24 bits, or 53 in f64
void Kernels::random_uniform(const Tensor& out, const Stream& stream, double low, double high) {
  visit_floating("uniform", out.dtype(), [&]<class T>(Type<T>) {
    const Out<T> to(out);
    for (index_t n = 0; n < out.numel(); ++n) {
      const auto number = static_cast<std::uint64_t>(n);
      const double draw = std::is_same_v<T, double> ? stream.uniform53(number) : stream.uniform(number);
      to(n) = uniform_between<std::conditional_t<std::is_same_v<T, Dual>, double, T>>(low, high, draw);
    }
  });
}

// out_n = mean + deviation z_n, z standard normal
void Kernels::random_normal(const Tensor& out, const Stream& stream, double mean, double deviation) {
  visit_floating("normal", out.dtype(), [&]<class T>(Type<T>) {
    const Out<T> to(out);
    for (index_t n = 0; n < out.numel(); ++n) to(n) = mean + deviation * stream.normal(static_cast<std::uint64_t>(n));
  });
}

}  // namespace whence
