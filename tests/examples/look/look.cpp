// `whence look`: every scheme's quantities are known, its paths add up, its zeros have causes; and the command.
#include <set>
#include <tuple>

#include "autograd/inspect/capture.h"
#include "examples/whence/cli/json_lines.h"
#include "examples/whence/look/graph.h"
#include "examples/whence/look/links.h"
#include "examples/whence/look/page.h"
#include "examples/whence/look/page_data.h"
#include "examples/whence/look/place.h"
#include "examples/whence/look/tables.h"
#include "examples/whence/report/encode.h"
#include "nn/io/safetensors.h"
#include "tests/examples/look/subjects.h"
#include "tests/support/json.h"

using namespace whence;
using namespace whence::look;
using namespace whence::test;

TEST_CASE("look: every scheme's quantities are described, paths add up, zeros have causes, numbers are explained") {
  for_every_scheme({true, false}, [](const Subject& subject, const std::string&, bool causal) {
    const Inspection inspection(subject);
    check_quantities(inspection);
    check_causes(inspection);
    for (const PathsTo& to : inspection.paths()) CHECK_MESSAGE(to.difference < 1e-12, to.name);
    for (const Quantity& quantity : inspection.quantities()) {
      if (!causal || quantity.layer != 0 || !quantity.gradient.defined()) continue;
      CAPTURE(quantity.path);
      Shape last = quantity.value.shape();
      for (int axis = 0; axis < last.rank(); ++axis) --last[axis];
      const ExplainedGradient found = inspection.explain_gradient(quantity.path, last);
      CHECK(std::abs(found.sum - found.gradient) < 1e-12);
      const Contribution number = inspection.explain_value(quantity.path, last);
      CHECK(number.value == quantity.value.to_vector().back());
      CHECK_FALSE(number.op.empty());
    }
  });
}

TEST_CASE("look: where gates saturate, each gradient still is the sum over its links, and what is no sum is left out") {
  const Subject subject = subject_with(small("cope(p_max=3)"), 9);
  for (const DType dtype : {DType::f64, DType::f32}) {
    subject.model->to(dtype);
    Capture capture("*");
    // As in trained models, 1 - g is 1e-4, with three digits in f32.
    capture.edit("blocks.0.attention.position.gate_logits", [](const Tensor& x) { return 0.01 * x + 9.0; });
    const Inspection inspection(subject);
    const Links links = links_of(inspection, 1e9);
    CHECK(links.left_out.empty());
    for (const index_t layer : {0, 1})
      CHECK(std::ranges::any_of(
          links.all, [&](const Link& link) { return link.layer == layer && link.from == "position.gate_logits"; }));
  }
  const Subject hard = subject_with(small("alibi + hard_attention"), 9);
  const Inspection straight_through(hard);
  CHECK_FALSE(links_of(straight_through, 1e9).left_out.empty());
}

// Brute force: a model with one fault, and the same model without it.
TEST_CASE("look: the cause that is named for a zero is the one whose mending makes the entry live") {
  const auto times = [](const Subject& subject, const std::string& part, double factor) {
    for (const Module::Parameter& each : subject.model->parameters())
      if (each.path.find(part) != std::string::npos)
        raw::copy_into(affine(each.tensor.detach(), factor, 0), each.tensor);
  };
  struct Fault {
    std::string name;
    std::set<Stop> causes;
    std::function<void(Subject&)> make;
  };
  const std::vector<Fault> faults{{"no target from token 4 on", {Stop::no_target, Stop::dead},
                                      [](Subject& subject) {
                                        for (index_t t = 4; t < 7; ++t)
                                          subject.targets.data<std::int64_t>()[t] = -1,
                                          subject.answers[static_cast<std::size_t>(t)].reset();
                                      }},
      {"a weight of 0", {Stop::zero, Stop::dead},
          [&](Subject& subject) { times(subject, "blocks.1.attention.output.weight", 0); }},
      {"queries 1e5 times too long",
          {Stop::rounded, Stop::saturated, Stop::zero, Stop::cancelled, Stop::clamped, Stop::unread},
          [&](Subject& subject) { times(subject, "blocks.0.attention.query", 1e5); }},
      {"a scheme whose numbers are 0", {Stop::zero, Stop::flat, Stop::whole, Stop::cancelled, Stop::dead},
          [&](Subject& subject) { times(subject, "position.", 0); }}};
  for (const Fault& fault : faults) {
    CAPTURE(fault.name);
    int mended = 0;
    for (const std::string scheme : {"rope", "alibi", "kerple", "t5", "cope(p_max=3)", "dape(kerple)", "fire",
             "absolute", "stick_breaking", "cable", "forgetting", "cdape(kerple)"}) {
      CAPTURE(scheme);
      Subject whole = subject_with(small(scheme), 7), faulty = subject_with(small(scheme), 7);
      fault.make(faulty);
      const Inspection before(faulty), after(whole);
      for (const auto part : {&Inspection::quantities, &Inspection::parameters}) {
        for (std::size_t q = 0; q < (before.*part)().size(); ++q) {
          const Quantity &zero = (before.*part)()[q], &live = (after.*part)()[q];
          if (!zero.gradient.defined()) continue;
          CAPTURE(zero.path);
          const std::vector<double> was = zero.gradient.to_vector(), is = live.gradient.to_vector();
          const Axes axes(zero);
          const char row = axes.has('i') ? 'i' : 'j';
          for (std::size_t e = 0; e < was.size(); ++e) {
            const Stop named = before.stop_of(zero, e), then = after.stop_of(live, e);
            if (&fault == &faults[0] && zero.probe && axes.has(row) && axes.place(e, row) >= 4)
              CHECK((named == Stop::no_target || named == Stop::masked || (named == Stop::zero && then == named)));
            if (was[e] != 0 || then == Stop::masked) continue;
            INFO(e, ", named ", std::string(to_string(named)));
            if (std::abs(is[e]) > 1e-9) {
              CHECK(fault.causes.contains(named));
              ++mended;
            } else if (named == Stop::no_target || named == Stop::rounded) {
              CHECK((is[e] != 0 || then != named));
            }
          }
        }
      }
    }
    CHECK(mended > 500);
  }
}

TEST_CASE("look: constants, and channels of keys to come, are what they are") {
  const Subject alibi = subject_with(small("alibi"), 7);
  const Inspection plain(alibi);
  CHECK(has(explained(plain, "bias layer=0 head=1 i=3 j=1"), "a constant"));
  CHECK_FALSE(outcome_of(plain, "blocks.0.attention.position.bias = 0").predicted);
  // Row i reads a hidden column after key i, which feeds key i (nn/errata.md, C2). It has a nonzero gradient.
  const Subject cdape = subject_with(small("cdape(alibi, width=3)"), 7);
  const Inspection inspection(cdape);
  for (const Quantity& quantity : inspection.quantities()) {
    if (quantity.name != "position.conv_hidden" || quantity.layer != 0) continue;
    const auto stop_at = [&](index_t i, index_t j) {
      return inspection.causes()[quantity.causes[static_cast<std::size_t>(i * 7 + j)]].stop;
    };
    CHECK((stop_at(3, 4) == Stop::nothing || stop_at(3, 4) == Stop::leaking));
    CHECK(stop_at(3, 5) == Stop::masked);
  }
}

TEST_CASE("look: the paths of a query in CoPE, and of a key in CDAPE, have their names") {
  const auto names = [](const std::string& scheme, const std::string& of) {
    const Subject subject = subject_with(small(scheme), 7);
    std::vector<std::string> found;
    const Inspection inspection(subject);
    for (const PathsTo& to : inspection.paths())
      if (to.layer == 0 && to.name == of)
        for (const GradientPath& path : to.paths) found.push_back(name_of(path));
    return found;
  };
  CHECK(names("cope(p_max=3)", "q") ==
        std::vector<std::string>{"content", "position_logit > z", "position_logit > positions > gates > gate_logits"});
  CHECK(
      names("cdape(alibi, width=3)", "k") == std::vector<std::string>{"content", "conv_bias > conv_hidden > conv_in"});
}

TEST_CASE("look: predictions are the softmax of the logits, and their losses make the loss") {
  Subject subject = subject_with(small("rope"), 7);
  const Tensor pattern = softmax((*subject.model)(subject.tokens));
  const auto [loss, logits] = subject.pass();
  double sum = 0;
  for (index_t t = 0; t < 7; ++t) {
    const Prediction found = subject.predictions(logits).at(static_cast<std::size_t>(t)).value();
    sum += found.loss;
    REQUIRE(found.likeliest.size() == 4);
    for (const Prediction::Answer& each : found.likeliest)
      CHECK(each.probability == doctest::Approx(pattern.at({0, t, each.text[0] - 'a'})).epsilon(1e-12));
    CHECK(std::ranges::is_sorted(found.likeliest, std::greater{}, &Prediction::Answer::probability));
    CHECK(found.wanted.text[0] - 'a' == subject.targets.at({0, t}));
    CHECK(found.loss == doctest::Approx(-std::log(pattern.at({0, t, found.wanted.text[0] - 'a'}))).epsilon(1e-12));
  }
  CHECK(sum / 7 == doctest::Approx(loss.item()).epsilon(1e-12));
  subject.answers[3] = std::nullopt;
  CHECK_FALSE(subject.predictions(logits)[3]);
}

TEST_CASE("look: the page holds the numbers, and text cannot break out of it") {
  Subject subject = subject_with(small("cope(p_max=3)"), 7);
  subject.texts[2] = "</script><b>&\x01";
  subject.texts[3] = "\xD7\xA9\xF0\x9F\x98\x80\xFF";
  const Inspection inspection(subject);
  const std::string page = page_of(inspection);
  CHECK(page.find("</script><b>") == std::string::npos);
  PageNumbers numbers;
  const nlohmann::json data = test::json_of(look::json_of(inspection, numbers).line());
  CHECK(data.at("tokens").size() == 7);
  const nlohmann::json& quantities = data.at("quantities");
  REQUIRE(quantities.size() == 14);
  for (const nlohmann::json& quantity : quantities) CHECK(quantity.at("layers").size() == 2);
  CHECK(quantities[1].at("name").get<std::string>() == "gates");  // those of the scheme come first
  CHECK(quantities[2].at("marks").at(0).at("value").get<double>() == 3);
}

TEST_CASE("look: the graph shows what backward never reaches, and no two of its boxes overlap") {
  for_every_scheme({true}, [](const Subject& subject, const std::string& text, bool) {
    const Graph graph = graph_of(Inspection(subject));
    std::set<std::tuple<index_t, std::size_t, std::size_t>> modules, groups;  // each folded, or unfolded
    std::set<std::size_t> seen_modules, seen_groups;
    for (const Graph::Node& node : graph.nodes) {
      for (auto& [box, places, seen] :
          {std::tuple{node.box, &modules, &seen_modules}, {node.group, &groups, &seen_groups}}) {
        const Graph::Box& place = graph.boxes.at(box);
        const index_t row = node.kind == Graph::Kind::loss ? 99 : place.layer;
        if (seen->insert(box).second) CHECK_MESSAGE(places->emplace(row, place.column, place.lane).second, place.id);
      }
      if (node.id.ends_with("attention.position.bias") && text == "alibi") CHECK_FALSE(node.reached);
      if (node.id.ends_with("attention.pattern")) CHECK(node.reached);
    }
  });
}

TEST_CASE("look: the command, on a run of train") {
  const Scratch scratch("look");
  const std::string run = scratch / "run";
  train_flip_flop(run, "--steps 8 --keep-checkpoints 0");
  (void)done("look --checkpoints 3 " + run);
  says(text_of(run + "/look.html"), {R"("label":"step 0")", R"("label":"step 4")", R"("label":"step 8")"});
  (void)done("look --numbers " + run);
  CHECK(has(text_of(run + "/look.html"), "look-data"));
  CHECK(read_safetensors(run + "/look.safetensors").tensors.size() == 76);
  CHECK(has(done("look --causes --step 2 " + run).out, "position.gates"));
  std::ofstream(scratch / "text") << std::string(2000, 'a') << " \x1b[31mb \u202e";
  (void)done("train lm --data " + scratch / "text" + " --out " + scratch / "lm" +
             " --steps 2 --length 8 --dim 8 --layers 1 --heads 2 --batch 2 --evaluate-to 1 --quiet");
  for (const Arguments& asked : {Arguments{"--causes"}, Arguments{"--explain", "logits layer=0 head=0 i=1 j=0"}}) {
    const Outcome said = done("look", Arguments{scratch / "lm", "--prompt", "\x1b[31mab\u202e"} + asked);
    for (const char* raw : {"\x1b", "\u202e"}) CHECK_FALSE(has(said.out, raw));
  }
  CHECK(has(done("look --dtype f64 --explain 'dLoss/dgates layer=0 head=1 i=9 j=4' " + run).out,
      "dLoss/d blocks.0.attention.position.positions"));
}

TEST_CASE("look: an edit's prediction is exact where the loss is linear in it, and what cannot be read is refused") {
  const Subject subject = subject_with(small("cope(p_max=3)"), 7);
  const Inspection inspection(subject);
  for (const std::string path :
      {"gates head=1", "blocks.1.attention.scores", "blocks.0.attention.position.table 0=2"}) {
    CAPTURE(path);
    const EditOutcome nothing = outcome_of(inspection, path + " *= 1");
    CHECK(nothing.predicted == 0);
    CHECK(nothing.real == 0);
    // A step so small that the loss is linear: the error of the gradient's prediction is of second order.
    const EditOutcome small_step = outcome_of(inspection, path + " *= 1.000001");
    const double predicted = small_step.predicted.value();
    CHECK(std::abs(small_step.real - predicted) < 1e-4 * std::abs(predicted) + 1e-13);
  }
  const double before = subject.pass().loss.item();
  CHECK(outcome_of(inspection, "blocks.0.attention.position.table 0=0..3 = 0").real != 0);
  CHECK(subject.pass().loss.item() == before);                                // the parameter is as it was
  for (const PathsTo& to : inspection.paths()) CHECK(to.difference < 1e-12);  // and the graph too
  for (const auto& refusal :
      std::vector<std::pair<std::string, std::string>>{{"gates", "= NUMBER"}, {"= 0", "= NUMBER"},
          {"gate = 0", "'gate' in"}, {"gates head=1 junk = 0", "one name"}, {"scores head=0 head=1 = 0", "head given"},
          {"scores n=1 = 0", "n given"}, {"scores head=2 = 0", "head=2 given"}, {"scores i=5..3 = 0", "i=5..3"},
          {"dLoss/dgates = 0", "a gradient"}}) {
    CAPTURE(refusal.first);
    const std::string text = error_text([&] { (void)outcome_of(inspection, refusal.first); });
    CHECK_MESSAGE(has(text, refusal.second), text);
  }
}

TEST_CASE("look: an edit replaces a number that is NaN") {
  const Subject subject = subject_with(small("alibi"), 7);
  for (const Module::Parameter& each : subject.model->parameters())
    if (each.path == "blocks.0.attention.output.weight") each.tensor.data<double>()[0] = std::nan("");
  const Inspection inspection(subject);
  const auto sum_of_scores = [&](const std::string& edit) {
    const auto values = pass_with(inspection, "blocks.0.attention.output.weight " + edit).values;
    return sum(values.at("blocks.1.attention.scores")).item();
  };
  CHECK(std::isnan(sum_of_scores("*= 1")));
  CHECK(std::isfinite(sum_of_scores("= 0")));
}

TEST_CASE("look: an edit of a gradient changes those of the parameters behind it alone, and the subject stays") {
  const Subject subject = subject_with(small("cope(p_max=4)"), 7, false);
  const Inspection inspection(subject);
  const std::string q = "blocks.0.attention.query.weight", k = "blocks.0.attention.key.weight",
                    last = "blocks.1.mlp.out.weight";
  const auto changed = [&](const std::string& edit) {
    std::map<std::string, std::pair<double, double>> norms;
    for (const GradientOutcome& each : gradients_with(inspection, edit))
      norms[each.parameter] = {each.before, each.after};
    return norms;
  };
  const auto halved = changed("dLoss/dk layer=0 *= 0.5");
  REQUIRE(halved.contains(k));
  CHECK(halved.at(k).second == doctest::Approx(halved.at(k).first / 2));
  CHECK_FALSE(halved.contains(q));
  CHECK_FALSE(halved.contains(last));
  const auto stopped = changed("dLoss/dk layer=0 = 0");
  CHECK(stopped.at(k).second == 0);
  CHECK(changed("dLoss/dk layer=0 head=0 *= 1").empty());
  const auto one_head = changed("dLoss/dk layer=0 head=1 *= 0").at(k);
  CHECK((one_head.second > 0 && one_head.second < one_head.first));
  CHECK(changed("dLoss/dk layer=0 = 0") == stopped);  // nothing was left behind
  CHECK(is_of_gradient(" dLoss/dk = 0"));
  CHECK_FALSE(is_of_gradient("k = 0"));
  CHECK_FALSE(error_text([&] { (void)gradients_with(inspection, "dLoss/d" + k + " = 0"); }).empty());
}

TEST_CASE("look: a page that would be too large is refused with the length that fits") {
  const Subject subject = subject_with(small("cope(p_max=3)"), 250);
  const std::string text = error_text([&] { (void)page_of(Inspection(subject)); });
  CHECK_MESSAGE(has(text, "250 tokens"), text);
  const std::size_t at = text.find("--length ");
  REQUIRE(at != std::string::npos);
  const Subject shorter = subject_with(small("cope(p_max=3)"), std::stoll(text.substr(at + 9)));
  CHECK(page_of(Inspection(shorter)).size() < most_bytes);
  const Subject longer = subject_with(small("cope(p_max=3)"), shorter.tokens.numel() + 1);
  CHECK_THROWS_AS(require_small_page(longer, 0), InputError);
  const Subject few = subject_with(small("cope(p_max=3)"), 64);
  const std::string runs = error_text([&] { require_small_page(few, 40); });
  const std::size_t fitting = runs.find(" fits, or ");
  REQUIRE_MESSAGE(fitting != std::string::npos, runs);
  CHECK_NOTHROW(require_small_page(few, std::stoul(runs.substr(fitting + 10))));
}

TEST_CASE("look: bytes as a browser inflates them, and equal arrays once") {
  PageNumbers numbers;
  const std::vector<std::uint8_t> some{1, 2, 3}, other{3, 2, 1};
  CHECK(numbers.add(some).whole("at") == 0);
  CHECK(numbers.add(other).whole("at") == 8);
  CHECK(numbers.add(some).whole("at") == 0);
  // One block of fixed codes, RFC 1951; tests/examples/look/page.py inflates whole pages.
  CHECK(report::deflated({}) == std::vector<std::uint8_t>{0x03, 0x00});
  CHECK(report::deflated(std::vector<std::uint8_t>{'a'}) == std::vector<std::uint8_t>{0x4B, 0x04, 0x00});
}

TEST_CASE("look: what a pass takes is said before it is made, and one that cannot fit is refused with a length") {
  const Subject subject = subject_with(small("cope(p_max=3)"), 32);
  CHECK(has(require_memory(subject), "32 tokens"));
  const Outcome refused = ran("look alibi --length 1000000 --causes");
  CHECK(refused.code == 5);
  const auto length = all_matches(refused.err, "1000000 tokens.*; --length (\\d+)");
  REQUIRE_MESSAGE(length.size() == 1, refused.err);
  CHECK(std::stoll(length[0][1]) < 100000);
}
