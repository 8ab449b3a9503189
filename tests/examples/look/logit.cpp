// Parts of a logit, answers of earlier layers, and numbers of one pass put into another.
#include <numeric>

#include "autograd/inspect/capture.h"
#include "examples/whence/look/attribution.h"
#include "examples/whence/look/edits.h"
#include "examples/whence/look/patch.h"
#include "tests/examples/look/subjects.h"

using namespace whence;
using namespace whence::look;
using namespace whence::test;

namespace {

std::vector<index_t> all_tokens(const Subject& subject) {
  std::vector<index_t> all(subject.texts.size());
  std::iota(all.begin(), all.end(), index_t{0});
  return all;
}

void check_logits(const Subject& subject) {
  const Forward forward(subject);
  const Attribution found(forward, all_tokens(subject));
  for (index_t token = 0; token < std::ssize(subject.texts); ++token) {
    for (index_t answer = 0; answer < std::ssize(subject.outputs); ++answer) {
      double sum = 0, size = 0;
      for (const double part : found.of({token, answer})) sum += part, size += std::abs(part);
      CHECK(std::abs(sum - forward.logits.at({0, token, answer})) <= 1e-12 * size);
    }
  }
  const std::vector<LensLayer> lens = lens_of(forward);
  REQUIRE(std::ssize(lens) == subject.model->options().layers + 1);
  CHECK(same_bits(lens.back().logits, forward.logits));
  CHECK_FALSE(same_bits(lens.front().logits, forward.logits));
}

Subject other_sequence(const Subject& subject) {
  Subject other = subject;
  other.tokens = random_tokens(1, subject.tokens.size(1), subject.model->options().vocabulary, 7);
  return other;
}

}  // namespace

TEST_CASE("logit: its parts add up to it in every scheme, and the lens behind the last layer is it") {
  for_every_scheme({true, false}, [](const Subject& subject, const std::string&, bool) { check_logits(subject); });
}

TEST_CASE("logit: its parts add up to it in every form of the model") {
  const std::vector<void (*)(TransformerOptions&)> forms{
      [](TransformerOptions& model) { model.norm_place = NormPlace::after; },
      [](TransformerOptions& model) { model.norm_place = NormPlace::after, model.norm = NormKind::rms; },
      [](TransformerOptions& model) { model.norm_place = NormPlace::parallel; },
      [](TransformerOptions& model) { model.norm = NormKind::rms, model.activation = Activation::swiglu; },
      [](TransformerOptions& model) { model.tied = false, model.outputs = 3, model.scale_embedding = true; },
      [](TransformerOptions& model) { model.bias = false; },
      [](TransformerOptions& model) { model.attention_bias = false, model.scale_embedding = true; },
      [](TransformerOptions& model) { model.heads = 4, model.kv_heads = 2, model.recompute_layers = true; }};
  for (std::size_t form = 0; form < forms.size(); ++form) {
    for (const char* scheme : {"absolute", "cope(p_max=3)", "sinusoidal(layout=concat)"}) {
      INFO(form, ", scheme ", scheme);
      TransformerOptions model = small(scheme);
      forms[form](model);
      Subject subject = subject_with(model, 7);
      if (model.outputs > 0) subject.outputs.resize(3), subject.targets = random_tokens(1, 7, 3, 2);
      check_logits(subject);
    }
  }
}

TEST_CASE("logit: each part has its name, and a head that hands on nothing adds nothing") {
  const Subject subject = subject_with(small("absolute"), 7);
  for (const Module::Parameter& parameter : subject.model->parameters()) {
    if (parameter.path != "blocks.1.attention.output.weight") continue;
    raw::copy_into(Tensor::zeros({8, 4}, DType::f64), raw::slice(parameter.tensor, 1, 0, 4));  // of head 0
  }
  const Forward forward(subject);
  const Attribution found(forward, {6});
  std::vector<std::string> names;
  for (const LogitPart& part : found.parts()) names.push_back(to_text(part.layer, ' ', part.name));
  CHECK(names == std::vector<std::string>{"-1 embedding", "-1 position", "0 attention bias", "0 head 0", "0 head 1",
                     "0 MLP bias", "0 MLP", "1 attention bias", "1 head 0", "1 head 1", "1 MLP bias", "1 MLP",
                     "-1 norm bias"});
  const std::vector<double> parts = found.of({6, 2});
  for (std::size_t k = 0; k < parts.size(); ++k) CHECK((parts[k] == 0) == (names[k] == "1 head 0"));
}

TEST_CASE("logit: what is asked, and what is refused") {
  Subject subject = subject_with(small("rope"), 7);
  subject.answers[6] = std::nullopt, subject.targets = subject.targets.detach();
  const Forward forward(subject);
  CHECK((asked_of(forward).token == 5 && asked_of(forward, 2, "d").answer == 3));
  const Asked asked = asked_of(forward, 2, "d");
  CHECK(other_answer(forward, asked) != 3);
  const Table table = attribution_table(attribution_of(forward, asked));
  CHECK(std::stod(table.rows().back()[2]) == doctest::Approx(forward.logits.at({0, 2, 3})).epsilon(1e-3));
  const std::vector<LensAnswer> lens = lens_answers(forward, asked);
  REQUIRE(lens.size() == 3);
  CHECK(lens[2].logit == forward.logits.at({0, 2, 3}));
  CHECK(lens[2].likeliest == subject.predictions(forward.logits)[2].value().likeliest[0].text);
  CHECK(has(error_text([&] { (void)asked_of(forward, 7); }), "token: 7"));
  CHECK(has(error_text([&] { (void)asked_of(forward, 0, "z"); }), "\"z\" given"));
  // An edit that overwrites the residual stream leaves no sum.
  const Forward overwritten(
      subject, [](Capture& capture) { capture.edit("blocks.0.residual", [](const Tensor& x) { return x * x; }); });
  CHECK(has(error_text([&] { (void)attribution_of(overwritten, asked); }), "add up"));
}

TEST_CASE("patch: numbers of the same sequence change no bit of the pass") {
  for (const char* scheme : {"cope(p_max=3)", "cdape(kerple, width=3)", "rope", "stick_breaking", "absolute"}) {
    const Subject subject = subject_with(small(scheme), 7);
    const Inspection inspection(subject, false);
    const Forward source(subject);
    for (const Quantity& quantity : inspection.quantities()) {
      CAPTURE(quantity.path);
      const Forward patched(subject, with(inspection.prepare(), changes_of(inspection, source, quantity.path)));
      CHECK(patched.loss == inspection.loss());
      REQUIRE(patched.quantities.size() == source.quantities.size());
      for (std::size_t k = 0; k < source.quantities.size(); ++k)
        CHECK(same_bits(patched.quantities[k].value, source.quantities[k].value));
    }
  }
}

TEST_CASE("patch: what goes into the first layer of another sequence makes its logits, and a constant is an edit") {
  const Subject subject = subject_with(small("cope(p_max=3)"), 7), other = other_sequence(subject);
  const Inspection inspection(subject, false);
  const Forward source(other),
      flat(subject, [](Capture& capture) { capture.edit("*.gates", [](const Tensor& x) { return x * 0.0 + 0.25; }); });
  const Forward patched(subject, with(inspection.prepare(), changes_of(inspection, source, "embedded")));
  CHECK(same_bits(patched.logits, source.logits));
  CHECK_FALSE(same_bits(patched.logits, Forward(subject).logits));
  const Patching constant(inspection, flat);
  // Masked entries of both stay.
  CHECK(constant.outcome_of("gates layer=1 head=1").real ==
        inspection_with(inspection, {"gates layer=1 head=1 = 0.25"})->loss() - inspection.loss());
  CHECK(constant.outcome_of("gates layer=1 head=1; gates layer=0 head=0 i=6").real ==
        inspection_with(inspection, {"gates layer=1 head=1 = 0.25", "gates layer=0 head=0 i=6 = 0.25"})->loss() -
            inspection.loss());
}

TEST_CASE("patch: places, and what the gradient predicts of a small one") {
  const Subject subject = subject_with(small("cope(p_max=3)"), 7), other = other_sequence(subject);
  const Inspection inspection(subject);
  const Forward source(other);
  const auto patched = [&](const std::string& patch) {
    return Forward(subject, with(inspection.prepare(), changes_of(inspection, source, patch)));
  };
  const auto v_of = [](const Forward& forward) { return named(forward.quantities, "blocks.0.attention.v").value; };
  const Tensor before = v_of(Forward(subject)), there = v_of(source),
               after = v_of(patched("v layer=0 head=1 j=3 = j=5"));
  for (index_t head = 0; head < 2; ++head)
    for (index_t j = 0; j < 7; ++j)
      for (index_t d = 0; d < 4; ++d)
        CHECK(after.at({0, head, j, d}) == (head == 1 && j == 3 ? there.at({0, 1, 5, d}) : before.at({0, head, j, d})));
  const Forward near(
      subject, [](Capture& capture) { capture.edit("*.scores", [](const Tensor& x) { return x * 1.000001; }); });
  const PatchOutcome small_step = Patching(inspection, near).outcome_of("scores layer=0");
  REQUIRE(small_step.predicted);
  CHECK(small_step.real != 0);
  CHECK(std::abs(small_step.real - *small_step.predicted) < 1e-4 * std::abs(small_step.real) + 1e-13);
  const Patching patching(inspection, source, 4);
  const std::vector<PatchOutcome> heads = patching.map_of("output i=4"), tokens = patching.map_of("residual");
  REQUIRE(heads.size() == 4);
  REQUIRE(tokens.size() == 10);
  CHECK(heads[3].real == patching.outcome_of("output layer=1 head=1 i=4").real);
  CHECK(tokens[9].logit == patching.outcome_of("residual layer=1 t=4").logit);
  CHECK(tokens[9].logit == source.logits.at({0, 4, static_cast<index_t>(subject.targets.at({0, 4}))}));
  CHECK(tokens[8].logit == patching.before().logit);  // the last layer's other tokens are not read here
  CHECK((is_map("output i=4") && !is_map("output layer=0")));
}

TEST_CASE("patch: what cannot be read, or does not fit, is refused") {
  const Subject subject = subject_with(small("cope(p_max=3)"), 7), shorter = subject_with(small("cope(p_max=3)"), 5);
  const Inspection inspection(subject, false);
  const Forward source(shorter);
  for (const auto& refusal : std::vector<std::pair<std::string, std::string>>{{"pattern layer=0", "[1,2,5,5]"},
           {"patern layer=0", "'patern' in"}, {"v layer=0 j=3 = k j=1", "AXIS=PLACE"}, {"v layer=0 j=6", "j=6 given"},
           {"", "nothing given"}, {"dLoss/dv layer=0 j=2", "a gradient"}}) {
    CAPTURE(refusal.first);
    const std::string text = error_text([&] { (void)changes_of(inspection, source, refusal.first); });
    CHECK_MESSAGE(has(text, refusal.second), text);
  }
  (void)changes_of(inspection, source, "v layer=0 j=6 = j=4");
  CHECK(has(error_text([] { (void)PatchSource().of({.run = "a"}); }), "--from required"));
}

TEST_CASE("logit: the command, on a run of train") {
  const Scratch scratch("logit");
  const std::string run = scratch / "run";
  train_flip_flop(run, "--steps 4");
  const std::string said = done("look --attribution --lens --dtype f64 " + run).out;
  says(said, {"head 1", "norm bias", "sum", "embedding", "layer 0"});
  const std::string patched = done("look --patch output --from 1 " + run).out;
  says(patched, {"none", "output layer=0 head=0", "output layer=0 head=1"});
  CHECK(has(done("look --patch 'pattern layer=0 head=1' --from 1 --causes --lens " + run).out, "layer 0"));
  for (const auto& [words, part] : std::vector<std::pair<Arguments, std::string>>{{{"--patch", "output"}, "--from"},
           {{"--patch", "output", "--from", "1", "--causes"}, "many passes"}, {{"--from", "1", "--lens"}, "--patch"},
           {{"--patch", "output", "--from", "one"}, "\"one\" given"}})
    CHECK_MESSAGE(has(test::run("look", Arguments{run} + words).err, part), part);
  CHECK(has(done("look --patch output --from " + run + " " + run).out, "output layer=0 head=1"));
}
