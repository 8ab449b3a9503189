// Samples of a tiled op: each program alone, and some of them together.
#include "autograd/samples/tiled.h"
#include "tensor/random.h"

namespace whence {
namespace {

using namespace tiled;

std::vector<Case> cases() {
  std::vector<Case> list;
  list.push_back(of("plain", 1, 2, 5, 5, 3));
  list.push_back(of("one token", 2, 1, 1, 1, 2));
  list.push_back(of("later rows", 1, 1, 2, 7, 4));
  list.push_back(of("no rows", 1, 1, 0, 0, 2));
  list.push_back(of("heads that share keys", 2, 4, 5, 7, 3, 2));
  list.push_back(with(with(of("row scan, other gates, heads that share keys", 1, 6, 6, 6, 2, 3), At::gate_query,
                          draw::normal({1, 6, 6, 2})),
      At::gate_key, draw::normal({1, 2, 6, 2})));
  list.back() = with(std::move(list.back()), At::position_slopes, draw::normal({6}));
  list.push_back(of("not causal, two tiles of keys", 1, 1, 3, 70, 2));
  list.back().at.causal = false, list.back().at.first_row = 0;
  list.push_back(of("two blocks of queries", 1, 1, 67, 67, 2));
  list.push_back(of("a window, two tiles of keys outside", 1, 2, 3, 140, 1));
  list.back().at.window = 5;
  list.push_back(of("a window on both sides, two blocks of queries", 1, 1, 67, 67, 1));
  list.back().at.causal = false, list.back().at.window = 3;
  list.push_back(of("a window, padding", 2, 1, 6, 6, 3));
  list.back().at.present = Tensor::of({0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0}, {2, 6}, DType::boolean);
  list.back().at.window = 2;
  list.push_back(of("padding", 2, 1, 6, 6, 3));
  list.back().at.present = Tensor::of({0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0}, {2, 6}, DType::boolean);
  list.push_back(of("dropout", 1, 2, 6, 6, 3));
  list.back().at.dropout = 0.3, list.back().at.stream = Stream(3, "pattern", 2);
  list.push_back(with(of("by distance", 2, 2, 6, 6, 3), At::distance_table, draw::normal({2, 6})));
  list.push_back(with(of("by drawn distance", 1, 2, 4, 4, 3), At::distance_table, draw::normal({2, 9})));
  list.back().at.query_step = Tensor::of({0, 3, 5, 8}, {1, 4}, DType::i64);
  list.back().at.key_step = list.back().at.query_step;
  list.push_back(with(of("by distance, both sides", 1, 1, 5, 5, 2), At::distance_table, draw::normal({1, 9})));
  list.back().at.causal = false, list.back().at.lowest = -4;
  list.push_back(with(with(of("by row and distance", 2, 2, 5, 5, 3), At::relative_query, draw::normal({2, 2, 5, 3})),
      At::relative_keys, draw::normal({1, 5, 3})));
  list.back().at.relative_scale = 0.7;
  list.push_back(
      with(with(of("by row and distance, each head", 1, 2, 3, 5, 3), At::relative_query, draw::normal({1, 2, 3, 3})),
          At::relative_keys, draw::normal({2, 5, 3})));
  list.push_back(with_pieces(of("piecewise", 2, 2, 7, 7, 3), 7));
  list.push_back(with_pieces(of("piecewise, by drawn distance", 1, 2, 6, 6, 2), 9));
  list.back().at.query_step = Tensor::of({0, 1, 3, 5, 7, 8}, {1, 6}, DType::i64);
  list.back().at.key_step = list.back().at.query_step;
  list.push_back(with(of("column", 2, 2, 5, 5, 3), At::column_term, draw::normal({2, 2, 5})));
  list.push_back(with(of("column at slopes of queries", 1, 2, 9, 70, 3), At::column_term, draw::normal({1, 2, 70})));
  list.back() = with(std::move(list.back()), At::column_slope, draw::normal({1, 2, 9}));
  list.push_back(with(of("row scan by a table", 2, 2, 7, 7, 3), At::position_logits, draw::normal({2, 2, 7, 3})));
  list.push_back(with(of("row scan by keys of positions", 2, 2, 7, 7, 3), At::position_keys, draw::normal({4, 3})));
  list.back().at.position_scale = 0.8;
  list.push_back(with(of("row scan, never full", 1, 1, 6, 6, 2), At::position_logits, draw::normal({1, 1, 6, 9})));
  list.push_back(with(of("row scan in a window", 1, 2, 9, 20, 2), At::position_logits, draw::normal({1, 2, 9, 5})));
  list.back().at.window = 3;
  list.push_back(with(of("row scan by slopes", 1, 2, 6, 6, 3), At::position_slopes, draw::normal({2})));
  list.push_back(with(with(with(of("row scan, other gates", 1, 2, 6, 6, 3), At::gate_query, draw::normal({1, 2, 6, 3})),
                          At::gate_key, draw::normal({1, 2, 6, 3})),
      At::position_logits, draw::normal({1, 2, 6, 4})));
  list.back().at.gate_scale = 0.5;
  list.push_back(with(of("sink", 2, 2, 6, 6, 3), At::sink, draw::normal({2})));
  list.push_back(with(with(of("sink beside gates", 1, 2, 5, 7, 3), At::position_slopes, draw::normal({2})), At::sink,
      draw::normal({2})));
  for (const bool rest_to_self : {false, true}) {
    list.push_back(of(rest_to_self ? "stick, its rest to the row's own value" : "stick", 2, 2, 6, 6, 3));
    list.back().at.stick = true, list.back().at.rest_to_self = rest_to_self;
  }
  list.push_back(of("bins", 1, 2, 6, 6, 3));
  list.back().at.window = 4;
  list.back().at.bins = 3, list.back().at.bin_of = Tensor::of({2, 1, 1, 0, 0, 0}, {6}, DType::i64);
  return list;
}

Samples samples() {
  const auto run = [](const At& at, const At::Operands& x) {
    const TiledResult y = tiled_attention(at, x);
    return y.bin_sums.defined() ? concat_along(3, {y.output, y.bin_sums}) : y.output;
  };
  Samples all = samples_of(cases(), run);
  for (const Case& each : cases()) {
    if (!each.name.starts_with("column")) continue;
    const auto with_rest = [run](const At& at, At::Operands x) {  // a constant: its gradient is part of the column's
      const Tensor& column = x[At::column_term];
      x[At::column_rest] = cast(Tensor::normal(column.shape(), 0, 1, Stream(5, "rest"), DType::f64), column.dtype());
      return run(at, x);
    };
    all.push_back(samples_of(std::vector<Case>{each}, with_rest).front());
    all.back().name += ", and its rest";
  }
  return all;
}

std::vector<BadInput> attention_refusals() {
  const auto call = [](const Shape& q, const Shape& k) {
    At::Operands x;
    x[At::query] = Tensor::zeros(q), x[At::key] = Tensor::zeros(k), x[At::value] = Tensor::zeros(k);
    (void)tiled_attention({}, x);
  };
  return {{"tiled_attention: key is [1,2,4,3]; [1,2,4,5] required, as the other operands are",
              [=] {
                call({1, 2, 4, 5}, {1, 2, 4, 3});
              }},
      {"tiled_attention: key is [1,2,4,5], query is [1,3,4,5]; a divisor of the query's heads required",
          [=] {
            call({1, 3, 4, 5}, {1, 2, 4, 5});
          }},
      {"tiled_attention: query is [4,5]; [b h t d] required", [=] {
         call({4, 5}, {1, 2, 4, 5});
       }}};
}

// softmax(q k' scale) v under a causal mask: sample 0.
Tensor reference(const Inputs& in) {
  const index_t heads = in[0].size(1), t = in[0].size(2), d = in[0].size(3);
  std::vector<double> y;
  for (index_t h = 0; h < heads; ++h) {
    for (index_t i = 0; i < t; ++i) {
      std::vector<double> sums(static_cast<std::size_t>(d), 0);
      double total = 0;
      for (index_t j = 0; j <= i; ++j) {
        double score = 0;
        for (index_t c = 0; c < d; ++c) score += in[0].at({0, h, i, c}) * in[1].at({0, h, j, c});
        const double power = std::exp(0.6 * score);
        total += power;
        for (index_t c = 0; c < d; ++c) sums[static_cast<std::size_t>(c)] += power * in[2].at({0, h, j, c});
      }
      for (const double sum : sums) y.push_back(sum / total);
    }
  }
  return Tensor::of(y, in[0].shape(), DType::f64);
}

const Checked checked({"tiled_attention", samples, attention_refusals, reference, true, true});

}  // namespace
}  // namespace whence
