// The kernels that work on rows (softmax, norms, cross-entropy, reductions, running sums) on the device, or under the
// emulator, against the plain ones; and properties of a GPU's rows alone.
#include <algorithm>

#include "tests/cuda/walk.h"

using namespace whence;
using namespace whence::test;

static const Device device = Device::cuda(0);

TEST_CASE("cuda rows: every kernel along axes has the CPU's numbers") { walk_on_gpu(row_cases()); }

TEST_CASE("cuda rows: cross-entropy of rows with gaps; the gaps are not read, and become 0") {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    for (const index_t width : {1, 7, 8, 130, 1023, 1027, 5003}) {
      for (const index_t apart : {(width + 127) / 128 * 128, width + 3}) {
        INFO(dtype, ", width ", width, ", apart ", apart);
        const index_t rows = 3;
        const DType wide = compute_dtype(dtype);
        const Tensor logits = random_tensor({rows, width}, dtype, 1), target = Tensor::of({0, -1, 0}, {3}, DType::i64),
                     dy = Tensor::full({}, 1.5, wide);
        target.data<index_t>()[2] = width - 1;
        const Tensor norm = Tensor::zeros({rows, 2}, wide), loss = Tensor::zeros({rows}, wide),
                     dx = Tensor::zeros({rows, width}, dtype);
        kernels(Device::cpu()).cross_entropy(logits, target, -1, norm, loss);
        kernels(Device::cpu()).cross_entropy_backward(logits, target, -1, norm, dy, 0.125, dx);
        // NaN between the rows: a sum that had one would be NaN.
        const Tensor memory = Tensor::full({rows, apart}, std::nan(""), dtype),
                     inside = raw::slice(memory, 1, 0, width);
        kernels(Device::cpu()).copy(logits, inside);
        const auto on = [](const Tensor& x) { return raw::to_device(x, device); };
        const Tensor there = on(memory), x = raw::slice(there, 1, 0, width);
        const Tensor norm_there = on(norm), loss_there = on(Tensor::zeros({rows}, wide));
        kernels(device).cross_entropy(x, on(target), -1, norm_there, loss_there);
        expect_close(norm_there.to_vector(), norm.to_vector(), wide, width);
        expect_close(loss_there.to_vector(), loss.to_vector(), wide, width);
        kernels(device).cross_entropy_backward(x, on(target), -1, norm_there, on(dy), 0.125, x);  // in place
        expect_close(x.to_vector(), dx.to_vector(), dtype, 4);
        const std::vector<double> between = raw::slice(there, 1, width, apart).to_vector();
        CHECK(std::all_of(between.begin(), between.end(), [](double v) { return v == 0; }));
      }
    }
  }
}
