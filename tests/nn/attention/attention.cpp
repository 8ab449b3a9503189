// Attention with a few schemes: the order of tokens, rotations, ALiBi's slopes, sizes that do not fit, names of probes.
#include "nn/attention/attention.h"

#include <doctest/doctest.h>

#include "autograd/inspect/probe.h"
#include "tests/support/schemes.h"

using namespace whence;
using namespace whence::test;

namespace {

constexpr index_t dim = 8, heads = 2, length = 6;

// One attention layer with random parameters.
class Layer {
 public:
  explicit Layer(const std::string& scheme)
      : attention_({.dim = dim, .heads = heads, .length = length}, parse_schemes(scheme)) {
    randomise(attention_);
  }
  Tensor operator()(const Tensor& x, const Sequence& sequence) const { return attention_(x, sequence); }
  Tensor operator()(const Tensor& x) const { return (*this)(x, Sequence::run(x.size(1))); }

 private:
  Attention attention_;
};

Positions shifted(index_t count, double by) {
  const Tensor positions = Sequence::run(count).positions.query + by;
  return {.query = positions, .key = positions, .length = count};
}

}  // namespace

TEST_CASE("without positions and mask, attention does not know the order of its tokens") {
  const Layer layer("none");
  const Tensor x = normal({1, length, dim}, 1);
  const Tensor order = Tensor::of({3, 1, 5, 0, 2, 4}, {length}, DType::i64);
  const auto reorder = [&](const Tensor& y) {
    return reshape(take_rows(reshape(y, {length, dim}), order), {1, length, dim});
  };
  const Sequence all = Sequence::run(length, false);
  CHECK(distance(reorder(layer(x, all)), layer(reorder(x), all)) < 1e-14);
  CHECK(distance(reorder(layer(x)), layer(reorder(x))) > 1e-3);  // the causal mask tells
}

TEST_CASE("CoPE's positions fall with the key, stay under i - j + 1, and end at the query's own gate") {
  const Layer layer("cope(p_max=64)");
  const Capture capture("*gates", "*positions");
  (void)layer(normal({2, length, dim}, 1));
  const Tensor p = capture["position.positions"].value(), g = capture["position.gates"].value();
  for (index_t i = 0; i < length; ++i) {
    CHECK(p.at({1, 1, i, i}) == g.at({1, 1, i, i}));
    for (index_t j = 0; j < length; ++j) {
      if (j > i) CHECK(g.at({1, 1, i, j}) == 0);
      if (j <= i) CHECK(p.at({1, 1, i, j}) <= static_cast<double>(i - j + 1));
      if (j < i) CHECK(p.at({1, 1, i, j}) >= p.at({1, 1, i, j + 1}));
    }
  }
}

namespace {

// q and k [1 1 t d] after a scheme's rotation at positions from `first` on.
std::pair<Tensor, Tensor> rotated(const std::string& text, const Tensor& q, const Tensor& k, double first = 0) {
  const auto scheme = parse_schemes(text)[0].make({q.size(3), 1, q.size(2)});
  std::pair<Tensor, Tensor> result{q, k};
  dynamic_cast<const RotatesQueryKey&>(*scheme).rotate(result.first, result.second, shifted(q.size(2), first));
  return result;
}

Tensor columns(const Tensor& x, const std::vector<double>& order) {
  const index_t count = static_cast<index_t>(order.size());
  const Tensor turned = take_rows(reshape(transpose(x), {count, -1}), Tensor::of(order, {count}, DType::i64));
  return transpose(reshape(turned, {1, 1, count, x.size(2)}));
}

}  // namespace

TEST_CASE("RoPE: norms stay, products depend on distances, layouts are permutations of each other") {
  const Tensor q = normal({1, 1, length, 8}, 1), k = normal({1, 1, length, 8}, 2);
  const auto [rq, rk] = rotated("rope", q, k);
  CHECK(distance(sum(square(rq), {-1}), sum(square(q), {-1})) < 1e-13);
  const auto [sq, sk] = rotated("rope", q, k, 1000);
  CHECK(distance(matmul(rq, transpose(rk)), matmul(sq, transpose(sk))) < 1e-12);
  CHECK(distance(matmul(rq, transpose(rk)), matmul(q, transpose(k))) > 0.1);
  const std::vector<double> order{
      0, 4, 1, 5, 2, 6, 3, 7};  // half keeps pair m at (m, m + 4), interleaved at (2m, 2m + 1)
  const auto [iq, ik] = rotated("rope(layout=interleaved)", columns(q, order), columns(k, order));
  CHECK(distance(iq, columns(rq, order)) < 1e-15);
  CHECK(distance(ik, columns(rk, order)) < 1e-15);
}

TEST_CASE("RoPE: a width below the head's leaves the other dims, and the base sets the slow pairs") {
  const Tensor q = normal({1, 1, length, 8}, 1), k = normal({1, 1, length, 8}, 2);
  const auto [pq, pk] = rotated("rope(width=4)", q, k);
  CHECK(same_bits(contiguous(slice(pq, 3, 4, 8)), contiguous(slice(q, 3, 4, 8))));
  const auto [nq, nk] = rotated("rope", contiguous(slice(q, 3, 0, 4)), contiguous(slice(k, 3, 0, 4)));
  CHECK(distance(slice(pq, 3, 0, 4), nq) < 1e-15);  // frequencies come from the rotated width
  CHECK(distance(slice(pk, 3, 0, 4), nk) < 1e-15);
  const auto [bq, bk] = rotated("rope(base=100, width=4)", q, k);
  for (index_t t = 0; t < length; ++t) {  // pair 1 of width 4: base^(-1/2) = 1/10
    const double angle = static_cast<double>(t) / 10, a = q.at({0, 0, t, 1}), b = q.at({0, 0, t, 3});
    CHECK(std::fabs(bq.at({0, 0, t, 1}) - (a * std::cos(angle) - b * std::sin(angle))) < 1e-15);
    CHECK(std::fabs(bq.at({0, 0, t, 3}) - (b * std::cos(angle) + a * std::sin(angle))) < 1e-15);
  }
}

TEST_CASE("ALiBi: slopes of 1 to 20 and of 64 heads, linear in the distance, nothing at distance 0") {
  for (index_t count = 1; count <= 64; count += count == 20 ? 44 : 1) {
    CAPTURE(count);
    const auto scheme = parse_schemes("alibi")[0].make({4 * count, count, length});
    AttendContext at;
    at.positions = Sequence::run(length).positions;
    at.content_scores = Tensor::zeros({1, count, length, length}, DType::f64);
    const Tensor bias = dynamic_cast<const BiasesScores&>(*scheme).bias(at);
    index_t power = 1;
    while (2 * power <= count) power *= 2;
    for (index_t h = 0; h < count; ++h) {
      const double exponent = h < power
                                  ? -8.0 * static_cast<double>(h + 1) / static_cast<double>(power)
                                  : -8.0 * static_cast<double>(2 * (h - power) + 1) / static_cast<double>(2 * power);
      for (index_t j = 0; j <= 5; ++j)
        CHECK(bias.at({0, h, 5, j}) == doctest::Approx(-std::exp2(exponent) * static_cast<double>(5 - j)));
    }
  }
}

TEST_CASE("sizes and executors that do not fit are refused as bad input") {
  const auto refusal = [](const AttentionOptions& options, const std::string& scheme) -> std::string {
    try {
      const Attention attention(options, parse_schemes(scheme));
    } catch (const InputError& error) { return error.what(); }
    return "accepted";
  };
  CHECK(refusal({.dim = 10, .heads = 3}, "none") ==
        "attention: dim 10 with 3 heads given; dim must be a multiple of heads");
  CHECK(refusal({.dim = 8, .heads = 0}, "none") ==
        "attention: dim 8 with 0 heads given; dim must be a multiple of heads");
  CHECK(refusal({.dim = 6, .heads = 2}, "rope") ==
        "rope: width 3 for heads of 3 dims; an even width of at most 3 required");
  CHECK(refusal({.dim = 6, .heads = 2}, "cope") == "accepted");
  CHECK(
      refusal({.dim = 8, .heads = 2, .dropout = 1}, "none") == "dropout: 1 given; at least 0 and less than 1 required");
  CHECK(refusal({.dim = 8, .heads = 2, .executor = "refrence"}, "none")
            .find("executor: 'refrence' given; one of auto, reference") == 0);
  CHECK(refusal({.dim = 8, .heads = 2, .executor = "refrence"}, "none").ends_with("; did you mean 'reference'?"));
  CHECK(Attention({.dim = 8, .heads = 2, .executor = "reference"}, parse_schemes("cope")).explain() ==
        "reference (as asked)");
}

TEST_CASE("probes of one layer, in the order of the stages") {
  const Layer layer("cope + alibi");
  const Capture capture("*");
  (void)layer(normal({1, length, dim}, 1));
  CHECK(capture.names() == std::vector<std::string>{"x", "q", "k", "v", "scores", "position.alibi.bias",
                               "position.cope.gate_logits", "position.cope.gates", "position.cope.positions",
                               "position.cope.z", "position.cope.position_logit", "logits", "pattern", "output"});
  const Tensor pattern = capture["pattern"].value();
  CHECK(distance(sum(pattern, {-1}), Tensor::ones({1, heads, length}, DType::f64)) < 1e-15);
  CHECK(pattern.at({0, 0, 1, 2}) == 0);
  const Tensor total = capture["scores"].value() + capture["position.alibi.bias"].value() +
                       capture["position.cope.position_logit"].value();
  CHECK(distance(capture["logits"].value(), total) < 1e-15);
}
