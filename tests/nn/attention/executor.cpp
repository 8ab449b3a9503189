// Tests of tile programs beyond the conformance matrix: instruction sets, f32, threads, dropout, memory, NaN.
#include <cmath>
#include <limits>

#include "autograd/tiled/tiled_ops.h"
#include "examples/whence/verify/bare_attention.h"
#include "nn/attention/plan.h"
#include "tensor/cpu/instruction_set.h"
#include "tensor/device/allocator.h"
#include "tensor/pairs.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

namespace {

// One scheme for each program.
const std::vector<std::string> programs{"none", "kerple", "randomised(kerple, length=200)", "shaw(clip=3)",
    "fire(width=5, init_length=40)", "randomised(fire(width=5, init_length=40), length=200)", "transformer_xl",
    "forgetting", "forgetting(gates=pairs, width=3)", "cope(p_max=5)", "cope(p_max=3, gates=separate_keys)",
    "cope_alibi", "dape(kerple, width=5)", "cdape(kerple, width=5)", "cdape(alibi, width=3, kernel=4, pad=left)",
    "dape(fire(width=5, init_length=40), width=5)", "cdape(fire(width=5, init_length=40), width=5)", "stick_breaking",
    "stick_breaking(rest=self)", "sink", "shaw(clip=3) + sink", "ssmax"};

// Output and gradients of all operands and parameters for a cotangent drawn at random.
std::vector<Named> outcome_of(const std::string& text, const AttendPlan& plan, DType dtype, index_t tokens,
    index_t batch = 2, double dropout = 0) {
  const BareAttention scheme(text, {12, 3, tokens});
  draw_parameters(scheme.root(), 4);
  scheme.root().to(dtype);
  AttendInputs inputs = random_inputs(scheme, batch, tokens, 5, dtype);
  if (dropout > 0) inputs.dropout = PatternDropout{dropout, Stream(3, "pattern", 8)};
  return output_and_gradients(scheme, inputs, plan, random_cotangent(inputs, 6));
}

double apart(const std::vector<Named>& a, const std::vector<Named>& b) {
  double apart = distance(a[0].tensor, b[0].tensor);
  for (std::size_t k = 1; k < a.size(); ++k)
    apart = std::max(apart, distance(a[k].tensor, b[k].tensor) / std::max(1.0, largest(a[k].tensor)));
  return apart;
}

Tensor dual_of(const Tensor& value, const Tensor& tangent) {
  const Tensor dual = raw::cast(value, DType::dual);
  for (index_t i = 0; i < dual.numel(); ++i) dual.data<Dual>()[i].tangent = tangent.data<double>()[i];
  return dual;
}

struct BestSetBack {
  ~BestSetBack() { use_instruction_set(InstructionSet::best); }
};

using At = TiledCall;

// Returns queries, keys and values [1 1 t d] that need gradients.
At::Operands drawn_operands(index_t tokens, index_t dim, DType dtype = DType::f64) {
  At::Operands operands;
  for (const auto k : {At::query, At::key, At::value}) operands[k] = normal_leaf({1, 1, tokens, dim}, 3 + k, dtype);
  return operands;
}

}  // namespace

TEST_CASE("tiles: every instruction set of this machine gives the composed ops' numbers, in f64 and f32") {
  const BestSetBack back;
  for (const InstructionSet set : {InstructionSet::avx512, InstructionSet::avx2, InstructionSet::plain}) {
    if (!cpu_has(set)) continue;
    use_instruction_set(set);
    for (const std::string& text : programs) {
      INFO(text, ", set ", static_cast<int>(set));
      const std::vector<Named> exact = outcome_of(text, Executor::reference, DType::f64, 130);
      CHECK(apart(exact, outcome_of(text, Executor::tiled, DType::f64, 130)) < 1e-12);
      CHECK(apart(exact, outcome_of(text, Executor::tiled, DType::f32, 130)) < 2e-5);
    }
  }
  CHECK(cpu_has(InstructionSet::plain));
}

TEST_CASE("tiles: the same bits for any number of threads, with few sequences and with many") {
  for (const std::string& text : programs) {
    for (const index_t batch : {1, 5}) {
      INFO(text, ", batch ", batch);
      const auto on = [&](int count) {
        const WithThreads chosen(count);
        return outcome_of(text, Executor::tiled, DType::f32, 75, batch);
      };
      const std::vector<Named> one = on(1);
      for (const int count : {2, 3, 7}) CHECK(apart(one, on(count)) == 0);
    }
  }
}

TEST_CASE("tiles: dropout of the pattern draws what the whole pattern would") {
  for (const std::string& text : programs) {
    CAPTURE(text);
    const std::vector<Named> whole = outcome_of(text, Executor::reference, DType::f64, 70, 2, 0.4);
    CHECK(apart(whole, outcome_of(text, Executor::tiled, DType::f64, 70, 2, 0.4)) < 1e-12);
    CHECK(apart(whole, outcome_of(text, Executor::tiled, DType::f64, 70)) > 1e-3);
  }
}

TEST_CASE("tiles: a caller's mask and schemes without a program go another way, to the same numbers") {
  const BareAttention scheme("cope", {8, 2, 6});
  draw_parameters(scheme.root(), 1);
  AttendInputs inputs = random_inputs(scheme, 1, 6, 2);
  std::vector<double> allowed;
  for (index_t n = 0; n < 36; ++n) allowed.push_back(n % 7 != 3);
  inputs.sequence.given_mask = Tensor::of(allowed, {1, 1, 6, 6}, DType::boolean);
  CHECK(distance(scheme.run(inputs, Executor::tiled).output, scheme.run(inputs, Executor::reference).output) < 1e-13);
  for (const char* text : {"forgetting + sink", "transformer_xl + sink", "alibi + stick_breaking",
           "dape(kerple) + sink", "ssmax + alibi"}) {
    CAPTURE(text);
    CHECK(apart(outcome_of(text, Executor::tiled, DType::f64, 70),
              outcome_of(text, Executor::reference, DType::f64, 70)) < 1e-12);
  }
  for (const char* text : {"cope_mlp", "absolute + hard_attention"})
    CHECK(has(refusal_of(Executor::tiled, BareAttention(text, {8, 2, 6}).stages()), "scheme here"));
}

TEST_CASE("tiles: backward in dual numbers is backward in f64, with tangents") {
  const index_t tokens = 9, dim = 3;
  for (const auto which : {TiledCall::position_logits, TiledCall::position_keys, TiledCall::position_slopes}) {
    CAPTURE(std::string(TiledCall::info[which].name));
    const Shape shape = which == TiledCall::position_logits ? Shape{1, 2, tokens, 5}
                        : which == TiledCall::position_keys ? Shape{5, dim}
                                                            : Shape{2};
    const auto gradients = [&](double step, bool dual) {
      TiledCall::Operands operands;
      std::vector<Tensor> leaves;
      for (const std::size_t k : {std::size_t(TiledCall::query), std::size_t(TiledCall::key),
               std::size_t(TiledCall::value), std::size_t(which)}) {
        const Shape of = k == which ? shape : Shape{1, 2, tokens, dim};
        const Tensor value = normal(of, 10 + k), tangent = normal(of, 20 + k);
        operands[k] = requires_grad(dual ? dual_of(value, tangent) : value + tangent * step);
        leaves.push_back(operands[k]);
      }
      const Tensor output = tiled_attention({}, operands).output, cotangent = normal(output.shape(), 7);
      return grad(output, dual ? dual_of(cotangent, Tensor::zeros(output.shape(), DType::f64)) : cotangent, leaves);
    };
    const double h = 1e-5;
    const std::vector<Tensor> duals = gradients(0, true), values = gradients(0, false), above = gradients(h, false),
                              below = gradients(-h, false);
    for (std::size_t k = 0; k < values.size(); ++k) {
      const Tensor differences = (above[k] - below[k]) * (0.5 / h);
      const Tensor found = raw::contiguous(duals[k]), tangents = Tensor::empty(found.shape(), DType::f64);
      for (index_t n = 0; n < tangents.numel(); ++n) tangents.data<double>()[n] = found.data<Dual>()[n].tangent;
      CHECK(distance(found, values[k]) < 1e-12);
      CHECK(distance(tangents, differences) < 1e-7 * std::max(1.0, largest(differences)));
    }
  }
}

TEST_CASE("tiles: steps beyond a table add nothing, for tokens in a row and at drawn positions") {
  const index_t tokens = 7;
  const auto outcome = [&](bool drawn) {
    TiledCall at;
    At::Operands operands = drawn_operands(tokens, 2);
    operands[TiledCall::distance_table] = normal_leaf({1, 3}, 8);
    at.lowest = 1, at.bins = 2, at.bin_of = Tensor::of({1, 0, 1}, {3}, DType::i64);
    if (drawn) at.query_step = at.key_step = Tensor::of({0, 1, 2, 3, 4, 5, 6}, {1, tokens}, DType::i64);
    const TiledResult y = tiled_attention(at, operands);
    const Tensor all = concat_along(3, {y.output, y.bin_sums});
    std::vector<Named> leaves;
    for (const Tensor& x : operands)
      if (x.defined()) leaves.push_back({"", x});
    std::vector<Named> results = gradients_of(all, normal(all.shape(), 9), leaves);
    results.insert(results.begin(), {"output", all.detach()});
    return results;
  };
  CHECK(apart(outcome(false), outcome(true)) < 1e-13);
  // Row 0 has the distance 0 alone. It is before the table, so its pattern is in no bin.
  CHECK(outcome(false)[0].tensor.at({0, 0, 0, 2}) == 0);
}

TEST_CASE("tiles: with positions that do not ascend, an earlier key with a later position is at distance 0") {
  const BareAttention scheme("t5(buckets=4, max_distance=6)", {12, 3, 8});
  draw_parameters(scheme.root(), 4);
  AttendInputs inputs = random_inputs(scheme, 2, 8, 5, DType::f64);
  inputs.sequence.positions.query = inputs.sequence.positions.key =
      Tensor::of({0, 3, 1, 2, 6, 5, 4, 7}, {1, 8}, DType::f64);
  const auto on = [&](Executor executor) {
    return output_and_gradients(scheme, inputs, executor, random_cotangent(inputs, 6));
  };
  CHECK(apart(on(Executor::reference), on(Executor::tiled)) < 1e-12);
}

TEST_CASE("tiles: a row whose slope is not finite is not finite either") {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    At::Operands operands = drawn_operands(9, 2);
    operands[At::column_term] = normal({1, 1, 9}, 7);
    operands[At::column_slope] = Tensor::of({1, 1, 1, 1, bad, 1, 1, 1, 1}, {1, 1, 9}, DType::f64);
    const Tensor y = tiled_attention({}, operands).output;
    for (index_t row = 0; row < 9; ++row) CHECK(std::isfinite(y.at({0, 0, row, 0})) == (row != 4));
  }
}

TEST_CASE("tiles: a row that sees nothing is 0, one whose logits are all -inf is NaN, as in softmax") {
  const index_t tokens = 70;
  const double infinite = std::numeric_limits<double>::infinity();
  TiledCall at;
  At::Operands operands = drawn_operands(tokens, 2);
  std::vector<double> present(tokens, 1), column(tokens, 0);
  present[0] = 0, column[1] = column[2] = -infinite;
  at.present = Tensor::of(present, {1, tokens}, DType::boolean);
  operands[TiledCall::column_term] = Tensor::of(column, {1, 1, tokens}, DType::f64);
  const Tensor y = tiled_attention(at, operands).output;
  CHECK(y.at({0, 0, 0, 0}) == 0);
  for (const index_t row : {1, 2}) CHECK(std::isnan(y.at({0, 0, row, 0})));
  CHECK(std::isfinite(y.at({0, 0, 3, 0})));
  CHECK(std::isfinite(y.at({0, 0, 69, 0})));
  CHECK(std::isnan(softmax(Tensor::full({1, 2}, -infinite, DType::f64)).at({0, 0})));
}

// Scratch is taken on the planned device as on the CPU, where nothing is computed.
TEST_CASE("tiles: memory at work grows with the length, not with its square") {
  const auto at_work = [](const std::string& text, index_t tokens) {
    const Device planned = Device::planned(Device::cpu());
    const BareAttention scheme(text, {768, 12, tokens});
    scheme.root().to(DType::f32);
    scheme.root().to(planned);
    const auto leaf = [&](const Shape& shape) { return requires_grad(Tensor::empty(shape, DType::f32, planned)); };
    const Shape by_head{1, 12, tokens, 64};
    const std::vector<Tensor> leaves{leaf(by_head), leaf(by_head), leaf(by_head)};
    const AttendInputs inputs{
        leaf({1, tokens, 768}), leaves[0], leaves[1], leaves[2], Sequence::run(tokens).on(planned)};
    Allocator& allocator = memory_of(planned);
    const Tensor seed = Tensor::empty(by_head, DType::f32, planned);
    const std::size_t held = allocator.statistics().live, operand = static_cast<std::size_t>(numel(by_head)) * 4;
    allocator.reset_peak();
    const Tensor output = attend(inputs, scheme.stages(), Executor::tiled);
    (void)grad(output, seed, leaves);
    return static_cast<double>(allocator.statistics().peak - held - 4 * operand) / 1048576;  // without o, dq, dk and dv
  };
  for (const std::string text :
      {"none", "alibi", "kerple", "fire", "cope", "dape(kerple)", "cdape(kerple)", "dape(fire)",
          "dape(fire, form=f_of_bias)", "cdape(fire)", "stick_breaking(rest=self)", "forgetting(gates=pairs)"}) {
    const double at_2048 = at_work(text, 2048), at_16384 = at_work(text, 16384);
    CAPTURE(text);
    CHECK(at_2048 < 12);
    CHECK(at_16384 < 9 * at_2048 + 16);
  }
}

TEST_CASE("tiled attention: facts that do not fit the operands are refused") {
  const auto refused = [](const std::function<void(At&)>& change) {
    At at;
    change(at);
    return message([&] { (void)tiled_attention(at, drawn_operands(5, 4)); }).starts_with("tiled_attention: ");
  };
  const auto i64 = [](const std::vector<double>& values, const Shape& shape) {
    return Tensor::of(values, shape, DType::i64);
  };
  CHECK_FALSE(refused([](At&) {}));
  CHECK(refused([](At& at) { at.stick = at.rest_to_self = true, at.first_row = 3; }));
  CHECK(refused([](At& at) { at.first_row = -1; }));
  CHECK(refused([](At& at) { at.window = -1; }));
  CHECK(refused([](At& at) { at.present = Tensor::ones({1, 4}, DType::boolean); }));
  CHECK(refused([](At& at) { at.present = Tensor::ones({1, 5}); }));
  CHECK(refused([&](At& at) { at.query_step = i64({0, 1, 2, 3, 4}, {1, 5}); }));
  CHECK(refused([&](At& at) { at.query_step = at.key_step = i64({0, 1, 2}, {1, 3}); }));
  CHECK(refused([](At& at) { at.dropout = 0.5, at.total_rows = 4; }));
  CHECK(refused([](At& at) { at.lowest = INT64_MIN; }));
  for (const double bin : {7.0, 1e6, -1.0})
    CHECK(refused([&](At& at) { at.bins = 2, at.bin_of = i64({0, bin}, {2}); }));
  CHECK(refused([&](At& at) { at.bin_of = i64({0, 0}, {2}); }));
  // A table beyond which all pairs are adds nothing.
  At far;
  At::Operands x = drawn_operands(5, 4);
  const Tensor without = tiled_attention(far, x).output;
  x[At::distance_table] = Tensor::ones({1, 1}, DType::f64);
  for (const index_t lowest : {-1000, 1000}) {
    far.lowest = lowest;
    CHECK(same_bits(tiled_attention(far, x).output, without));
  }
}

TEST_CASE("tiled attention: half of a program is refused") {
  for (const auto which : {At::relative_query, At::relative_keys, At::fade_query, At::fade_key, At::gate_query,
           At::gate_key, At::piece_begins, At::piece_row}) {
    At::Operands x = drawn_operands(4, 2);
    x[which] = normal_leaf(which == At::piece_begins ? Shape{2}
                           : which == At::piece_row  ? Shape{1, 1, 4}
                                                     : Shape{1, 1, 4, 2},
        9);
    CHECK(message([&] { (void)tiled_attention({}, x); }).find(" given without ") != std::string::npos);
  }
  At::Operands x = drawn_operands(4, 2);
  x[At::gate_query] = x[At::gate_key] = x[At::query];
  CHECK(message([&] { (void)tiled_attention({}, x); }).find("without sums of gates") != std::string::npos);
}

TEST_CASE("tiled attention: a fact that changes before backward is an error") {
  TiledCall at;
  at.present = Tensor::ones({1, 5}, DType::boolean);
  const Tensor y = tiled_attention(at, drawn_operands(5, 4)).output;
  raw::copy_into(Tensor::of({0, 0, 1, 1, 1}, {1, 5}, DType::boolean), at.present);
  CHECK(message([&] { backward(sum(y)); }).find("written") != std::string::npos);
}

TEST_CASE("tiled attention: logits of any finite size give what softmax gives") {
  const Tensor tokens = raw::reshape(Tensor::arange(70), {1, 70});
  for (const DType dtype : {DType::f32, DType::f64}) {
    const double least = dtype == DType::f32 ? -std::numeric_limits<float>::max() : -std::numeric_limits<double>::max();
    for (const double mask : {-1e32, least}) {
      for (const index_t from : {0, 3}) {  // distances that are masked: all, and some
        At::Operands x = drawn_operands(70, 4, dtype);
        const Tensor table = x[At::distance_table] = Tensor::zeros({1, 70}, dtype);
        raw::copy_into(Tensor::full({1, 70 - from}, mask, dtype), raw::slice(table, 1, from, 70));
        const Tensor scores =
            matmul(x[At::query], transpose(x[At::key])) + raw::read_by_distance(Steps::of(tokens, tokens, true), table);
        const Tensor y = tiled_attention({}, x).output,
                     expected = matmul(softmax(Sequence::run(70).masked(scores, -INFINITY)), x[At::value]);
        CHECK(distance(y, expected) < 1e-5);
      }
    }
  }
}

TEST_CASE("tiled attention: in f32 a weight is 0 or so large that its products with gradients are normal") {
  const index_t tokens = 200;
  At::Operands x = drawn_operands(tokens, 4, DType::f32);
  x[At::distance_table] =
      raw::reshape(Tensor::arange(tokens, DType::f32), {1, tokens}) * -0.5;  // ALiBi's steepest head
  backward(sum(slice(tiled_attention({}, x).output, 2, tokens - 1, tokens)));
  index_t zeros = 0;
  for (const double weight : gradient(x[At::value]).to_vector()) {  // of the last query
    CHECK((weight == 0 || weight > 1e-30));
    zeros += weight == 0;
  }
  CHECK((zeros > 0 && zeros < 4 * tokens));
}
