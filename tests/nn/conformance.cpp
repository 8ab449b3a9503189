// The conformance matrix over all schemes, options and sums. Planted schemes, each of which breaks one promise, must be
// caught.
#include "examples/whence/verify/conformance.h"

#include <set>

#include "examples/whence/verify/checks.h"
#include "examples/whence/verify/scheme_texts.h"
#include "nn/attention/distances.h"
#include "nn/scheme.h"
#include "tests/support/programs.h"
#include "tests/support/schemes.h"

using namespace whence;
using namespace whence::test;

namespace {

using Mark = ConformanceCell::Mark;

int check_rows(const std::vector<std::string>& texts) {
  int run = 0;
  for (const std::string& text : texts) {
    const ConformanceRow row = conform(text, 1);
    CAPTURE(row.scheme);
    for (std::size_t k = 0; k < row.cells.size(); ++k) {
      const std::string what = conformance_checks()[k].name + ": " + row.cells[k].note;
      CHECK_MESSAGE(row.cells[k].mark != Mark::failed, what);
    }
    run += static_cast<int>(row.cells.size()) - row.count(Mark::not_applicable);
  }
  return run;
}

enum class Flaw {
  none,
  sees_future,
  counts_columns,
  mixes_batch,
  forgets_gradient,
  reads_rows,
  claims_shift,
  draws,
  claims_late_change
};

class Flawed final : public PositionalScheme, public BiasesScores {
 public:
  explicit Flawed(Flaw flaw) : flaw_(flaw), slope_(param("slope", {1}, Init::constant(0.5))) {}
  Claims claims() const override {
    if (flaw_ != Flaw::claims_late_change) return {.shift_invariant = true};
    return {.shift_invariant = true, .prefix_consistent = false, .changes_rows = {9, Claims::any_length}};
  }

  Tensor bias(const AttendContext& at) const override {
    const DType dtype = at.content_scores.dtype();
    const Tensor slope = flaw_ == Flaw::forgets_gradient ? slope_ * 0.5 + slope_.detach() * 0.5 : slope_;
    const Tensor bias = cast(distance_of_pairs(at), dtype) * slope * -1.0;
    switch (flaw_) {
      case Flaw::sees_future: return bias + sum(at.content_scores, {-1}, true) * bias;
      case Flaw::claims_late_change:
      case Flaw::counts_columns: return bias * static_cast<double>(at.key.size(2));
      case Flaw::mixes_batch: return bias * sum(at.query);
      case Flaw::reads_rows: return bias * static_cast<double>(at.query.size(2));
      case Flaw::claims_shift: return bias * cast(reshape(at.positions.query, {1, 1, -1, 1}) + 1.0, dtype);
      case Flaw::draws: return bias * (1 + 1e-3 * ++calls_);
      default: return bias;
    }
  }

 private:
  Flaw flaw_;
  Tensor slope_;
  mutable int calls_ = 0;
};

void register_flawed() {
  static const RegisterScheme registered{{.name = "flawed",
      .title = "a scheme with a flaw",
      .paper = "tests/nn/conformance.cpp",
      .equation = "wrong",
      .options = {option::integer("flaw", 0, {0, 8}, "which")},
      .make = [](const SchemeArguments& given) -> std::unique_ptr<PositionalScheme> {
        return std::make_unique<Flawed>(static_cast<Flaw>(given.integer("flaw")));
      }}};
}

std::set<std::string> failures_of(Flaw flaw) {
  register_flawed();
  std::set<std::string> failed;
  for (const std::string& problem : check_scheme(to_text("flawed(flaw=", static_cast<int>(flaw), ")")).problems)
    failed.insert(problem.substr(0, problem.find(": ")));
  return failed;
}

}  // namespace

TEST_CASE("conformance --list: every text that is tried") {
  const test::Outcome all = test::ran("conformance --list");
  CHECK_MESSAGE(all.code == 0, all.err);
  CHECK(has(all.out, "\nalibi + cope\n"));
  CHECK(test::ran("conformance rope --list").out.ends_with("\nrope\n"));
}

TEST_CASE("every scheme and every option of it") {
#ifdef WHENCE_SANITIZED  // without single options, which would take minutes there
  CHECK(check_rows(promised_texts()) > 500);
#else
  CHECK(check_rows(scheme_texts(16)) >= 10922);
#endif
}

TEST_CASE("schemes whose tables, buckets and networks are small, so that a few tokens reach their ends") {
  CHECK(
      check_rows({"shaw(clip=2)", "relative(rows=3)", "relative(rows=3, capped=yes, table=per_layer)",
          "t5(buckets=4, max_distance=6)", "t5(scale=head, table=per_layer)", "sandwich(dim=8)", "fire(width=4)",
          "fire(width=4, init_length=2, activation=leaky_relu)", "rope(width=2)", "interpolated(rope, factor=3)",
          "yarn(original=4)", "yarn(original=4, factor=2, layout=interleaved, width=2)", "cope(p_max=3)",
          "cope(p_max=3, gates=values)", "cope(p_max=3, gates=separate_keys)", "cope(p_max=3, interpolation=equation5)",
          "cope(p_max=3, table=shared) + rope", "cope(p_max=3, z_from=rotated, z_scale=head) + rope",
          "cope_mlp(width=3)", "cope_mlp(width=3, output=head, z_scale=head)", "cope_alibi(slopes=halving, first=0.25)",
          "cope_alibi(slopes=learned, sign=plus)", "alibi + hard_attention", "dape(none, width=3)",
          "dape(rope, width=3)", "dape(alibi, width=3, form=concat)", "dape(kerple, width=3, form=add_residual)",
          "dape(fire, width=3, form=f_of_bias)", "cdape(alibi, width=3, kernel=1)",
          "cdape(kerple, width=3, remask=yes)", "cdape(rope, width=3, pad=left)",
          "cdape(none, width=3, kernel=2, pad=left)", "cdape(kerple, width=3)", "cdape(rope, width=3, kernel=5)",
          "cdape(none, width=3, kernel=7)", "cdape(alibi, width=3, tril=no)", "cdape(rope, width=3, tril=no)",
          "cdape(none, width=3, kernel=5, tril=always)"}) > 500);
}

TEST_CASE("every sum of two schemes that means something") { CHECK(check_rows(scheme_sums()) >= 6385); }

TEST_CASE("a scheme without a flaw passes, and each flaw is caught by the check that is there for it") {
  CHECK(failures_of(Flaw::none).empty());
  const std::pair<Flaw, std::vector<const char*>> caught[] = {{Flaw::sees_future, {"causality"}},
      {Flaw::counts_columns, {"prefix", "padding"}}, {Flaw::claims_late_change, {"prefix", "decoding"}},
      {Flaw::mixes_batch, {"padded decoding", "hidden"}}, {Flaw::forgets_gradient, {"gradcheck", "model gradients"}},
      {Flaw::reads_rows, {"decoding", "strips"}}, {Flaw::claims_shift, {"shift"}},
      {Flaw::draws, {"same bits", "planned"}}};
  for (const auto& [flaw, checks] : caught) {
    const std::set<std::string> failed = failures_of(flaw);
    for (const char* check : checks) CHECK_MESSAGE(failed.contains(check), check);
  }
}

TEST_CASE("a text that is refused has a reason and no cells") {
  const ConformanceRow row = conform("cope(z_from=rotated)", 1);
  CHECK(row.cells.empty());
  CHECK(has(row.refusal, "without a"));
}
