// Query heads that share keys and values: the assignment of heads, the order of sums, precisions, decoding. A column of
// the conformance matrix compares every scheme and executor with copied keys.
#include "nn/attention/heads.h"

#include <doctest/doctest.h>

#include "nn/attention/attention.h"
#include "nn/attention/plan.h"
#include "nn/decoding.h"
#include "tests/support/schemes.h"

using namespace whence;
using namespace whence::test;

namespace {

constexpr index_t heads = 6, key_heads = 2, group = heads / key_heads;

AttendInputs drawn_inputs(index_t kv_heads, DType dtype = DType::f64) {
  const BareAttention none("none", {4 * heads, heads, 9, 0, kv_heads});
  AttendInputs inputs = random_inputs(none, 2, 9, 3, dtype);
  for (const auto& [name, operand] : named_operands(inputs))
    if (operand->defined()) requires_grad(*operand);
  return inputs;
}

}  // namespace

TEST_CASE("query head n reads key head n / group, by one product each, as views") {
  const Tensor q = normal({2, heads, 5, 4}, 1), k = normal({2, key_heads, 7, 4}, 2);
  const Tensor scores = matmul_by_group(q, transpose(k), 0.5);
  for (index_t h = 0; h < heads; ++h)
    CHECK(distance(select(scores, 1, h), matmul(select(q, 1, h), transpose(select(k, 1, h / group)), 0.5)) == 0);
  CHECK(distance(matmul_by_group(q, transpose(of_query_heads(k, heads)), 0.5), scores) == 0);
  CHECK(distance(matmul_by_group(slice(q, 0, 0, 1), transpose(k), 0.5),
            matmul_by_group(expand(slice(q, 0, 0, 1), q.shape()), transpose(k), 0.5)) == 0);
}

TEST_CASE("the gradient of a shared head is the sum over its group, in the order of the heads, to the bit") {
  const AttendInputs shared = drawn_inputs(key_heads);
  AttendInputs copied = shared;
  copied.key = requires_grad(of_query_heads(shared.key, heads).detach());
  copied.value = requires_grad(of_query_heads(shared.value, heads).detach());
  const Tensor cotangent = normal(shared.query.shape(), 7);
  const auto gradients = [&](const AttendInputs& inputs, const AttendPlan& plan) {
    return grad(attend(inputs, {}, plan), cotangent, {inputs.key, inputs.value});
  };
  bool order_shows = false;
  for (const Executor executor : {Executor::reference, Executor::tiled}) {
    CAPTURE(name_of(executor));
    const std::vector<Tensor> found = gradients(shared, executor), each = gradients(copied, executor);
    for (std::size_t n = 0; n < found.size(); ++n) {
      const auto summed = [&](bool forward) {
        Tensor total = Tensor::zeros(found[n].shape(), DType::f64);
        const Tensor groups = reshape(each[n], {2, key_heads, group, 9, 4});
        for (index_t h = 0; h < group; ++h) total = total + select(groups, 2, forward ? h : group - 1 - h);
        return total.to_vector();
      };
      CHECK(found[n].to_vector() == summed(true));
      order_shows |= found[n].to_vector() != summed(false);
    }
  }
  CHECK(order_shows);
}

TEST_CASE("dropout of the pattern draws for each query head, whoever computes it") {
  AttendInputs inputs = drawn_inputs(key_heads);
  inputs.dropout = PatternDropout{0.3, Stream(1, "pattern", 2)};
  const Tensor wanted = attend(inputs, {}, Executor::reference);
  for (const Executor executor : {Executor::strips, Executor::tiled})
    CHECK(distance(attend(inputs, {}, executor), wanted) < 1e-14);
}

TEST_CASE("16-bit heads that share keys are as near to f64 as those that do not") {
  const auto far = [](index_t kv_heads, DType dtype, const AttendPlan& plan) {
    const AttendInputs exact = drawn_inputs(kv_heads), rounded = drawn_inputs(kv_heads, dtype);
    return distance(cast(attend(rounded, {}, plan), DType::f64), attend(exact, {}, plan));
  };
  for (const Executor executor : {Executor::reference, Executor::strips, Executor::tiled}) {
    CAPTURE(name_of(executor));
    CHECK(far(key_heads, DType::f16, executor) < 4e-3);
    CHECK(far(key_heads, DType::bf16, executor) < 3e-2);
    CHECK(far(1, DType::bf16, executor) < 3e-2);
  }
}

TEST_CASE("decoding keeps the key heads alone, and has the logits of the whole run") {
  for (const char* scheme :
      {"none", "rope", "alibi", "cope(p_max=3, gates=separate_keys)", "shaw", "dape(kerple)", "path", "carope"}) {
    CAPTURE(scheme);
    TransformerOptions options = small(scheme);
    options.dim = 16, options.heads = 4, options.kv_heads = 2;
    const auto model = random_decoder(options);
    const Tensor tokens = random_tokens(2, 7, options.vocabulary);
    Decoding decoding(*model, 8);
    CHECK(decoding.cache_bytes() == 0);
    std::vector<Tensor> rows{decoding(slice(tokens, 1, 0, 3))};
    for (index_t t = 3; t < 7; ++t) rows.push_back(decoding(slice(tokens, 1, t, t + 1)));
    CHECK(distance(concat_along(1, rows), (*model)(tokens)) < 1e-12);
    CHECK(decoding.cache_bytes() == 2 * options.layers * 2 * 2 * 8 * 4 * 8);  // k, v; batch, key heads, capacity, dims
  }
}

TEST_CASE("a number of key heads that does not divide the heads is refused") {
  const auto refusal = [](index_t kv_heads) {
    return message<InputError>(
        [&] { const Attention attention({.dim = 8, .heads = 4, .kv_heads = kv_heads}, parse_schemes("none")); });
  };
  CHECK(has(refusal(3), "kv_heads 3 with 4"));
  CHECK(has(refusal(8), "kv_heads 8 with 4"));
  CHECK(refusal(2).empty());
  CHECK(Attention({.dim = 8, .heads = 4, .kv_heads = 2}, parse_schemes("cope"))
            .explain(Device::cpu(), DType::f32, 1, 8) == "tiled (reference while probes are captured)");
}
