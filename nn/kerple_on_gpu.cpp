// Kerple's table on a GPU: one launch, and one for its gradient.
#include "autograd/op.h"
#include "autograd/ops.h"
#include "nn/positional/kerple.h"
#include "tensor/device/gpu_kernels.h"
#include "tensor/raw.h"

namespace whence {
namespace {

struct KerpleOp {
  static constexpr const char* name = "kerple";
  bool power;
  Tensor n, distances;  // [n 1] f64, and as the device reads them
  DType dtype;          // of the table
  struct Saved {
    SavedTensor r1, r2;
  };
  Tensor forward(Saved& saved, const Tensor& r1, const Tensor& r2) const {
    saved.r1 = r1, saved.r2 = r2;
    const Tensor table = Tensor::empty({r1.size(0), n.size(0)}, dtype, r1.device());
    gpu_kernels(r1).kerple(power, distances, r1, r2, table);
    return table;
  }
  Grads<2> backward(const Saved& saved, const Tensor& dy, Needs<2>) const {
    const Tensor r1 = saved.r1.get(), r2 = saved.r2.get(), d1 = Tensor::like(r1), d2 = Tensor::like(r2);
    gpu_kernels(r1).kerple_backward(power, distances, r1, r2, raw::contiguous(dy), d1, d2);
    return {d1, d2};
  }
  static std::array<Tensor, 2> inputs(const Saved& saved) { return {saved.r1.get(), saved.r2.get()}; }
  Tensor composed(const std::vector<Tensor>& in) const { return kerple_table(power, n, dtype, in[0], in[1]); }
};

Tensor fused_table(bool power, const Tensor& n, DType dtype, const Tensor& r1, const Tensor& r2) {
  const Tensor distances = raw::to_device(raw::cast(n, compute_dtype(dtype)), r1.device());
  const auto read = [&](const Tensor& r) { return r.dtype() == dtype ? r : cast(r, compute_dtype(dtype)); };
  return apply(KerpleOp{power, n, distances, dtype}, Site::current(), read(r1), read(r2));
}
const bool registered_kerple = (kerple_on_gpu = fused_table, true);

}  // namespace
}  // namespace whence
