// Every checked op on a GPU or on the emulated one, forward and backward, against the CPU; on the emulated one in several
// orders of threads. Every kernel: elementwise.cpp and rows.cpp.
#include <set>

#include "autograd/samples/samples.h"
#include "tests/support/device.h"

using namespace whence;
using namespace whence::test;

namespace {

std::vector<Tensor> run_sample(const CheckedSample& sample, DType dtype, Device device) {
  std::vector<Tensor> inputs = sample.inputs;
  for (Tensor& x : inputs)
    if (x.defined()) x = raw::copy(is_floating(x.dtype()) ? raw::cast(x, dtype) : x);
  return results_on(device, inputs, sample.run);
}

// Returns all numbers of a sample: the rest after cancelling is judged by the size of the cancelled terms.
std::vector<double> all_numbers(const std::vector<Tensor>& results) {
  std::vector<double> numbers;
  for (const Tensor& result : results) {
    if (!result.defined()) continue;
    for (const double value : result.to_vector()) numbers.push_back(value);
  }
  return numbers;
}

// The largest r g of layer norm's dx = r (g - mean(g) - n mean(g n)), g = dy w. With two channels n is +-sqrt(1 -
// epsilon r^2): all of g - mean(g) but its share epsilon r^2 cancels, and the rounding of r g stays. Since r <= 2 / |x0
// - x1|, that is 83 in a sample whose dx is 0.55. Two correct kernels differ by 1e-14 there. Returns 0 for other
// samples.
double cancelled(const CheckedOp& op, const CheckedSample& sample, const Tensor& cotangent) {
  if (op.name != "layer_norm" || sample.inputs[0].size(-1) != 2) return 0;
  const std::vector<double> x = sample.inputs[0].to_vector(), w = sample.inputs[1].to_vector(),
                            dy = cotangent.to_vector();
  double largest = 0;
  for (std::size_t k = 0; k < x.size(); ++k)
    largest = std::max(largest, std::abs(dy[k] * w[k % 2] * 2 / (x[k] - x[k ^ 1])));
  return largest;
}

// `alone`: each result is judged by its own size.
void check_on_gpu(const CheckedOp& op, DType dtype, bool alone) {
  for (const CheckedSample& sample : op.samples()) {
    INFO(op.name, ", name ", sample.name, ", dtype ", dtype);
    const auto on_gpu_in = [&](std::uint64_t order) {
      return in_order(order, [&] { return run_sample(sample, dtype, Device::cuda(0)); });
    };
    const auto expected = run_sample(sample, dtype, Device::cpu()), got = on_gpu_in(0), again = on_gpu_in(20);
    REQUIRE(got.size() == expected.size());
    for (std::size_t k = 0; k < got.size(); ++k) {
      REQUIRE(got[k].defined() == expected[k].defined());
      if (!got[k].defined()) continue;
      CHECK(got[k].device() == Device::cuda(0));
      CHECK(got[k].dtype() == expected[k].dtype());
      CHECK(got[k].shape() == expected[k].shape());
      CHECK(same_bits(raw::copy(on_cpu(got[k])), raw::copy(on_cpu(again[k]))));
      if (alone) expect_close(got[k].to_vector(), expected[k].to_vector(), dtype, 16);
    }
    index_t terms = 1;
    for (const Tensor& x : sample.inputs) terms = std::max(terms, x.defined() ? x.numel() : 1);
    if (!alone)
      expect_close(all_numbers(got), all_numbers(expected), dtype, terms, cancelled(op, sample, expected.at(1)));
  }
}

}  // namespace

TEST_CASE("cuda: every checked op on the GPU agrees with the CPU, forward and backward, in any order of threads") {
  const std::set<std::string> in_16_bits{"rotary", "take_rows", "scatter_rows", "gather", "sum_by_index", "lerp_at",
      "dropout", "masked", "concat_along", "convolve_keys", "straight_through"};
  std::size_t found = 0;
  for (const CheckedOp& op : checked_ops()) {
    if (op.on_cpu_alone) continue;
    for (const DType dtype : {DType::f32, DType::f64}) check_on_gpu(op, dtype, false);
    if (!in_16_bits.count(op.name)) continue;
    ++found;
    for (const DType dtype : {DType::f16, DType::bf16}) check_on_gpu(op, dtype, true);
  }
  CHECK(found == in_16_bits.size());
}
