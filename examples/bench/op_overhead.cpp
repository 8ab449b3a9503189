// op_overhead: what an op on a handful of numbers costs above its kernel, recorded and not.
#include <algorithm>
#include <iostream>

#include "autograd/backward.h"
#include "autograd/ops.h"
#include "autograd/recording.h"
#include "examples/app/command.h"
#include "examples/app/command_line.h"
#include "examples/app/progress.h"
#include "examples/app/results.h"
#include "tensor/parallel.h"
#include "tensor/raw.h"

namespace whence {
namespace {

// Nanoseconds per call: the best of 20 rounds of 20 000 calls.
template <class F> double nanoseconds(const F& f) {
  double best = 1e9;
  for (int round = 0; round < 20; ++round) {
    const double start = steady_seconds();
    for (int call = 0; call < 20000; ++call) f();
    best = std::min(best, (steady_seconds() - start) / 20000);
  }
  return best * 1e9;
}

int run(int argc, char** argv) {
  CommandLine line("whence bench op_overhead", "What an op on four numbers costs above its kernel.");
  if (line.shows_page(argc, argv)) return 0;
  set_threads(1);
  const Tensor a = requires_grad(Tensor::ones({4})), b = requires_grad(Tensor::ones({4})), out = Tensor::empty({4});
  const Tensor table = requires_grad(Tensor::ones({1, 4})), position = Tensor::ones({1, 4});
  const Tensor m = requires_grad(Tensor::ones({4, 4})), product = Tensor::empty({4, 4});
  Table rows({"op", "kernel alone ns", "not recorded ns", "recorded ns", "above its kernel, recorded ns"});
  const auto measure = [&](const char* name, const auto& kernel, const auto& op) {
    const double alone = nanoseconds(kernel), recorded = nanoseconds(op);
    double plain = 0;
    {
      const NoGrad no_grad;
      plain = nanoseconds(op);
    }
    rows.row({name, fixed(alone, 0), fixed(plain, 0), fixed(recorded, 0), fixed(recorded - alone, 0)});
  };
  measure(
      "add [4]", [&] { cpu_kernels().binary(functions::Add{}, a, b, out); }, [&] { (void)add(a, b); });
  measure(
      "sigmoid [4]", [&] { cpu_kernels().unary(functions::Sigmoid{}, {}, a, out); }, [&] { (void)sigmoid(a); });
  measure(
      "matmul [4,4]", [&] { cpu_kernels().matmul(m, m, nullptr, 1, product); }, [&] { (void)matmul(m, m); });
  measure(
      "softmax [4,4]", [&] { cpu_kernels().softmax(m, {}, product); }, [&] { (void)softmax(m); });
  measure(
      "reshape [4]",
      [&] {
        (void)raw::reshape(a, {2, 2});
      },
      [&] {
        (void)reshape(a, {2, 2});
      });
  std::cout << rows.text();
  const Tensor x = requires_grad(Tensor::ones({4}));
  const double chain = nanoseconds([&] {
    Tensor y = x;
    for (int k = 0; k < 10; ++k) y = sigmoid(y);
    backward(y, Tensor::ones({4}));
  });
  std::cout << "ten sigmoids of [4], forward, backward and freed: " << fixed(chain / 10, 0) << " ns per op\n";
  return 0;
}

const RegisterCommand registered{
    {"bench op_overhead", Purpose::machine, "what an op on four numbers costs above its kernel", run}};

}  // namespace
}  // namespace whence
