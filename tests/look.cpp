// `whence look`: every scheme's quantities are known, its ways add up, its zeros have reasons; and the command.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "autograd/backward.h"
#include "autograd/ops.h"
#include "examples/app/text.h"
#include "examples/look/history.h"
#include "examples/look/measures.h"
#include "examples/look/page.h"
#include "examples/look/written.h"
#include "examples/verify/bare_attention.h"
#include "examples/verify/scheme_texts.h"
#include "nn/io/safetensors.h"
#include "tests/look_subjects.h"
#include "tests/program_run.h"
#include "tests/scratch.h"

using namespace whence;
using namespace whence::look;
using namespace whence::test;

namespace {

void check_quantities(const Inspection& inspection) {
  for (const Quantity& quantity : inspection.quantities()) {
    if (quantity.path.find(".attention.") == std::string::npos) continue;
    CAPTURE(quantity.path);
    REQUIRE(quantity.probe != nullptr);
    CHECK(static_cast<int>((quantity.probe->axes.size() + 1) / 2) == quantity.value.rank());
    CHECK_FALSE(quantity.probe->caption.empty());
    CHECK(quantity.reasons.size() == static_cast<std::size_t>(quantity.value.numel()));
  }
}

// What is exactly 0 has a reason, and what has one is 0 or next to it.
void check_reasons(const Inspection& inspection) {
  for (const std::vector<Quantity>* all : {&inspection.quantities(), &inspection.parameters()}) {
    for (const Quantity& quantity : *all) {
      if (!quantity.gradient.defined()) continue;
      CAPTURE(quantity.path);
      const std::vector<double> numbers = quantity.gradient.to_vector();
      double size = 0;
      for (const double number : numbers) size = std::max(size, std::abs(number));
      for (std::size_t e = 0; e < numbers.size(); ++e) {
        const Stop stop = inspection.reasons()[quantity.reasons[e]].stop;
        if (numbers[e] == 0) CHECK(stop != Stop::nothing);
        const bool channels = quantity.probe && quantity.probe->axes.starts_with("b c");
        if (stop != Stop::nothing && (stop != Stop::masked || channels) && !vanishes(stop))
          CHECK(std::abs(numbers[e]) <= 1e-10 * std::max(size, 1e-3));
      }
    }
  }
}

}  // namespace

TEST_CASE("look: of every scheme, quantities are described, ways add up and zeros have reasons") {
  for (const std::string& text : promised_texts()) {
    for (const bool causal : {true, false}) {
      const std::optional<Subject> subject = subject_of_scheme(text, causal);
      if (!subject) continue;
      CAPTURE(text);
      CAPTURE(causal);
      const Inspection inspection(*subject);
      check_quantities(inspection);
      check_reasons(inspection);
      for (const WaysTo& to : inspection.ways()) {
        CAPTURE(to.name);
        CHECK(to.difference < 1e-12);
      }
    }
  }
}

TEST_CASE("look: one gradient and one number of every scheme, worked out") {
  for (const std::string& text : promised_texts()) {
    const std::optional<Subject> subject = subject_of_scheme(text, true);
    if (!subject) continue;
    CAPTURE(text);
    const Inspection inspection(*subject);
    for (const Quantity& quantity : inspection.quantities()) {
      if (quantity.layer != 0 || !quantity.gradient.defined()) continue;
      CAPTURE(quantity.path);
      Shape last = quantity.value.shape();
      for (int axis = 0; axis < last.rank(); ++axis) --last[axis];
      const ExplainedGradient found = inspection.explain_gradient(quantity.path, last);
      CHECK(std::abs(found.sum - found.gradient) < 1e-12);
      const Contribution number = inspection.explain_value(quantity.path, last);
      CHECK(number.value == quantity.value.to_vector().back());
      CHECK_FALSE(number.op.empty());
    }
  }
}

TEST_CASE("look: CoPE before training has no gradient in its gates but by a table that is zero") {
  const Subject subject = subject_with(small("cope(p_max=4)"), 7, false);
  const Inspection inspection(subject);
  bool seen = false;
  for (const Quantity& quantity : inspection.quantities()) {
    if (quantity.name != "position.gates") continue;
    seen = true;
    for (const unsigned char code : quantity.reasons) {
      const Stop stop = inspection.reasons()[code].stop;
      CAPTURE(std::string(to_string(stop)));  // sole: a row of one key
      CHECK((stop == Stop::flat || stop == Stop::masked || stop == Stop::sole));
    }
  }
  CHECK(seen);
}

TEST_CASE("look: constants, and channels of keys to come, are what they are") {
  const Subject alibi = subject_with(small("alibi"), 7);
  const Inspection plain(alibi);
  CHECK(explained(plain, "bias layer=0 head=1 i=3 j=1").find("a constant") != std::string::npos);
  CHECK_FALSE(outcome_of(plain, edit_of("blocks.0.attention.position.bias = 0")).predicted.has_value());
  // Row i knows a hidden column behind key i, which feeds key i (nn/README.md, C2): it has a gradient, and lives.
  const Subject cdape = subject_with(small("cdape(alibi, width=3)"), 7);
  const Inspection inspection(cdape);
  for (const Quantity& quantity : inspection.quantities()) {
    if (quantity.name != "position.conv_hidden" || quantity.layer != 0) continue;
    const auto stop_at = [&](index_t i, index_t j) {
      return inspection.reasons()[quantity.reasons[static_cast<std::size_t>(i * 7 + j)]].stop;
    };
    CHECK((stop_at(3, 4) == Stop::nothing || stop_at(3, 4) == Stop::leaking));
    CHECK(stop_at(3, 5) == Stop::masked);
  }
}

TEST_CASE("look: the ways of a query in CoPE, and of a key in CDAPE, have their names") {
  const auto names = [](const std::string& scheme, const std::string& of) {
    const Subject subject = subject_with(small(scheme), 7);
    std::vector<std::string> found;
    const Inspection inspection(subject);
    for (const WaysTo& to : inspection.ways())
      if (to.layer == 0 && to.name == of)
        for (const Way& way : to.ways) found.push_back(name_of(way));
    return found;
  };
  CHECK(names("cope(p_max=3)", "q") ==
        std::vector<std::string>{"content", "position_logit > z", "position_logit > positions > gates > gate_logits"});
  const std::vector<std::string> taps = names("cdape(alibi, width=3)", "k");
  CHECK(taps.size() == 10);  // content, and three taps by three
  CHECK(taps[0] == "content");
  CHECK(taps[1] == "conv_bias > tap j+0 > conv_hidden > tap j+0 > conv_in");
}

TEST_CASE("look: the page holds the numbers, and text cannot break out of it") {
  Subject subject = subject_with(small("cope(p_max=3)"), 7);
  subject.texts[2] = "</script><b>&\x01";
  subject.texts[3] = "\xD7\xA9\xF0\x9F\x98\x80\xFF";
  const Inspection inspection(subject);
  const std::string page = page_of(inspection);
  CHECK(page.find("</script><b>") == std::string::npos);
  const nlohmann::json data = nlohmann::json::parse(json_of(inspection));
  CHECK(data["tokens"].size() == 7);
  CHECK(data["quantities"].size() == 13);
  for (const auto& quantity : data["quantities"]) CHECK(quantity["layers"].size() == 2);
  CHECK(data["quantities"][1]["name"] == "gates");  // those of the scheme come first
  CHECK(data["quantities"][2]["marks"][0]["value"] == 3);
}

TEST_CASE("look: a model of one token and one head") {
  TransformerOptions options = small("cdape(kerple, width=3)");
  options.heads = 1;
  const Subject subject = subject_with(options, 1);
  const Inspection inspection(subject);
  check_quantities(inspection);
  check_reasons(inspection);
  CHECK_FALSE(page_of(inspection).empty());
}

TEST_CASE("look: the command, on a run of train") {
  const Scratch scratch("look");
  const std::string run = scratch / "run";
  const auto look = [&](std::vector<std::string> arguments) {
    return RunningProgram("look", arguments, scratch / "log").finish();
  };
  const auto train = [&](const std::string& out, const std::string& look_every) {
    const Outcome trained = RunningProgram("train",
        {"flip_flop", "--scheme", "cope", "--length", "16", "--dim", "8", "--layers", "1", "--heads", "2", "--steps",
            "4", "--batch", "2", "--test-sequences", "2", "--save-every", "2", "--look-every", look_every, "--quiet",
            "--out", out},
        scratch / "train")
                                .finish();
    REQUIRE_MESSAGE(trained.code == 0, trained.err);
  };
  train(run, "2");
  train(scratch / "not looked at", "0");
  CHECK(text_of(run + "/weights.safetensors") == text_of(scratch / "not looked at/weights.safetensors"));
  CHECK_FALSE(std::filesystem::exists(scratch / "not looked at/looks.jsonl"));

  const Outcome page = look({run, "--numbers"});
  REQUIRE_MESSAGE(page.code == 0, page.err);
  CHECK(text_of(run + "/look.html").find("look-data") != std::string::npos);
  CHECK(read_safetensors(run + "/look.safetensors").tensors.size() > 20);
  CHECK(text_of(run + "/look.causes.csv").starts_with("layer,quantity,head,entries,zero %"));

  const Outcome causes = look({run, "--causes", "--step", "2"});
  CHECK(causes.code == 0);
  CHECK(causes.out.find("position.gates") != std::string::npos);
  const Outcome number = look({run, "--explain", "dLoss/dgates layer=0 head=1 i=9 j=4", "--dtype", "f64"});
  CHECK(number.code == 0);
  CHECK(number.out.find("dLoss/d blocks.0.attention.position.positions") != std::string::npos);

  const Outcome read = look({run, "--read", "gates head=1 i=9"});
  CHECK(read.code == 0);
  CHECK(read.out.find("0 to 9 below a token") != std::string::npos);
  CHECK(read.out.find('\x1b') == std::string::npos);  // a file is no terminal

  for (const auto& refusal : std::vector<std::pair<std::vector<std::string>, std::string>>{{{}, "0 runs given"},
           {{scratch / "none"}, "no folder, and no scheme either"}, {{run, "--step", "3"}, "--step: 3 given"},
           {{run, "--text", run}, "--text: given with a run of flip_flop"},
           {{run, "--explain", "gates i=1"}, "no head given"}, {{run, "--explain", "gate"}, "'gate' in layer 0 given"},
           {{run, "--explain", "gates head=0 i=99 j=0"}, "i=99 given"},
           {{run, "--explain", "gates layer=1"}, "layer=1 given"},
           {{run, "--explain", "gates i=1 i=2"}, "i given twice"},
           {{std::string(300, 'a')}, "no folder, and no scheme either"}, {{run, "--causes", "--out", "x"}, "--out"}}) {
    CAPTURE(refusal.second);
    const Outcome refused = look(refusal.first);
    CHECK(refused.code == 2);
    CHECK_MESSAGE(refused.err.find(refusal.second) != std::string::npos, refused.err);
  }
}

TEST_CASE("look: a run that is damaged or of another version is refused with the reason, and nothing is written") {
  namespace fs = std::filesystem;
  const Scratch scratch("damaged");
  const fs::path run = scratch / "run", weights = run / "weights.safetensors", record = run / "run.json",
                 state = run / "checkpoints/step-000002/state.json", old = state.parent_path() / "weights.safetensors";
  const Outcome trained = RunningProgram("train",
      {"flip_flop", "--scheme", "cope", "--length", "16", "--dim", "8", "--layers", "1", "--heads", "2", "--steps", "4",
          "--batch", "2", "--test-sequences", "2", "--save-every", "2", "--quiet", "--out", run},
      scratch / "train")
                              .finish();
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  const auto write = [](const fs::path& file, const std::string& bytes) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
  };
  const auto replaced = [](std::string text, const std::string& what, const std::string& by) {
    const std::size_t at = text.find(what);
    REQUIRE(at != std::string::npos);
    return text.replace(at, what.size(), by);
  };
  const auto files = [&] {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::recursive_directory_iterator(run))
      if (entry.is_regular_file()) all[entry.path()] = text_of(entry.path());
    return all;
  };
  const std::string whole = text_of(weights), said = text_of(record), then = text_of(state);
  SafetensorsFile content = read_safetensors(weights);
  const auto with = [&](const std::function<void(SafetensorsFile&)>& change) {
    SafetensorsFile other = content;
    change(other);
    const std::string place = scratch / "other";
    write_safetensors(place, other);
    return text_of(place);
  };
  const std::string first = content.tensors[0].first;
  struct Damage {
    fs::path file;
    std::string bytes, reason;
    std::vector<std::string> arguments = {};
  };
  const std::vector<std::string> step{"--step", "2"};
  for (const Damage& damage : std::vector<Damage>{{weights, "", "0 bytes; 8 bytes of header length"},
           {weights, whole.substr(0, whole.size() - 5), "safetensors"},
           {weights, whole.substr(0, 20), "is the file cut off?"},
           {weights, replaced(whole, "{\"", "{\xFF"), "safetensors"},
           {weights, replaced(whole, "F32", "F99"), "safetensors"},
           {weights, std::string(8, '\xFF') + whole.substr(8), "header length at byte 0"},
           {weights, replaced(whole, "data_offsets\":[", "data_offsets\":[9"), "safetensors"},
           {weights, with([](SafetensorsFile& file) { file.tensors[0].second = Tensor::ones({3}); }),
               first + " is f32 [3]"},
           {weights, with([](SafetensorsFile& file) { file.tensors.erase(file.tensors.begin()); }), "lacks " + first},
           {weights, with([](SafetensorsFile& file) { file.tensors.emplace_back("more", Tensor::ones({3})); }),
               "has more [3]"},
           {weights, with([](SafetensorsFile& file) {
              file.tensors[0].second = Tensor::full(file.tensors[0].second.shape(), std::nan(""));
            }),
               first + " holds NaN or infinity"},
           {record, "", "no record of a run"}, {record, said.substr(0, said.size() / 2), "no record of a run"},
           {record, "[1, 2]", "no record of a run"},
           {record, replaced(said, "\"version\": \"", "\"version\": \"9"), "is of version 90.1.0"},
           {record, replaced(said, "flip_flop", "flop_flip"), "flop_flip"},
           {record, replaced(said, "\"dim\": 8", "\"dim\": -8"), "--dim: -8 given"},
           {record, replaced(said, "\"dim\": 8", "\"dim\": 16"), "does not fit"},
           {record, replaced(said, "\"scheme\": \"cope\"", "\"scheme\": \"hope\""), "hope"},
           {record, replaced(said, "\"heads\": 2", "\"heads\": 3"), "3"},
           {state, replaced(then, "\"format\": ", "\"format\": 9"), "this build reads format", step},
           {state, "", "is no JSON object", step}, {old, whole.substr(0, 100), "safetensors", step},
           {old, whole, "is not of step 2", step}}) {
    CAPTURE(damage.file.string());
    CAPTURE(damage.reason);
    const std::string before = text_of(damage.file);
    REQUIRE(before != damage.bytes);
    write(damage.file, damage.bytes);
    const auto kept = files();
    for (const std::vector<std::string>& kind : {std::vector<std::string>{"--numbers"}, {"--causes"}}) {
      std::vector<std::string> arguments{run};
      for (const auto* more : {&damage.arguments, &kind}) arguments.insert(arguments.end(), more->begin(), more->end());
      const Outcome refused = RunningProgram("look", arguments, scratch / "log").finish();
      CHECK(refused.code == 2);
      CHECK_MESSAGE(refused.err.find(damage.reason) != std::string::npos, refused.err);
      const bool named = refused.err.find(damage.file.string()) != std::string::npos ||
                         refused.err.find(damage.file.parent_path().string() + ": ") != std::string::npos ||
                         (damage.file == record && refused.err.find(weights.string()) != std::string::npos);
      CHECK_MESSAGE(named, refused.err);
      CHECK(std::ranges::count(refused.err, '\n') == 1);
      CHECK(refused.out.empty());
      CHECK(files() == kept);
    }
    write(damage.file, before);
  }
  CHECK(RunningProgram("look", {run, "--causes"}, scratch / "log").finish().code == 0);
  CHECK(RunningProgram("look", {run, "--causes", "--step", "2"}, scratch / "log").finish().code == 0);
}

TEST_CASE("look: an edit's prediction is exact where the loss is linear in it, and what cannot be read is refused") {
  const Subject subject = subject_with(small("cope(p_max=3)"), 7);
  const Inspection inspection(subject);
  for (const std::string path : {"blocks.0.attention.position.gates[h=1]", "blocks.1.attention.scores",
           "blocks.0.attention.position.table[0=2]"}) {
    CAPTURE(path);
    const EditOutcome nothing = outcome_of(inspection, edit_of(path + " *= 1"));
    CHECK(nothing.predicted == 0);
    CHECK(nothing.real == 0);
    // So small that the loss is a straight line: the gradient tells the change to its own square.
    const EditOutcome small_step = outcome_of(inspection, edit_of(path + " *= 1.000001"));
    const double predicted = small_step.predicted.value();
    CHECK(std::abs(small_step.real - predicted) < 1e-4 * std::abs(predicted) + 1e-13);
  }
  const double before = subject.loss().item();
  CHECK(outcome_of(inspection, edit_of("blocks.0.attention.position.table[0=0..3] = 0")).real != 0);
  CHECK(subject.loss().item() == before);                                   // the parameter is as it was
  for (const WaysTo& to : inspection.ways()) CHECK(to.difference < 1e-12);  // and the graph too
  const std::vector<EditOutcome> strongest = strongest_edits(inspection, 5);
  REQUIRE(strongest.size() == 5);
  for (std::size_t k = 1; k < strongest.size(); ++k)
    CHECK(std::abs(strongest[k - 1].real) >= std::abs(strongest[k].real));
  for (const auto& refusal :
      std::vector<std::pair<std::string, std::string>>{{"gates", "= NUMBER"}, {"gates[h=1 = 0", "a ']' behind the '['"},
          {"gates[h] = 0", "AXIS=NUMBER"}, {"gates[=1] = 0", "AXIS=NUMBER"}, {"gates[h=1] junk = 0", "behind the ']'"},
          {"blocks.0.attention.scores[h=0,h=1] = 0", "given twice"}, {"gates = x", "a number behind"},
          {"gates = 0", "'gates' given"}, {"blocks.0.attention.scores[n=1] = 0", "axis n given"},
          {"blocks.0.attention.scores[h=2] = 0", "h=2..2 given"}}) {
    CAPTURE(refusal.first);
    const std::string text = error_text([&] { (void)outcome_of(inspection, edit_of(refusal.first)); });
    CHECK_MESSAGE(text.find(refusal.second) != std::string::npos, text);
  }
}

TEST_CASE("look: the history of a training, as it is kept and as it is drawn") {
  const Scratch scratch("history");
  const Subject subject = subject_with(small("cope(p_max=4)"), 7, false);
  {
    JsonLog log(scratch / history_file, JsonLog::Mode::fresh);
    const auto look = looks_at(*subject.model, subject.tokens, subject.targets);
    for (const std::int64_t step : {0, 10}) {
      const TrainingJob::Look found = look(step);
      for (const LogRecord& record : found.records) log.append(record);
      CHECK_MESSAGE(found.line.find("gates 96 % table flat, 4 % all weight") != std::string::npos, found.line);
    }
  }
  const std::vector<report::Plot> plots = history_of(scratch / history_file);
  for (const auto& expected : std::vector<std::pair<std::string, std::size_t>>{
           {"loss", 1}, {"gradient norm", 3}, {"% of gates at 0 or 1", 2}, {"% of positions at p_max", 2}}) {
    CAPTURE(expected.first);
    const auto plot = std::ranges::find(plots, expected.first, &report::Plot::title);
    REQUIRE(plot != plots.end());
    CHECK(plot->curves.size() == expected.second);
    CHECK(plot->curves[0].x == std::vector<double>{0, 10});
  }
  const auto gates = std::ranges::find_if(
      plots, [](const report::Plot& plot) { return plot.title.find("position.gates") != std::string::npos; });
  REQUIRE(gates != plots.end());
  const auto flat = std::ranges::find(gates->curves, "table flat", &report::Curve::name);
  REQUIRE(flat != gates->curves.end());
  CHECK(flat->x == std::vector<double>{0, 10});
  CHECK(flat->y[0] > 90);  // all but the rows of one key
  CHECK(history_of(scratch / "none").empty());
  std::ofstream(scratch / history_file, std::ios::app) << "{\"step\": 20, \"lay";  // a crash in the middle of a line
  CHECK(history_of(scratch / history_file).size() == plots.size());
  // Kept by a version that knew reasons alone, and a number that was not finite.
  std::ofstream(scratch / "older")
      << R"({"step": 1, "layer": 0, "quantity": "position.gates", "head": 1, "entries": 9, "clamped": 3})" << '\n'
      << R"({"step": 1, "measure": "loss", "of": "this sequence", "value": null})" << '\n';
  REQUIRE(history_of(scratch / "older").size() == 2);
  CHECK(std::isnan(history_of(scratch / "older")[0].curves.at(0).y.at(0)));
  std::ofstream(scratch / "damaged") << "{\"step\": 1}\n";
  CHECK(error_text([&] { (void)history_of(scratch / "damaged"); }).find("line 1: no record of a look") !=
        std::string::npos);
}

TEST_CASE("look: gradient norms by layer, gates at their ends and positions at their bound") {
  const Subject subject = subject_with(small("cope(p_max=1)"), 7);
  // Gates of the first layer are 1, 0 or 0.5, so that what they add up to is known.
  Capture capture("*");
  capture.edit("blocks.0.attention.position.gate_logits", [](const Tensor& before) {
    std::vector<double> numbers = before.to_vector();
    for (std::size_t e = 0; e < numbers.size(); ++e) numbers[e] = e % 7 == 0 ? 40 : e % 7 == 1 ? -40 : 0;
    return Tensor::of(numbers, before.shape(), before.dtype());
  });
  const Inspection inspection(subject);
  const std::vector<Measure> measures = measures_of(inspection);
  const auto value_of = [&](const std::string& what, const std::string& of) {
    const auto found =
        std::ranges::find_if(measures, [&](const Measure& each) { return each.what == what && each.of == of; });
    REQUIRE(found != measures.end());
    return found->value;
  };
  CHECK(value_of("loss", "this sequence") == inspection.loss());
  CHECK(value_of("gates", "layer 0") == doctest::Approx(100 * 13.0 / 28));  // columns 0 and 1, of 28 pairs
  double reached = 0;                                                       // p_ij = sum of g_il from j to i
  for (int i = 0; i < 7; ++i) {
    for (int j = 0; j <= i; ++j) {
      double sum = 0;
      for (int l = j; l <= i; ++l) sum += l == 0 ? 1 : l == 1 ? 0 : 0.5;
      reached += sum >= 1;
    }
  }
  CHECK(value_of("positions", "layer 0") == doctest::Approx(100 * reached / 28));
  double squares = 0, all = 0;
  for (const char* of : {"layer 0", "layer 1", "elsewhere"}) squares += std::pow(value_of("gradient norm", of), 2);
  for (const Quantity& parameter : inspection.parameters())
    for (const double number : parameter.gradient.to_vector()) all += number * number;
  CHECK(squares == doctest::Approx(all));
  CHECK(line_of({{"gradient norm", "", "layer 0", 0.5}, {"gradient norm", "", "layer 1", 0.25},
            {"gradient norm", "", "elsewhere", 2}, {"gates", "at 0 or 1", "layer 0", 10},
            {"gates", "at 0 or 1", "layer 1", 30}}) == "gradient norm 0.5 0.25, elsewhere 2, gates 20 % at 0 or 1");
  // No gates and no bound: nothing is said of them.
  const Subject plain = subject_with(small("rope"), 7);
  CHECK(line_of(measures_of(Inspection(plain))).find('%') == std::string::npos);
}

TEST_CASE("look: the text in a terminal, each token marked by what one query makes of it") {
  Subject subject = subject_with(small("cope(p_max=3)"), 7);
  subject.texts = {
      "one", " \x1b[2J", "\xE2\x80\xAE", "\xE6\xBC\xA2\xE5\xAD\x97", "\n", std::string(70, 'x'), "end\xFF"};
  Capture capture("*");
  capture.edit("blocks.1.attention.logits", [](const Tensor& logits) {
    std::vector<double> numbers(static_cast<std::size_t>(logits.numel()));
    for (std::size_t e = 0; e < numbers.size(); ++e) numbers[e] = std::log(static_cast<double>(e % 7) + 1e-3);
    return Tensor::of(numbers, logits.shape(), logits.dtype());
  });
  const Inspection inspection(subject);
  const std::string what = "pattern layer=1 head=1 i=5";
  const std::string text = text_read(inspection, what, {.columns = 40});
  // Row 5 goes up in proportion to the key: 0, 2, 4, 5, 7 and 9 of nine parts; token 6 is hidden.
  CHECK_MESSAGE(text.find("one \\x1b[2J<U+202E>\xE6\xBC\xA2\xE5\xAD\x97\\n\n"
                          "0  2       4       5   7\n" +
                          std::string(40, 'x') + "\n9\n" + std::string(30, 'x') + "end<FF>\n9" + std::string(29, ' ') +
                          ".\n") != std::string::npos,
      text);
  CHECK(text.find("blocks.1.attention.pattern[0,1,5,all], query 5 ") != std::string::npos);
  CHECK(text.find("0 to 9 below a token: 0 to 0.3333; .: masked") != std::string::npos);
  for (const char* raw : {"\x1b", "\xE2\x80\xAE", "\xFF"}) CHECK(text.find(raw) == std::string::npos);
  std::istringstream lines(text.substr(text.find("\n\n") + 2));
  std::size_t shown = 0;
  for (std::string line; std::getline(lines, line) && !line.empty(); ++shown) CHECK(display_width(line) <= 40);
  CHECK(shown == 6);
  // The strongest first: keys 5 down to 0.
  std::vector<std::string> keys;
  for (std::string line; std::getline(lines, line);) keys.push_back(line.substr(0, 1));
  CHECK(keys == std::vector<std::string>{"j", "-", "5", "4", "3", "2", "1", "0"});

  const std::string colours = text_read(inspection, what, {.columns = 40, .colours = true});
  CHECK(colours.find("one\x1b[38;2;0;0;0;48;2;255;") != std::string::npos);  // nothing of the first token
  CHECK(colours.find("\\x1b[2J\x1b[0m") != std::string::npos);
  CHECK(colours.find("\x1b[2J") == std::string::npos);
  // Gradients have either sign: their marks are what the numbers say.
  for (const Quantity& quantity : inspection.quantities()) {
    if (quantity.path != "blocks.0.attention.position.gates") continue;
    const std::vector<double> all = quantity.gradient.to_vector();
    const std::vector<double> row(all.begin() + 49 + 35, all.begin() + 49 + 35 + 6);  // head 1, query 5
    double most = 0;
    for (const double number : row) most = std::max(most, std::abs(number));
    subject.texts.assign(7, "a");
    std::string marks;
    for (const double number : row) {
      const auto level = static_cast<int>(std::lround(9 * number / most));
      marks += level < 0 ? "abcdefghi"[-level - 1] : "0123456789"[level];
    }
    CHECK(marks.find_first_of("abcdefghi") != std::string::npos);
    const std::string gradient = text_read(inspection, "dLoss/dgates head=1 i=5", {.columns = 80});
    CHECK_MESSAGE(gradient.find("\naaaaaaa\n" + marks + ".\n") != std::string::npos, gradient);
  }
  const Subject alibi = subject_with(small("alibi"), 7);
  const Inspection plain(alibi);
  for (const auto& refusal : std::vector<std::pair<std::string, std::string>>{
           {"q head=1 i=3", "has axes b h i d; a quantity of pairs required"}, {"pattern head=1", "no i given"},
           {"pattern head=1 i=3 j=2", "j given; all of them are meant"}, {"pattern head=1 i=9", "i=9 given"},
           {"gates i=1", "'gates' in layer 0 given"}, {"dLoss/dbias head=1 i=3", "which no gradient is taken of"}}) {
    CAPTURE(refusal.first);
    const std::string refused = error_text([&] { (void)text_read(plain, refusal.first, {}); });
    CHECK_MESSAGE(refused.find("--read: ") == 0, refused);
    CHECK_MESSAGE(refused.find(refusal.second) != std::string::npos, refused);
  }
}

namespace {

// The gradients of BareAttention with the parameters of `subject`, by "q", "k" and "v"; its loss under "".
std::map<std::string, Tensor> bare_gradients(const std::string& text, const Subject& subject) {
  const Given& given = *subject.given;
  const index_t heads = given.q.size(1), length = given.q.size(2), dim = heads * given.q.size(3);
  const BareAttention bare(text, {dim, heads, length});
  for (const Module::Parameter& parameter : bare.root().parameters()) {
    bool found = false;
    for (const Module::Parameter& other : subject.model->parameters()) {
      if (other.path != "position." + parameter.path && other.path != "blocks.0.attention.position." + parameter.path)
        continue;
      raw::copy_into(other.tensor.detach(), parameter.tensor);
      found = true;
    }
    REQUIRE(found);
  }
  const Tensor q = requires_grad(given.q.detach()), k = requires_grad(given.k.detach()),
               v = requires_grad(given.v.detach());
  const Tensor output =
      bare.run({q, k, v, given.x.defined() ? given.x.detach() : Tensor()}, {}, reference_executor()).output;
  const Tensor loss = sum(output * given.cotangent);
  const std::vector<Tensor> gradients = grad(loss, {}, {q, k, v}, {.allow_unused = true});
  return {{"", loss.detach()}, {"q", gradients[0]}, {"k", gradients[1]}, {"v", gradients[2]}};
}

}  // namespace

TEST_CASE("look: queries, keys and values that are given, under every scheme of attention") {
  const Scratch scratch("given");
  const std::string file = scratch / "qkv.safetensors";
  int compared = 0;
  for (const std::string& text : promised_texts()) {
    const BareAttention bare(text, {8, 2, 7});
    if (!bare.attends() || bare.embeds()) continue;
    CAPTURE(text);
    SafetensorsFile content{{{"q", normal({2, 7, 4}, 1)}, {"k", normal({1, 2, 7, 4}, 2)}, {"v", normal({2, 7, 4}, 3)},
                                {"cotangent", normal({2, 7, 4}, 4)}},
        {}};
    if (bare.reads_x()) content.tensors.emplace_back("x", normal({7, 8}, 5));
    write_safetensors(file, content);
    SubjectOptions options;
    options.run = text, options.given = file, options.dtype = DType::f64;
    const Subject subject = subject_of(options);
    const Inspection inspection(subject);
    for (const WaysTo& to : inspection.ways()) CHECK(to.difference < 1e-12);
    check_quantities(inspection);
    check_reasons(inspection);
    if (bare.claims().drawn_each_step) continue;  // by the scheme's path, which is another there
    const auto expected = bare_gradients(text, subject);
    CHECK(std::abs(inspection.loss() - expected.at("").item()) < 1e-12);
    for (const Quantity& quantity : inspection.quantities()) {
      if (quantity.name != "q" && quantity.name != "k" && quantity.name != "v") continue;
      CAPTURE(quantity.name);
      const Tensor& gradient = expected.at(quantity.name);
      CHECK(gradient.defined() == quantity.gradient.defined());
      if (!gradient.defined()) continue;
      CHECK(distance(quantity.gradient, gradient) < 1e-12);
      ++compared;
    }
  }
  CHECK(compared > 150);
}

TEST_CASE("look: what is given is refused where it does not fit, and looked at as a model is") {
  const Scratch scratch("given");
  const std::string file = scratch / "qkv.safetensors";
  const auto ones = [](const Shape& shape, DType dtype = DType::f32) { return Tensor::ones(shape, dtype); };
  using Tensors = std::vector<std::pair<std::string, Tensor>>;
  const Tensors good{{"q", ones({2, 7, 4})}, {"k", ones({2, 7, 4})}, {"v", ones({2, 7, 4})}};
  const auto with = [&](const std::string& name, const Tensor& tensor) {
    Tensors changed;
    for (const auto& each : good)
      if (each.first != name) changed.push_back(each);
    if (tensor.defined()) changed.emplace_back(name, tensor);
    return changed;
  };
  const auto look = [&](std::vector<std::string> arguments) {
    return RunningProgram("look", arguments, scratch / "log").finish();
  };
  Tensor infinite = ones({2, 7, 4});
  infinite.data<float>()[3] = std::numeric_limits<float>::infinity();
  for (const auto& refusal : std::vector<std::tuple<Tensors, std::string, std::string>>{
           {with("v", {}), "cope", "no tensor v"}, {with("k", ones({2, 6, 4})), "cope", "k is [1,2,6,4]"},
           {with("q", ones({7, 4})), "cope", "q is [7,4]; [heads, tokens, dims] required"},
           {with("q", ones({2, 2, 7, 4})), "cope", "q is [2,2,7,4]"},
           {with("v", ones({2, 7, 4}, DType::i64)), "cope", "v is i64; floating numbers required"},
           {with("v", infinite), "cope", "v holds NaN or infinity"}, {with("w", ones({1})), "cope", "a tensor w found"},
           {with("cotangent", ones({2, 7, 3})), "cope", "cotangent is [1,2,7,3]"},
           {with("x", ones({7, 7})), "cope", "x is [1,7,7]"}, {good, "forgetting", "no tensor x"},
           {good, "sinusoidal", "adds to x alone"}}) {
    CAPTURE(std::get<2>(refusal));
    write_safetensors(file, {std::get<0>(refusal), {}});
    const Outcome refused = look({std::get<1>(refusal), "--given", file, "--out", scratch / "refused.html"});
    CHECK(refused.code == 2);
    CHECK_MESSAGE(refused.err.find(std::get<2>(refusal)) != std::string::npos, refused.err);
    CHECK_FALSE(std::filesystem::exists(scratch / "refused.html"));
  }
  std::ofstream(scratch / "text") << "no tensors";
  CHECK(look({"cope", "--given", scratch / "text", "--causes"}).err.find("safetensors: ") != std::string::npos);
  CHECK(look({"cope", "--given", scratch / "none", "--causes"}).code == 2);

  Tensors drawn;
  for (const auto& [name, tensor] : good) drawn.emplace_back(name, normal({2, 7, 4}, drawn.size(), DType::f32));
  write_safetensors(file, {drawn, {}});
  CHECK(look({"cope", "--given", file, "--length", "3"}).err.find("--length") != std::string::npos);
  const Outcome page =
      look({"cope(p_max=3)", "--given", file, "--out", scratch / "look.html", "--beside", "alibi", "--edits", "2"});
  CHECK_MESSAGE(page.code == 0, page.err);
  CHECK(text_of(scratch / "look.html").find("look-beside") != std::string::npos);
  for (const char* what : {"--causes", "--ways"}) CHECK(look({"cope", "--given", file, what}).code == 0);
  const Outcome number = look({"cope", "--given", file, "--explain", "dLoss/doutput head=1 i=3 d=2"});
  CHECK_MESSAGE(number.out.find("dLoss/d blocks.0.attention.output[0,1,3,2] = 1\n") != std::string::npos, number.out);
  const Outcome edit = look({"cope", "--given", file, "--edit", "blocks.0.attention.v *= 1.5"});
  CHECK(edit.code == 0);
}

TEST_CASE("look: a page that would be too large is refused with the length that fits") {
  const Subject subject = subject_with(small("cope(p_max=3)"), 400);
  const std::string text = error_text([&] { (void)page_of(Inspection(subject)); });
  CHECK_MESSAGE(text.find("a page of 400 tokens would take") != std::string::npos, text);
  const std::size_t at = text.find("--length ");
  REQUIRE(at != std::string::npos);
  const Subject shorter = subject_with(small("cope(p_max=3)"), std::stoll(text.substr(at + 9)));
  const std::size_t bytes = page_of(Inspection(shorter)).size();
  CHECK(bytes > most_bytes / 2);
  CHECK(bytes < most_bytes + most_bytes / 4);
}
