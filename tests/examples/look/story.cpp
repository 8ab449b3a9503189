// The story's numbers: heads set to 0, the pair shown first, and the stops of each scheme's knob.
#include "examples/whence/look/story.h"

#include "examples/whence/look/place.h"
#include "tests/examples/look/subjects.h"

namespace whence::test {
namespace {

look::StoryPair pair_of(const look::Inspection& inspection) {
  return look::story_pair(inspection, look::effects_of_heads(inspection));
}

}  // namespace

TEST_CASE("look: the story opens at the head without which the loss moves the most, and at its strongest other key") {
  const look::Subject subject = subject_with(small("cope(p_max=4)"), 7);
  const look::Inspection inspection(subject);
  const std::vector<look::HeadEffect> effects = look::effects_of_heads(inspection);
  const TransformerOptions& model = subject.model->options();
  REQUIRE(std::ssize(effects) == model.layers * model.heads);
  double largest = 0;
  for (const look::HeadEffect& each : effects) {
    CHECK(each.outcome.real == look::outcome_of(inspection, each.outcome.text).real);
    CHECK(each.outcome.text.starts_with("gates layer="));
    largest = std::max(largest, std::abs(each.outcome.real));
  }
  const look::StoryPair pair = look::story_pair(inspection, effects);
  CHECK(std::abs(effects[static_cast<std::size_t>(pair.layer * model.heads + pair.head)].outcome.real) == largest);
  CHECK(pair.i == 6);
  CHECK(pair.j < pair.i);
  const Tensor pattern = find(inspection.quantities(), pair.layer, "pattern")->value;
  for (index_t j = 0; j < pair.i; ++j)
    CHECK(pattern.at({0, pair.head, pair.i, j}) <= pattern.at({0, pair.head, pair.i, pair.j}));
}

TEST_CASE("look: without gates a head's pattern is set to 0; the story shows the last graded query") {
  look::Subject subject = subject_with(small("alibi"), 7);
  subject.targets = Tensor::of({1, -1, 2, -1, 0, -1, -1}, {1, 7}, DType::i64);
  subject.answers = {"b", {}, "b", {}, "b", {}, {}};
  const look::Inspection inspection(subject);
  const std::vector<look::HeadEffect> effects = look::effects_of_heads(inspection);
  CHECK(effects[0].outcome.text.starts_with("pattern layer=0 head=0"));
  CHECK(look::story_pair(inspection, effects).i == 4);
}

TEST_CASE("look: every stop of every scheme's knob is the pass with that edit") {
  for_every_scheme({true, false}, [](const look::Subject& subject, const std::string&, bool) {
    const look::Inspection inspection(subject);
    const look::StoryPair pair = pair_of(inspection);
    const look::Knob knob = look::knob_at(inspection, pair);
    REQUIRE(knob.stops.size() == 11);
    if (knob.change != "=") CHECK(std::abs(knob.stops[5].outcome.real) < 1e-12);  // nothing is changed there
    for (const std::size_t k : {0U, 10U}) {
      const look::Knob::Stop& stop = knob.stops[k];
      CHECK(stop.outcome.real == look::outcome_of(inspection, stop.outcome.text).real);
      const auto edited = look::inspection_with(inspection, {stop.outcome.text});
      CHECK(edited->loss() == doctest::Approx(inspection.loss() + stop.outcome.real).epsilon(1e-12));
      for (const look::Knob::Row& row : stop.rows) {
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
    const look::Knob knob = look::knob_at(inspection, pair_of(inspection));
    CHECK_MESSAGE(knob.at.find(at) != std::string::npos, knob.at);
    const bool moves = std::ranges::any_of(
        knob.stops, [](const look::Knob::Stop& stop) { return std::abs(stop.outcome.real) > 1e-9; });
    CHECK(moves);
  }
  for (const SchemeInfo& info : registered_schemes()) {  // a knob without a quantity would silently be the score
    if (info.knob.empty()) continue;
    CAPTURE(info.name);
    const look::Subject subject = subject_with(small(info.takes_base ? info.name + "(alibi)" : info.name), 7);
    const look::Inspection inspection(subject);
    CHECK(look::knob_at(inspection, pair_of(inspection)).change != "+=");
  }
}

}  // namespace whence::test
