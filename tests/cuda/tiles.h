// Shared by the tests of tiled attention: random operands, an op's results, and their comparison with exact ones.
#pragma once

#include <algorithm>
#include <cmath>

#include "tensor/tiled_call.h"
#include "tests/support/device.h"

namespace whence::test {

inline Tensor drawn(const Shape& shape, DType dtype, const char* purpose, double deviation = 1) {
  return raw::cast(Tensor::normal(shape, 0, deviation, Stream(1, purpose), DType::f64), dtype);
}

// bool [batch, keys]: in sequence 0 the keys [first, end) are present, in others all.
inline Tensor present_from(index_t batch, index_t keys, index_t first, index_t end) {
  std::vector<double> present(static_cast<std::size_t>(batch * keys), 1.0);
  for (index_t j = 0; j < keys; ++j) present[static_cast<std::size_t>(j)] = j >= first && j < end;
  return Tensor::of(present, {batch, keys}, DType::boolean);
}

// Returns the output of op(operands), and the gradients of all operands by a cotangent.
template <class Operands, class Op>
std::vector<Tensor> output_and_gradients(const Operands& x, const Tensor& cotangent, const Op& op) {
  Operands leaves;
  std::vector<Tensor> asked;
  for (std::size_t k = 0; k < x.size(); ++k)
    if (x[k].defined()) asked.push_back(leaves[k] = requires_grad(x[k].detach()));
  const Tensor output = op(leaves);
  std::vector<Tensor> all = grad(output, cotangent, asked);
  all.insert(all.begin(), output.detach());
  return all;
}

inline std::vector<std::vector<double>> numbers_of(const std::vector<Tensor>& all) {
  std::vector<std::vector<double>> numbers;
  for (const Tensor& each : all) numbers.push_back(each.to_vector());
  return numbers;
}

// CHECKs that each of `found` is within `allowed` times the largest number of its exact one, or times 1, and has the
// bits of `before`, unless `before` is empty. Then `before` becomes `found`.
inline void compare(const std::vector<Tensor>& found, const std::vector<Tensor>& exact, double allowed,
    std::vector<std::vector<double>>& before) {
  const std::vector<std::vector<double>> numbers = numbers_of(found);
  for (std::size_t n = 0; n < exact.size(); ++n) {
    CAPTURE(n);
    double largest = 1, apart = 0;
    const std::vector<double> wanted = exact[n].to_vector();
    for (std::size_t k = 0; k < wanted.size(); ++k) {
      largest = std::max(largest, std::fabs(wanted[k]));
      apart = std::max(apart, std::isnan(numbers[n][k]) ? INFINITY : std::fabs(wanted[k] - numbers[n][k]));
    }
    CHECK(apart < allowed * largest);
  }
  if (!before.empty()) CHECK(numbers == before);
  before = numbers;
}

// A fact of the call, or an operand.
using Term = std::function<void(TiledCall&, TiledCall::Operands&)>;

inline Term fact(const std::function<void(TiledCall&)>& set) {
  return [=](TiledCall& at, TiledCall::Operands&) { set(at); };
}
inline Term present(index_t first, index_t end) {
  return [=](TiledCall& at, TiledCall::Operands& x) {
    at.present = present_from(x[TiledCall::query].size(0), x[TiledCall::key].size(2), first, end);
  };
}
inline const Term not_causal = fact([](TiledCall& at) { at.causal = false; });
inline const Term dropped =
    fact([](TiledCall& at) { at.dropout = 0.3, at.stream = Stream(7, "pairs", 3), at.total_rows += at.first_row + 2; });

// Calls f for each dtype: f64 on the emulated GPU alone.
template <class F> void for_each_tiled_dtype(std::initializer_list<DType> dtypes, const F& f) {
  const SharedMemoryOfH200 shared;
  gpu::emulator::Settings* const settings = emulator_settings();
  for (const DType dtype : dtypes) {
    CAPTURE(dtype);
    std::optional<With<bool>> in_f64;
    if (dtype == DType::f64 && !settings) continue;
    if (settings) in_f64.emplace(settings->tiles_in_f64, dtype == DType::f64);
    f(dtype);
  }
}

// Compares results(call, operands, cotangent) of the GPU with those of the CPU in f64: in bf16, if `many_orders`, in
// every order of threads.
template <class Results>
void expect_exact(const TiledCall& at, const TiledCall::Operands& x, const Tensor& cotangent, double allowed,
    bool many_orders, const Results& results) {
  TiledCall on_there = at;
  on_there.present = on_gpu(at.present), on_there.bin_of = on_gpu(at.bin_of);
  TiledCall::Operands wide, there;
  for (std::size_t k = 0; k < x.size(); ++k)
    if (x[k].defined()) wide[k] = raw::cast(x[k], DType::f64), there[k] = on_gpu(x[k]);
  const std::vector<Tensor> wanted = results(at, wide, raw::cast(cotangent, DType::f64));
  std::vector<std::vector<double>> before;
  const auto check = [&] { compare(results(on_there, there, on_gpu(cotangent)), wanted, allowed, before); };
  if (cotangent.dtype() == DType::bf16 && many_orders)
    in_every_order(check);
  else
    in_order(cotangent.dtype() == DType::f16 ? 1 : 20, check);
}

}  // namespace whence::test
