// The story's numbers: silenced heads, the number that moves an answer the most, and its stops.
#include "examples/whence/look/story.h"

#include "examples/whence/look/place.h"
#include "tests/examples/look/subjects.h"

namespace whence::test {
TEST_CASE("look: a silenced head's output is 0, in every scheme") {
  for (const char* scheme : {"cope(p_max=4)", "alibi"}) {
    const look::Subject subject = subject_with(small(scheme), 7);
    const look::Inspection inspection(subject);
    const std::vector<look::HeadEffect> effects = look::effects_of_heads(inspection);
    const TransformerOptions& model = subject.model->options();
    REQUIRE(std::ssize(effects) == model.layers * model.heads);
    for (const look::HeadEffect& each : effects) {
      CHECK(each.outcome.text == to_text("output layer=", each.layer, " head=", each.head, " = 0"));
      CHECK(each.outcome.real == look::outcome_of(inspection, each.outcome.text).real);
    }
  }
}

TEST_CASE("look: the story's pair moves an answer more than any other pair of the best rows, found by trying all") {
  const look::Subject subject = subject_with(small("cope(p_max=4)"), 7);
  const look::Inspection inspection(subject);
  const look::Knob knob = look::knob_of(inspection).value();
  const auto effect_at = [&](const std::string& edit, index_t i) {
    const auto after = look::pass_with(inspection, edit).predictions;
    const auto t = static_cast<std::size_t>(i);
    return std::abs(after[t]->wanted.probability - inspection.predictions()[t]->wanted.probability);
  };
  CHECK(std::max(effect_at(knob.at + " = 0", knob.pair.i), effect_at(knob.at + " = 1", knob.pair.i)) == knob.effect);
  double of_any = 0, of_row = 0;
  for (index_t layer = 0; layer < subject.model->options().layers; ++layer)
    for (index_t head = 0; head < subject.model->options().heads; ++head)
      for (index_t i = 0; i < 7; ++i)
        for (index_t j = 0; j <= i; ++j)
          for (const char* end : {" = 0", " = 1"}) {
            const double effect = effect_at(to_text("gates layer=", layer, " head=", head, " i=", i, " j=", j, end), i);
            of_any = std::max(of_any, effect);
            if (layer == knob.pair.layer && head == knob.pair.head && i == knob.pair.i)
              of_row = std::max(of_row, effect);
          }
  CHECK(knob.effect >= of_row);
  CHECK(knob.effect >= 0.5 * of_any);  // rows are tried first: another row may hold a stronger single gate
}

TEST_CASE("look: the story is at a token with a target; without any there is none") {
  look::Subject subject = subject_with(small("alibi"), 7);
  subject.targets = Tensor::of({1, -1, 2, -1, 0, -1, -1}, {1, 7}, DType::i64);
  subject.answers = {"b", {}, "b", {}, "b", {}, {}};
  const index_t i = look::knob_of(look::Inspection(subject)).value().pair.i;
  CHECK((i == 0 || i == 2 || i == 4));
  subject.targets = Tensor::full({1, 7}, -1, DType::i64), subject.answers.assign(7, {});
  CHECK_FALSE(look::knob_of(look::Inspection(subject)));
}

TEST_CASE("look: every stop of every scheme's knob is the pass with that edit") {
  for_every_scheme({true, false}, [](const look::Subject& subject, const std::string&, bool) {
    const look::Inspection inspection(subject);
    const look::Knob knob = look::knob_of(inspection).value();
    const look::StoryPair& pair = knob.pair;
    REQUIRE(knob.stops.size() == 11);
    if (knob.change != "=") CHECK(std::abs(knob.stops[5].outcome.real) < 1e-12);  // nothing is changed there
    for (const std::size_t k : {0U, 10U}) {
      const look::Turned& stop = knob.stops[k];
      CHECK(stop.outcome.real == look::outcome_of(inspection, stop.outcome.text).real);
      const auto edited = look::inspection_with(inspection, {stop.outcome.text});
      CHECK(edited->loss() == doctest::Approx(inspection.loss() + stop.outcome.real).epsilon(1e-12));
      for (const look::Turned::Row& row : stop.rows) {
        const look::Quantity& then = named(edited->quantities(), row.quantity->path);
        const look::Axes axes(then);
        for (index_t j = 0; j < std::ssize(row.numbers); ++j) {
          const std::size_t e =
              axes.element({0, pair.head * axes.extent('h') / subject.model->options().heads, pair.i, j});
          if (inspection.stop_of(*row.quantity, e) != Stop::masked)
            CHECK(
                row.numbers[static_cast<std::size_t>(j)] == doctest::Approx(then.value.to_vector()[e]).epsilon(1e-12));
        }
      }
    }
  });
}

TEST_CASE("look: a knob is what its scheme registers, or else the pair's content score") {
  const std::pair<const char*, const char*> all[] = {{"cope(p_max=4)", "gates layer="},
      {"cdape(kerple)", "hidden.weight 3=1"}, {"alibi", "bias layer="}, {"rope", "scores layer="},
      {"stick_breaking", "shares layer="}, {"rope + cope(p_max=4)", "gates layer="},
      {"dape(alibi)", "mlp_bias layer="}};
  for (const auto& each : all) {
    const std::string scheme = each.first, at = each.second;
    CAPTURE(scheme);
    const look::Subject subject = subject_with(small(scheme), 7);
    const look::Inspection inspection(subject);
    const look::Knob knob = look::knob_of(inspection).value();
    CHECK_MESSAGE(knob.at.find(at) != std::string::npos, knob.at);
    CHECK(std::ranges::any_of(knob.stops, [](const look::Turned& stop) { return std::abs(stop.outcome.real) > 1e-9; }));
  }
  for (const SchemeInfo& info : registered_schemes()) {  // a knob without a quantity would silently be the score
    if (info.knob.empty()) continue;
    CAPTURE(info.name);
    const look::Subject subject = subject_with(small(info.takes_base ? info.name + "(alibi)" : info.name), 7);
    const look::Inspection inspection(subject);
    CHECK(look::knob_of(inspection).value().change != "+=");
  }
}

TEST_CASE("look: a knob that moves no answer gives way to one that does") {
  const look::Subject subject = subject_with(small("cope(p_max=4)"), 7);
  for (const char* block : {"blocks.0", "blocks.1"}) {
    const Tensor table = parameter(*subject.model, to_text(block, ".attention.position.table"));
    raw::copy_into(Tensor::zeros(table.shape(), DType::f64), table);  // no gate counts
  }
  const look::Inspection inspection(subject);
  const look::Knob knob = look::knob_of(inspection, 1e-4).value();
  CHECK_MESSAGE(knob.at.starts_with("scores layer="), knob.at);
  CHECK(knob.effect > 1e-4);
  CHECK(look::knob_of(inspection, 1).value().at.starts_with("gates layer="));
}

}  // namespace whence::test
