// DAPE's network f can be ALiBi, KERPLE, or any other function of the distance (arXiv:2405.14722, section 3), by weights
// that need no training. Its base is ALiBi, whose bias -m d in head 0 names the distance d: hidden unit n is
// leaky_relu(d - n), a line that breaks at n, and f is a sum of such lines, which meets any function at whole distances.
// Prints the biases of two heads, and f's. A constant (b2) is left out, because the softmax drops it.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "autograd/recording.h"
#include "nn/attention/attend.h"
#include "nn/scheme.h"

using namespace whence;

constexpr int length = 12, heads = 2, units = length;  // a unit for each distance
constexpr double m = 1.0 / 16;                         // ALiBi's slope in the first of two heads

double wanted(int head, int d) { return head == 0 ? -0.3 * d : -2 * std::log1p(0.5 * d); }  // ALiBi; KERPLE

int main() {
  const NoGrad values_only;
  const auto scheme = parse_schemes("dape(alibi, form=concat, width=" + std::to_string(units) + ")")[0].make(
      {.dim = 1, .heads = heads});
  const auto parameters = scheme->parameters();  // hidden.weight, hidden.bias, output.weight, output.bias
  const auto numbers = [&](std::size_t k) { return parameters[k].tensor.data<float>(); };
  for (const Module::Parameter& each : parameters) std::fill_n(each.tensor.data<float>(), each.tensor.numel(), 0.0F);
  for (int n = 0; n < units; ++n) {
    numbers(0)[4 * n + 2] = static_cast<float>(-1 / m);  // of S in both heads, then B in both
    numbers(1)[n] = static_cast<float>(-n);
  }
  // Between n and n + 1, f rises by 0.99 (w_0 + ... + w_n) + 0.01 (w_0 + ... + w_last): a unit passes a hundredth below 0.
  // So w_n is (rise(n) - rise(n-1)) / 0.99. The sum of all w is the last rise, which leaves w_0.
  for (int head = 0; head < heads; ++head) {
    const auto rise = [&](int n) { return wanted(head, n + 1) - wanted(head, n); };
    for (int n = 0; n < units; ++n) {
      const double first = rise(units - 1) - (rise(units - 1) - rise(0)) / 0.99,
                   w = n == 0 ? first : (rise(n) - rise(n - 1)) / 0.99;
      numbers(2)[head * units + n] = static_cast<float>(w);
    }
  }
  const Tensor zeros = Tensor::zeros({1, heads, length, 1}), value = Tensor::zeros({1, heads, length, length});
  for (int row = 0; row < heads * length; ++row) value.data<float>()[row * length + row % length] = 1;
  const Tensor weights = attend_by_reference(
      {Tensor(), zeros, zeros, value, Sequence::run(length)}, Stages::of({scheme.get()}));  // [1 head query key]
  std::puts("distance    ALiBi        f   KERPLE        f");
  for (int d = 0; d < length; ++d) {
    std::printf("%8d", d);
    for (int head = 0; head < heads; ++head) {
      const auto logit = [&](int key) { return std::log(weights.at({0, head, length - 1, key})); };
      std::printf(" %8.4f %8.4f", wanted(head, d), logit(length - 1 - d) - logit(length - 1));
    }
    std::puts("");
  }
}
