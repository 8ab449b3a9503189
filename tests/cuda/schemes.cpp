// Every scheme and the main sums on a device against the CPU: output and all gradients, both executors. Under emulation
// a host read of the device's memory ends the program. So this also checks that every scheme makes its tables on the
// scores' device.

#include "examples/whence/verify/bare_attention.h"
#include "examples/whence/verify/device_check.h"
#include "examples/whence/verify/gradient_check.h"
#include "nn/attention/plan.h"
#include "nn/attention/tile_terms.h"
#include "nn/decoding.h"
#include "nn/transformer.h"
#include "tests/cuda/tiles.h"

using namespace whence;
using namespace whence::test;

namespace {

void expect_same_on_device(
    const std::string& text, const AttendPlan& plan, DType dtype, const Sequence& sequence = Sequence::run(6)) {
  INFO(text, ", executor ", std::string(name_of(plan.executor)), ", dtype ", dtype);
  const DeviceDisagreement found = device_disagreement(text, sequence, plan, dtype, 5);
  CHECK_MESSAGE(found.largest <= device_tolerance(dtype), found.worst << ": " << found.largest);
}

const std::vector<std::string>& main_sums() {
  static const std::vector<std::string> sums{"cope(p_max=3) + rope", "cope(p_max=2, z_from=rotated) + rope",
      "dape(kerple, width=3)", "dape(rope, width=3)", "cdape(kerple, width=3)", "cdape(rope, width=2, kernel=1)",
      "randomised(alibi, length=9)", "absolute + hard_attention", "stick_breaking(rest=self)",
      "interpolated(rope, factor=2)", "cope(p_max=3, gates=separate_keys)"};
  return sums;
}

std::vector<std::string> texts() {
  std::vector<std::string> all = main_sums();
  for (const SchemeInfo& info : registered_schemes()) {
    if (!info.takes_base) all.push_back(info.name);
    for (const std::string& variant : info.variants) all.push_back(variant);
  }
  return all;
}

}  // namespace

TEST_CASE("cuda: every scheme on the device as on the CPU, forward and backward, by reference and by strips") {
  const AttendPlan strips(Executor::strips, 4);
  for (const std::string& text : texts()) {
    expect_same_on_device(text, Executor::reference, DType::f32);
    in_order(20, [&] { expect_same_on_device(text, strips, DType::f32); });
  }
}

TEST_CASE("cuda: schemes in 16 bits, with padding, and without a causal mask") {
  const Tensor present = Tensor::of({0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0}, {2, 6}, DType::boolean);
  for (const SchemeInfo& info : registered_schemes()) {
    if (info.takes_base) continue;
    const Claims claims = BareAttention(info.name, {.dim = 8, .heads = 2, .length = 6}).claims();
    if (claims.exact_gradient) {  // an argmax jumps with the rounding
      expect_same_on_device(info.name, Executor::reference, DType::f16);
      in_order(1, [&] { expect_same_on_device(info.name, Executor::reference, DType::bf16); });
    }
    expect_same_on_device(info.name, Executor::reference, DType::f32, Sequence::padded(present));
    if (!claims.causal_only) expect_same_on_device(info.name, Executor::reference, DType::f32, Sequence::run(6, false));
  }
}

namespace {

// A bias by distance whose table in tiles has no flaw (0), another slope (1), one slope for all heads (2), or no
// gradient (3).
struct FlawedInTiles final : PositionalScheme, ReadsByDistance {
  explicit FlawedInTiles(index_t its) : flaw(its), slope(param("slope", {1}, Init::constant(0.5))) {}
  Claims claims() const override { return {.shift_invariant = true}; }
  std::optional<Tensor> table(const Tensor& distances, const AttendContext& context) const override {
    const index_t here = context.content_scores.defined() ? 0 : flaw;
    const index_t heads = context.query.size(1), count = distances.size(0);
    const Tensor numbers = Tensor::empty({heads, count}, DType::f64);
    for (index_t k = 0; k < numbers.numel(); ++k)
      numbers.data<double>()[k] =
          -std::fabs(distances.data<double>()[k % count]) * (here == 2 ? 1 : static_cast<double>(k / count + 1));
    const Tensor learned = cast(here == 3 ? slope.detach() : slope, context.dtype());
    return context.on_device(raw::cast(numbers, context.dtype())) * learned * (here == 1 ? 1.1 : 1.0);
  }
  index_t flaw;
  Tensor slope;
};

ConformanceCell tiled_cell(const std::string& text) {
  static const RegisterScheme registered{{.name = "flawed_in_tiles",
      .title = "a scheme with a flaw in tiles",
      .paper = "tests/cuda/schemes.cpp",
      .equation = "wrong",
      .options = {option::integer("flaw", 0, {0, 3}, "which")},
      .make = [](const SchemeArguments& given) -> std::unique_ptr<PositionalScheme> {
        return std::make_unique<FlawedInTiles>(given.integer("flaw"));
      }}};
  return conform(text, 1, {device_checks().back()}).cells.at(0);
}

}  // namespace

TEST_CASE("cuda: schemes in tiles as composed ops in f64 have them, and a scheme whose tiles are wrong is caught") {
  using Mark = ConformanceCell::Mark;
  for (const std::string text : {"none", "alibi", "kerple", "t5", "sandwich", "forgetting", "cope(p_max=3)", "rope",
           "window(alibi)", "alibi + sink(start=-2)", "flawed_in_tiles"}) {
    const ConformanceCell cell = tiled_cell(text);
    CHECK_MESSAGE(cell.mark == Mark::passed, text << ": " << cell.figure << ", " << cell.note);
  }
  for (int flaw = 1; flaw <= 3; ++flaw)
    CHECK(tiled_cell(to_text("flawed_in_tiles(flaw=", flaw, ")")).mark == Mark::failed);
  CHECK(tiled_cell("hard_attention").mark == Mark::not_applicable);
}

TEST_CASE(
    "cuda: operands of a head mix are made of its parameters there, and their gradients, as composed ops make them") {
  for_each_tiled_dtype({DType::f64}, [](DType dtype) {
    for (const char* text :
        {"dape(kerple, width=5)", "dape(alibi, width=5, form=concat)", "dape(kerple, form=f_of_bias)",
            "dape(fire(init_length=3), width=5)", "cdape(kerple, width=5)", "cdape(none, width=5, kernel=3, pad=left)"})
      expect_same_on_device(text, Executor::tiled, dtype, Sequence::run(70));
  });
}

TEST_CASE("cuda: gradients of ops and schemes on the device agree with duals and differences there") {
  const GradientCheckOptions where{.length = 4, .device = Device::cuda(0)};
  for (const char* name : {"softmax", "layer_norm", "lerp_at", "cope(p_max=3) + rope", "cdape(kerple, width=2)"}) {
    const GradientChecks checks = check_gradients(find_checkable(name), where);
    CAPTURE(name);
    CHECK(checks.ok());
    CHECK(checks.figures().inputs > 0);
  }
}
