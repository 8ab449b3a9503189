// Properties of schemes that came after the papers. Worked numbers: worked/later.cpp.
#include "tests/support/schemes.h"
#include "autograd/inspect/capture.h"
#include "nn/attention/plan.h"

using namespace whence;
using namespace whence::test;

namespace {

// PaTH token by token: each key so far is reflected by the next token.
Tensor path_scores(const AttendInputs& inputs, const Tensor& w, const Tensor& beta) {
  std::vector<Tensor> rows;
  Tensor keys = slice(inputs.key, 2, 0, 0);
  const index_t length = inputs.key.size(2);
  for (index_t t = 0; t < length; ++t) {
    const Tensor own = slice(w, 2, t, t + 1), strength = unsqueeze(slice(beta, 2, t, t + 1), 3);
    keys = keys - matmul(keys, transpose(own)) * (strength * own);
    keys = concat_along(2, {keys, slice(inputs.key, 2, t, t + 1)});
    const Tensor row = matmul(slice(inputs.query, 2, t, t + 1), transpose(keys), 0.5);  // 1 / sqrt(d)
    rows.push_back(concat_along(3, {row, Tensor::zeros({1, 2, 1, length - t - 1}, DType::f64)}));
  }
  return concat_along(2, rows);  // [b h i j]
}

}  // namespace

TEST_CASE("path: blocks give what the reflections give one by one, in value and gradients") {
  const AttendInputs inputs = random_inputs(150);  // two blocks of 64 and a part of one
  const Bare path("path(rank=3)");
  const Capture capture("w", "beta");
  const Tensor logits = path.logits(inputs), cotangent = normal(logits.shape(), 7);
  const std::vector<Tensor> found = grad(sum(logits * cotangent), {}, {inputs.query, inputs.key, inputs.x});
  const Tensor w = requires_grad(capture["w"].value().detach()), beta = requires_grad(capture["beta"].value().detach());
  const Tensor one_by_one = path_scores(inputs, w, beta);
  CHECK(distance(logits, one_by_one) < 1e-12);
  const std::vector<Tensor> wanted = grad(sum(one_by_one * cotangent), {}, {inputs.query, inputs.key, w, beta});
  CHECK(distance(found[0], wanted[0]) < 1e-11);
  CHECK(distance(found[1], wanted[1]) < 1e-11);
  CHECK(distance(capture["w"].gradient(), wanted[2]) < 1e-11);
  CHECK(distance(capture["beta"].gradient(), wanted[3]) < 1e-11);
  const Tensor whole = path.output(inputs);
  for (const index_t rows : {1, 40, 64, 149})  // queries that begin anywhere in a block
    CHECK(distance(path.output(inputs, {Executor::strips, rows}), whole) < 1e-12);
}

TEST_CASE("path: mirrors that are all alike stay exact in 32 bits, and 8192 tokens finite") {
  const auto alike = [](index_t length, DType dtype) {  // the same token repeated: the worst case for the inverse
    AttendInputs inputs{.x = expand(normal({1, 1, 4}, 1, dtype), {1, length, 4}),
        .query = normal({1, 1, length, 4}, 2, dtype),
        .key = normal({1, 1, length, 4}, 3, dtype),
        .value = normal({1, 1, length, 4}, 4, dtype),
        .sequence = Sequence::run(length)};
    return inputs;
  };
  const Bare exact("path", 1), path("path", 1);
  for (const Bare* each : {&exact, &path}) each->fill("beta.bias", 9);  // beta is 1.9998
  path.root().to(DType::f32);
  const NoGrad values_only;
  AttendInputs single = alike(300, DType::f64);
  const Tensor wanted = exact.output(single);
  for (Tensor* each : {&single.x, &single.query, &single.key, &single.value}) *each = cast(*each, DType::f32);
  CHECK(distance(cast(path.output(single), DType::f64), wanted) < 1e-3);  // a power series is wrong by over 1e20
  const Tensor output = path.output(alike(8192, DType::f32), Executor::strips);
  CHECK(std::isfinite(largest(output)));
  CHECK(largest(output) < 6);  // at most the largest of the values
}

TEST_CASE("path: a sum with a rotation is refused, and so are inputs without x") {
  CHECK(has(error_text([] { (void)Bare("path + rope"); }), "path: given"));
  AttendInputs bare = random_inputs(9);
  bare.x = Tensor();
  CHECK(has(error_text([&] { (void)Bare("path").output(bare); }), "layer input"));
}

TEST_CASE("mta: nothing but softmax at first") {
  const AttendInputs inputs = random_inputs(9);
  Bare first("mta");
  first.root().initialise(3);
  CHECK(distance(first.output(inputs), Bare("none").output(inputs)) < 1e-15);
}

TEST_CASE("mta: rows need earlier queries, so that strips refuse; sizes that do not fit are refused") {
  CHECK(!refusal_of(Executor::strips, Bare("mta").stages()).empty());
  CHECK(refusal_of(Executor::strips, Bare("mta(queries=1)").stages()).empty());
  CHECK(has(error_text([] { (void)Bare("mta(keys=4)"); }), "mta: keys 4"));
  CHECK(has(error_text([] { (void)Bare("mta(heads=3)"); }), "mta: heads 3"));
  CHECK(has(error_text([] { (void)Bare("mta(mix_scores=yes)", 1); }), "mix_scores"));
  CHECK(Bare("mta", 1).root().parameters().size() == 1);  // a single head is not mixed
  CHECK(has(error_text([] { (void)Bare("mta + hard_attention"); }), "softmax"));
}

TEST_CASE("forgetting: options of the other kind of gates are refused") {
  CHECK(error_text([] { (void)Bare("forgetting(gates=pairs, bias=1)"); }).find("no effect with gates=pairs") !=
        std::string::npos);
  CHECK(has(error_text([] { (void)Bare("forgetting(width=4)"); }), "gates=pairs"));
}

TEST_CASE("cable: its first form is the forgetting transformer with opposite signs of its gates") {
  const AttendInputs inputs = random_inputs(9);
  const Bare cable("cable(weight=no, step=softplus)"), forgetting("forgetting");
  forgetting.set("gate.weight", cable["step.weight"] * -1.0);
  forgetting.set("gate.bias", cable["step.bias"] * -1.0);
  for (const Executor executor : all_executors)
    CHECK(distance(cable.output(inputs, executor), forgetting.output(inputs, executor)) < 1e-13);
}

// Returns the inputs with a mask that hides token 2 from all other tokens.
static AttendInputs without_token_2(AttendInputs inputs) {
  const Tensor mask = Tensor::ones({1, 1, 9, 9}, DType::boolean);
  for (index_t i = 0; i < 9; ++i) mask.data<bool>()[i * 9 + 2] = i == 2;
  inputs.sequence.given_mask = mask;
  return inputs;
}

TEST_CASE(
    "forgetting, cable: the gate of a token that a mask hides counts all the same, that of a hidden pair does not") {
  const AttendInputs inputs = random_inputs(9), hidden = without_token_2(inputs);
  const auto captured = [](const Bare& scheme, const AttendInputs& given, const char* name) {
    const Capture capture(name);
    (void)scheme.logits(given);
    return capture[name].value();
  };
  for (const char* text : {"forgetting", "cable"})
    CHECK(distance(captured(Bare(text), inputs, "bias"), captured(Bare(text), hidden, "bias")) == 0);
  const Bare pairs("forgetting(gates=pairs)");
  const Tensor lost = captured(pairs, inputs, "bias") - captured(pairs, hidden, "bias");
  const Tensor z = captured(pairs, inputs, "gate_logits");
  for (index_t i = 3; i < 9; ++i) {
    const double log_gate = -std::log1p(std::exp(-z.at({0, 0, i, 2})));
    CHECK(std::fabs(lost.at({0, 0, i, 1}) - log_gate) < 1e-13);
    CHECK(std::fabs(lost.at({0, 0, i, 3})) < 1e-15);
  }
  for (const char* text : {"forgetting", "forgetting(gates=pairs)", "cable"})
    for (const Executor executor : all_executors)
      CHECK(distance(Bare(text).output(hidden, executor), Bare(text).output(hidden)) < 1e-13);
}

TEST_CASE("running sums of 2048 tokens: f32 is as near to f64 as without them, in value and gradients") {
  for (const std::string text : {"forgetting", "cable", "cable(weight=no, step=softplus)",
           "forgetting + cable(weight=no)", "selective_rope", "carope"}) {
    CAPTURE(text);
    Bare exact(text, 1, 4, 2048), rounded(text, 1, 4, 2048);
    for (Bare* each : {&exact, &rounded})
      if (text.ends_with("rope")) each->root().initialise(1);  // random ones would rotate beyond the precision of f32
    for (const Module::Parameter& each : exact.root().parameters())
      raw::copy_into(raw::cast(raw::cast(each.tensor, DType::f32), DType::f64), each.tensor);
    rounded.root().to(DType::f32);
    const AttendInputs inputs = random_inputs(2048, Sequence::run(2048), 1, 1, 4);
    const auto results = [&](const Bare& scheme, DType dtype, const AttendPlan& plan) {
      AttendInputs of = inputs;
      for (Tensor* each : {&of.x, &of.query, &of.key, &of.value})
        *each = requires_grad(raw::cast(raw::cast(each->detach(), DType::f32), dtype));
      const Tensor output = scheme.output(of, plan);
      std::vector<Tensor> all =
          grad(output, raw::cast(normal(output.shape(), 5), dtype), {of.query, of.key, of.value, of.x});
      all.push_back(output.detach());
      return all;
    };
    const std::vector<Tensor> wanted = results(exact, DType::f64, Executor::tiled);
    for (const Executor executor : all_executors) {
      CAPTURE(std::string(name_of(executor)));
      const std::vector<Tensor> found = results(rounded, DType::f32, executor);
      for (std::size_t k = 0; k < found.size(); ++k) {
        const Tensor off = raw::cast(found[k], DType::f64) - wanted[k];
        CAPTURE(k);
        // Plain kernels compiled by clang reach 1.52e-6, running sums in f32 1.2e-5 and more.
        CHECK(std::sqrt(sum(square(off)).item() / sum(square(wanted[k])).item()) < 2.5e-6);
      }
    }
  }
}

// Group Representational Position Encoding (arXiv:2512.07805): t elements of a group, exponentials of generators, are
// applied to a key t steps back. RoPE, ALiBi and forgetting are three choices of generators.
namespace {

// Returns [n n] with `value` at each of these places.
Tensor matrix(index_t n, const std::vector<std::pair<std::pair<index_t, index_t>, double>>& places) {
  const Tensor made = Tensor::zeros({n, n}, DType::f64);
  for (const auto& [at, value] : places) made.data<double>()[at.first * n + at.second] = value;
  return made;
}

// Returns the exponential's series. The generators [.. n n] here have norms of at most 1, or squares of 0.
Tensor exponential(const Tensor& generator) {
  const index_t n = generator.size(-1);
  Tensor term = Tensor::zeros({n, n}, DType::f64);
  for (index_t k = 0; k < n; ++k) term.data<double>()[k * n + k] = 1;
  Tensor total = term;
  for (int k = 1; k < 25; ++k) {
    term = matmul(term, generator, 1.0 / k);
    total = total + term;
  }
  return total;
}

// q_i' G_i ... G_{j+1} k_j of queries and keys [1 h t n], 0 for later keys; element(t) is G_t, [h n n]
Tensor group_scores(const Tensor& query, const Tensor& key, const std::function<Tensor(index_t)>& element) {
  std::vector<Tensor> rows;
  Tensor keys = slice(key, 2, 0, 0);
  const index_t length = key.size(2);
  for (index_t t = 0; t < length; ++t) {
    keys = concat_along(2, {matmul(keys, transpose(element(t))), slice(key, 2, t, t + 1)});
    const Tensor later = Tensor::zeros({1, key.size(1), 1, length - t - 1}, DType::f64);
    rows.push_back(concat_along(3, {matmul(slice(query, 2, t, t + 1), transpose(keys)), later}));
  }
  return concat_along(2, rows);  // [b h i j]
}

// Checks for equal logits, and equal gradients of queries and keys.
void check_case(const std::string& text, const std::function<Tensor(const Bare&, const AttendInputs&)>& of_group) {
  CAPTURE(text);
  const AttendInputs inputs = random_inputs(9);
  const Bare scheme(text);
  const Tensor wanted = scheme.logits(inputs), found = of_group(scheme, inputs), weights = normal(wanted.shape(), 8);
  CHECK(distance(found, wanted) < 1e-12);
  const std::vector<Tensor> of_found = grad(sum(found * weights), {}, {inputs.query, inputs.key}),
                            of_wanted = grad(sum(wanted * weights), {}, {inputs.query, inputs.key});
  for (std::size_t k = 0; k < 2; ++k) CHECK(distance(of_found[k], of_wanted[k]) < 1e-12);
}

// Extends q and k by two numbers each, joined by the nilpotent generator e_5 e_4': [q / sqrt(d), 0, 1] and [k, 1, 0].
Tensor additive_scores(const AttendInputs& inputs, const std::function<Tensor(index_t)>& steps) {
  const Tensor one = Tensor::ones({1, 2, 9, 1}, DType::f64), zero = Tensor::zeros({1, 2, 9, 1}, DType::f64);
  const Tensor joins = matrix(6, {{{5, 4}, 1}});
  return group_scores(
      concat_along(3, {inputs.query * 0.5, zero, one}), concat_along(3, {inputs.key, one, zero}), [&](index_t t) {
        return exponential(reshape(steps(t), {2, 1, 1}) * joins);
      });  // steps [h]
}

}  // namespace

TEST_CASE("GRAPE: RoPE is a product of rotations, ALiBi and forgetting of shears") {
  check_case("rope", [](const Bare&, const AttendInputs& inputs) {  // two commuting skew generators of rank 2
    const Tensor fast = matrix(4, {{{0, 2}, 1}, {{2, 0}, -1}}), slow = matrix(4, {{{1, 3}, 0.01}, {{3, 1}, -0.01}});
    const Tensor turn = matmul(exponential(fast), exponential(slow));
    return group_scores(inputs.query * 0.5, inputs.key, [&](index_t) { return turn; });
  });
  check_case("alibi", [](const Bare&, const AttendInputs& inputs) {
    return additive_scores(inputs, [](index_t) { return Tensor::of({-0x1p-4, -0x1p-8}, {2}, DType::f64); });
  });
  check_case("forgetting", [](const Bare& scheme, const AttendInputs& inputs) {
    const Capture capture("log_kept");
    (void)scheme.logits(inputs);
    const Tensor kept = capture["log_kept"].value().detach();  // [b h t]
    return additive_scores(inputs, [kept](index_t t) {
      const Tensor now = select(select(kept, 2, t), 0, 0);
      return t ? now - select(select(kept, 2, t - 1), 0, 0) : now;  // log f_t
    });
  });
}

TEST_CASE("later schemes: whatever the padding on the left holds changes no bit of the tokens behind it") {
  for (const char* text : {"forgetting", "forgetting(gates=pairs)", "cable", "cable(weight=no, step=softplus)", "path",
           "mta(queries=2, keys=3)", "gated_output"}) {
    CAPTURE(text);
    const Bare scheme(text);
    const Sequence padded = Sequence::padded(present_but(9, 3, true));  // for the second sequence
    const AttendInputs plain = random_inputs(9, padded, 2);
    AttendInputs odd = plain;
    for (Tensor* each : {&odd.x, &odd.key, &odd.value}) {
      *each = raw::contiguous(each->detach() * 1.0);
      kernels(Device::cpu()).fill(slice(slice(*each, 0, 1, 2), each->rank() - 2, 0, 3), 1e30);
    }
    for (const Executor executor : all_executors) {
      if (!refusal_of(executor, scheme.stages()).empty()) continue;
      CAPTURE(name_of(executor));
      const auto behind = [&](const AttendInputs& inputs) {
        return raw::contiguous(slice(scheme.output(inputs, executor).detach(), 2, 3, 9));
      };
      CHECK(same_bits(behind(plain), behind(odd)));
    }
  }
}
