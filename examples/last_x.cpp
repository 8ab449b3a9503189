// Why position and content do not add up (CoPE, arXiv:2405.18719, section 3.1). The task: read the last x among tokens y.
// Content prefers an x to a y by Delta. Position must prefer the last x to one just before it, by delta a token. Then it
// prefers the y at the query to an x i tokens back by i delta, and the x is lost when i > Delta / delta. CoPE counts the
// x, so that the last has position 1 at any distance. Prints the weight of the last x, and * if another token has more.
#include <algorithm>
#include <cstdio>

#include "autograd/recording.h"
#include "nn/attention/attend.h"
#include "nn/scheme.h"

using namespace whence;

constexpr double Delta = 32;
constexpr index_t length = 128;  // y ... y x x y ... y

// Queries are (Delta / 2, 1), keys (1, 0) of x and (-1, 0) of y. The second column of the scheme's table, which is set
// here, then adds to a logit: -delta for each token of distance, or Delta / 2 at position 1 of CoPE.
void print_weight(const char* text, double at_one, double per_token, index_t back) {
  const auto scheme = parse_schemes(text)[0].make({.dim = 2, .heads = 1, .length = length});
  const Tensor table = scheme->parameters()[0].tensor, query = Tensor::ones({1, 1, length, 2}),
               key = Tensor::zeros({1, 1, length, 2}), value = Tensor::zeros({1, 1, length, length});
  for (index_t row = 0; row < table.size(0); ++row) {
    table.data<float>()[2 * row] = 0;
    table.data<float>()[2 * row + 1] =
        static_cast<float>((row == 1 ? at_one : 0) + per_token * static_cast<double>(row));
  }
  const index_t last = length - 1 - back;
  for (index_t j = 0; j < length; ++j) {
    query.data<float>()[2 * j] = Delta / 2;
    key.data<float>()[2 * j] = j == last || j == last - 1 ? 1 : -1;
    value.data<float>()[j * length + j] = 1;  // so that the output is the weights
  }
  AttendInputs inputs{Tensor(), query, key, value, Sequence::run(length)};
  inputs.scale = 1;
  const auto all = attend_by_reference(inputs, Stages::of({scheme.get()})).to_vector();
  const auto weights = all.end() - length;  // of the last query
  std::printf("  %13.3f%c", weights[last], *std::max_element(weights, all.end()) > weights[last] ? '*' : ' ');
}

int main() {
  const NoGrad values_only;
  std::puts("tokens back   delta = 1/2       delta = 1       delta = 4            CoPE");
  for (const index_t back : {1, 4, 7, 9, 31, 33, 63, 65, 120}) {
    std::printf("%11d", static_cast<int>(back));
    for (const double delta : {0.5, 1.0, 4.0}) print_weight("relative", 0, -delta, back);
    print_weight("cope", Delta / 2, 0, back);
    std::puts("");
  }
  std::puts("Delta / delta            64              32               8");
}
