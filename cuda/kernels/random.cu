// Random numbers: element i takes draw i of the stream, the same draw as on the CPU.
#include "tensor/random.h"

#include "cuda/kernels/kernels.h"
#include "tensor/convert.h"
#include "tensor/launch.h"

namespace whence {
namespace {

template <class T> struct Uniform {
  T* out;
  Stream stream;
  double low, high;
  WHENCE_HD void operator()(index_t i) const {
    const auto number = static_cast<std::uint64_t>(i);
    double draw;
    if constexpr (std::is_same_v<T, double>)
      draw = stream.uniform53(number);
    else
      draw = static_cast<double>(stream.uniform(number));
    out[i] = uniform_between<T>(low, high, draw);
  }
};

template <class T> struct Normal {
  T* out;
  Stream stream;
  double mean, deviation;
  WHENCE_HD void operator()(index_t i) const {
    // An index known only at run time would need the stack.
    const auto two = stream.two_normals(static_cast<std::uint64_t>(i) / 2);
    out[i] = convert<T>(mean + deviation * (i % 2 == 0 ? two[0] : two[1]));
  }
};

}  // namespace

void CudaKernels::random_uniform(const Tensor& out, const Stream& stream, double low, double high) {
  visit_real("uniform", out.dtype(), [&]<class T>(Type<T>) {
    launch("uniform", out.device(), out.numel(), Uniform<T>{out.data<T>(), stream, low, high});
  });
}

void CudaKernels::random_normal(const Tensor& out, const Stream& stream, double mean, double deviation) {
  visit_real("normal", out.dtype(), [&]<class T>(Type<T>) {
    launch("normal", out.device(), out.numel(), Normal<T>{out.data<T>(), stream, mean, deviation});
  });
}

}  // namespace whence
