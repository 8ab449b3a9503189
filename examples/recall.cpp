// Associative recall by weights that need no training (DAPE V2, arXiv:2410.04798, appendix A): tokens come once, the last
// a second time, and the answer is what followed it. Prints the least mass that the last row puts on the answer.
#include <cmath>
#include <cstdio>
#include <numeric>

#include "autograd/recording.h"
#include "nn/attention/attend.h"
#include "nn/scheme.h"
#include "tensor/random.h"
#include "tensor/raw.h"

using namespace whence;
using Tokens = std::vector<index_t>;

Tensor one_hot(const Tokens& tokens, index_t kinds, double value = 1) {  // [1 1 t kinds]; a row of -1 is zeros
  const Tensor x = Tensor::zeros({1, 1, static_cast<index_t>(tokens.size()), kinds});
  for (index_t row = 0; const index_t token : tokens) {
    if (token >= 0) x.data<float>()[row * kinds + token] = static_cast<float>(value);
    ++row;
  }
  return x;
}

Tensor head(const Tensor& query, const Tensor& key, const Tensor& value, const Stages& stages = {}) {
  AttendInputs inputs{Tensor(), query, key, value, Sequence::run(query.size(2))};
  inputs.scale = 1;
  return attend_by_reference(inputs, stages);
}

// Proposition 3, one layer without positions: A_ij = S_ij + conv(S)_ij = S_i(j-1), because leaky(u) - leaky(-u) = 1.01 u.
double by_convolution(const Tokens& tokens, index_t answer, double beta, const std::vector<double>& kernel) {
  const auto scheme = parse_schemes("cdape(none, width=2, kernel=3)")[0].make({.dim = 1, .heads = 1});
  const double half = 1 / 1.01;
  const std::vector<double> weights[] = {kernel, {0, 0}, {0, half, 0, 0, -half, 0}, {0}};
  for (int k = 0; const Module::Parameter& each : scheme->parameters())
    raw::copy_into(Tensor::of(weights[k++], each.tensor.shape()), each.tensor.detach());
  const auto kinds = static_cast<index_t>(tokens.size());
  const Tensor x = one_hot(tokens, kinds);
  return head(one_hot(tokens, kinds, beta), x, x, Stages::of({scheme.get()})).at({0, 0, kinds - 1, answer});
}

// Proposition 2, two plain layers: row i of the first reads token i-1; the last row of the second, what followed itself.
double by_positions(const Tokens& tokens, index_t answer, double beta) {
  const auto n = static_cast<index_t>(tokens.size());
  Tokens places(tokens.size());
  std::iota(places.begin(), places.end(), 0);
  Tokens before = places;
  for (index_t& place : before) --place;
  const Tensor x = one_hot(tokens, n), previous = head(one_hot(before, n, beta), one_hot(places, n), x);
  return head(one_hot(tokens, n, beta), previous - x, x).at({0, 0, n - 1, answer});
}

int main() {
  const NoGrad values_only;
  std::puts("length  convolved  mirrored kernel  two layers");
  for (index_t n = 8; n <= 512; n *= 4) {
    double least[3] = {1, 1, 1};
    for (std::uint64_t draw = 0; draw < 20; ++draw) {
      const Stream random(draw, "recall", static_cast<std::uint64_t>(n));
      Tokens tokens(static_cast<std::size_t>(n));
      std::iota(tokens.begin(), tokens.end(), 0);
      for (std::uint32_t k = 1; k + 1 < n; ++k) std::swap(tokens[k], tokens[random.below(k, k + 1)]);
      const auto place = random.below(0, static_cast<std::uint32_t>(n) - 2);
      tokens.back() = tokens[place];
      const double beta = std::log(n) + 4;
      const double mass[] = {by_convolution(tokens, tokens[place + 1], beta, {1, -1, 0, -1, 1, 0}),
          by_convolution(tokens, tokens[place + 1], beta, {0, -1, 1, 0, 1, -1}),
          by_positions(tokens, tokens[place + 1], beta)};
      for (int k = 0; k < 3; ++k) least[k] = std::min(least[k], mass[k]);
    }
    std::printf("%6d  %9.4f  %15.4f  %10.4f\n", static_cast<int>(n), least[0], least[1], least[2]);
  }
}
