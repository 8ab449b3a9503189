// Samples of a tiled op: each program alone, and some of them together.
#include "autograd/samples/tiled.h"
#include "tensor/random.h"

namespace whence {
namespace {

using namespace tiled;

Case with_mix(Case c, index_t width, index_t kernel, index_t right, index_t channels, index_t keys) {
  const index_t heads = c.inputs[0].size(1);
  c.at.left = kernel - 1 - right, c.at.right = right, c.at.table_lowest = -right;
  c = with(std::move(c), At::mix_input, draw::normal({width, channels, kernel}));
  c = with(std::move(c), At::mix_table, draw::normal({kernel - right, width, keys + right}));
  return with(std::move(c), At::mix_output, draw::normal({heads, width, kernel}));
}

std::vector<Case> cases() {
  std::vector<Case> list;
  list.push_back(with_mix(of("one tap", 2, 3, 5, 5, 2), 4, 1, 0, 3, 5));
  list.push_back(with_mix(of("one tap, a window", 1, 2, 22, 22, 2), 3, 1, 0, 2, 22));
  list.back().at.window = 3;
  list.push_back(with_mix(of("3 taps", 1, 2, 7, 7, 2), 3, 3, 1, 2, 7));
  list.back().at.behind = 1;
  list.push_back(
      with(with_mix(of("5 taps, residual", 1, 2, 6, 6, 2), 3, 5, 2, 2, 6), At::distance_table, draw::normal({2, 6})));
  list.back().at.remask = true;
  list.push_back(with_mix(of("3 taps, heads that share keys", 2, 4, 7, 7, 2, 2), 3, 3, 1, 4, 7));
  list.push_back(with_mix(of("taps on the left", 1, 2, 6, 6, 2), 3, 2, 0, 2, 6));
  list.push_back(with_mix(of("padding and dropout", 2, 2, 6, 6, 2), 3, 3, 1, 2, 6));
  list.back().at.present = Tensor::of({0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {2, 6}, DType::boolean);
  list.back().at.dropout = 0.25, list.back().at.stream = Stream(5, "pattern");
  list.push_back(with_mix(with_pieces(of("one tap, pieces that only the mix reads", 2, 2, 5, 5, 2), 5), 3, 1, 0, 4, 5));
  list.back().at.adds_pieces = false;
  list.push_back(with_mix(with_pieces(of("3 taps, pieces", 2, 2, 7, 7, 2), 7), 3, 3, 1, 4, 7));
  list.back().at.present = Tensor::of({0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0}, {2, 7}, DType::boolean);
  list.back().at.behind = 1;
  return list;
}

Samples samples() {
  return samples_of(cases(), [](const At& at, const At::Operands& x) { return tiled_mix(at, x); });
}

std::vector<BadInput> mix_refusals() {
  const auto call = [](index_t left, index_t taps) {
    At at;
    at.left = left;
    At::Operands x;
    for (const std::size_t k : {At::query, At::key, At::value}) x[k] = draw::zeros(1, 2, 4, 3);
    x[At::mix_input] = draw::zeros(5, 2, 3), x[At::mix_table] = draw::zeros(left + 1, 5, 4);
    x[At::mix_output] = draw::zeros(2, 5, taps);
    (void)tiled_mix(at, x);
  };
  return {{"tiled_mix: mix_output is [2,5,1]; [2,5,3] required, as the other operands are", [=] { call(2, 1); }},
      {"tiled_mix: 3 taps with 1 on the left and 0 on the right given; kernel - 1 together, and no more on the right "
       "than on the left, required",
          [=] { call(1, 3); }},
      {"tiled_mix: column_term given, which is not read here; undefined required", [] {
         At::Operands x;
         for (const std::size_t k : {At::query, At::key, At::value}) x[k] = draw::zeros(1, 2, 4, 3);
         x[At::column_term] = draw::zeros(1, 2, 4);
         (void)tiled_mix({}, x);
       }}};
}

const Checked checked({"tiled_mix", samples, mix_refusals, {}, true, true});

}  // namespace
}  // namespace whence
