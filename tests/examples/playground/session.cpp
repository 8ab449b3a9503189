// The playground's session: it learns like `train`, shows active edits, and answers every request with a
// sentence.
#include "examples/whence/playground/session.h"

#include <cmath>
#include <cstring>

#include "tensor/backend.h"
#include "tensor/device/allocator.h"
#include "tests/support/json.h"

using namespace whence;
using namespace whence::test;

namespace {

nlohmann::json asked(playground::Session& session, const std::string& question) {
  return json_of(session.answer(question));
}

double loss(playground::Session& session, const std::string& question) {
  return asked(session, question).at("loss").get<double>();
}

std::string error(playground::Session& session, const std::string& question) {
  return asked(session, question).at("error").get<std::string>();
}

// Returns the numbers of the last look's quantity in layer 0, or of its gradient.
std::vector<double> numbers_of(
    const playground::Session& session, const nlohmann::json& look, const std::string& name, const char* field) {
  for (const nlohmann::json& quantity : look.at("page").at("quantities")) {
    if (quantity.at("name").get<std::string>() != name) continue;
    const nlohmann::json& place = quantity.at("layers")[0].at(field);
    std::vector<double> numbers;
    for (std::int64_t at = place.at("at").get<std::int64_t>(), end = at + place.at("bytes").get<std::int64_t>();
         at < end; at += 4) {
      float number;
      std::memcpy(&number, session.numbers().data() + at, sizeof number);
      numbers.push_back(static_cast<double>(number));
    }
    return numbers;
  }
  FAIL("no quantity " << name);
  return {};
}

}  // namespace

TEST_CASE("playground: a session's losses are those of `train`, to the bit") {
  const Scratch scratch("playground");
  done(
      "train flip_flop --scheme cope --length 32 --dim 32 --layers 2 --heads 2 --batch 16 --steps 20 --lr 1e-3 "
      "--log-every 1 "
      "--test-sequences 4 --quiet --out " +
      scratch.folder.string());
  playground::Session session;
  (void)asked(session, R"({"ask": "begin", "model": 0, "scheme": "cope", "length": 32, "steps": 20})");
  std::vector<double> losses;
  for (int slice = 0; slice < 4; ++slice)
    for (const double loss :
        asked(session, R"({"ask": "train", "model": 0, "steps": 5})").at("losses").get<std::vector<double>>())
      losses.push_back(loss);
  std::vector<double> of_train;
  for (const std::string& line : lines_of(text_of((scratch.folder / "metrics.jsonl").string())))
    of_train.push_back(json_of(line).at("loss").get<double>());
  CHECK(losses.size() == 20);
  CHECK(losses == of_train);
  CHECK(asked(session, R"({"ask": "train", "model": 0, "steps": 5})")
            .at("losses")
            .get<std::vector<double>>()
            .empty());  // the run is over
}

TEST_CASE("playground: a look with edits has their numbers, their loss, and no gradient past what was set") {
  playground::Session session;
  (void)asked(session, R"q({"ask": "begin", "model": 2, "scheme": "cope(p_max=4)", "length": 16, "heads": 2})q");
  (void)asked(session, R"({"ask": "train", "model": 2, "steps": 40})");
  const nlohmann::json before = asked(session, R"({"ask": "look", "model": 2, "sample": 0})");
  CHECK(before.at("loss").get<double>() == before.at("loss_without_edits").get<double>());
  CHECK(asked(session, R"({"ask": "explain", "model": 2, "what": "gates layer=0 head=1 i=9 j=3"})").contains("text"));
  CHECK(asked(session, R"({"ask": "inspect", "model": 2})").at("page").contains("links"));
  const nlohmann::json outcome =
      asked(session, R"({"ask": "edit", "model": 2, "edits": ["positions layer=0 head=1 i=9 = 0.25"]})");
  const nlohmann::json after = asked(session,
      R"({"ask": "look", "model": 2, "edits": ["positions layer=0 head=1 i=9 = 0.25", "blocks.1.attention.position.table 0=2 *= 3"]})");
  CHECK(after.at("loss_without_edits").get<double>() == before.at("loss").get<double>());
  CHECK(after.at("loss").get<double>() != before.at("loss").get<double>());
  double sum = 0, asked_after = 0;  // the page's answers are those of the edited pass
  for (const nlohmann::json& answer : after.at("page").at("predictions"))
    if (answer.is_object()) sum += answer.at("loss").get<double>(), ++asked_after;
  CHECK(std::abs(sum / asked_after - after.at("loss").get<double>()) < 1e-5);
  const std::size_t tokens = 15, row = (1 * tokens + 9) * tokens;  // head 1, query 9
  const std::vector<double> positions = numbers_of(session, after, "positions", "value"),
                            gates = numbers_of(session, after, "gates", "gradient");
  for (std::size_t key = 0; key <= 9; ++key) {
    CHECK(positions[row + key] == 0.25);
    CHECK(gates[row + key] == 0);
  }
  const double alone =
      loss(session, R"({"ask": "look", "model": 2, "edits": ["positions layer=0 head=1 i=9 = 0.25"]})");
  CHECK(std::abs(alone - before.at("loss").get<double>() - outcome.at("edits")[0].at("real").get<double>()) < 1e-6);
  (void)asked(session,  // two of one parameter
      R"({"ask": "look", "model": 2, "edits": ["blocks.1.attention.position.table 0=1 = 9", "blocks.1.attention.position.table 0=2 = 9"]})");
  CHECK(loss(session, R"({"ask": "look", "model": 2})") ==
        before.at("loss").get<double>());  // an edit of a parameter is over
}

TEST_CASE("playground: a turn is the pass of the last look, under its edits, with one number more changed") {
  playground::Session session;
  (void)asked(session, R"q({"ask": "begin", "model": 0, "scheme": "cope(p_max=4)", "length": 16, "heads": 2})q");
  (void)asked(session, R"({"ask": "train", "model": 0, "steps": 40})");
  const std::string place =
      R"("number": 0.25, "layer": 0, "head": 1, "i": 9, "edit": "gates layer=0 head=1 i=9 j=3 = 0.25")";
  for (const std::string edits : {"", R"("blocks.0.attention.position.table *= 9")",
           R"("blocks.0.attention.position.table *= 9", "scores layer=1 head=0 *= 2")"}) {
    CAPTURE(edits);
    const double before = loss(session, R"({"ask": "look", "model": 0, "edits": [)" + edits + "]}");
    const nlohmann::json turn = asked(session, R"({"ask": "turn", "model": 0, )" + place + "}");
    const double look = loss(session, R"({"ask": "look", "model": 0, "edits": [)" + edits +
                                          (edits.empty() ? "" : ", ") + R"("gates layer=0 head=1 i=9 j=3 = 0.25"]})");
    CHECK(turn.at("loss").get<double>() == doctest::Approx(look).epsilon(1e-6));
    CHECK(turn.at("real").get<double>() == doctest::Approx(look - before).epsilon(1e-3));
    for (const nlohmann::json& row : turn.at("rows"))
      if (row.at("probe").get<std::string>() == "gates") CHECK(row.at("value").get<std::vector<double>>()[3] == 0.25);
  }
  for (const std::string broken : {R"("head": 2)", R"("layer": 2)", R"("i": 15)"})
    CHECK(json_of(session.answer(R"({"ask": "turn", "model": 0, )" + broken + ", " + place + "}")).contains("error"));
}

TEST_CASE("playground: a run that is opened is what `train` left, and its page has all that it reads") {
  const Scratch scratch("opened");
  const std::string run = scratch.folder.string() + "/run";
  done(
      "train flip_flop --scheme cope --length 16 --dim 16 --layers 2 --heads 2 --batch 16 --steps 5 --lr 1e-3 "
      "--test-sequences 4 --quiet --out " +
      run);
  playground::Session session;
  (void)asked(session, R"({"ask": "begin", "model": 1, "length": 16, "dim": 16, "steps": 5})");
  (void)asked(session, R"({"ask": "train", "model": 1, "steps": 5})");
  const look::SubjectOptions options{.run = run};
  const nlohmann::json opened = asked(session, playground::question_that_opens(options).line());
  CHECK(opened.at("label").get<std::string>() == "the end of training");
  for (const std::string more : {R"(, "sample": 3})", R"(, "edits": ["gates layer=0 head=1 = 0"]})"})
    CHECK(
        loss(session, R"({"ask": "look", "model": 0)" + more) == loss(session, R"({"ask": "look", "model": 1)" + more));
  const auto percent_of = [&](const char* question) {
    return asked(session, question).at("percent").get<std::vector<double>>();
  };
  CHECK(percent_of(R"({"ask": "errors", "model": 0, "sequences": 40})") ==
        percent_of(R"({"ask": "errors", "model": 1, "sequences": 40})"));
  CHECK(has(error(session, R"({"ask": "train", "model": 0, "steps": 1})"), "as it was trained"));
  // In another folder, from the files alone.
  const auto files = look::files_of(options);
  std::filesystem::remove_all(run);
  for (const auto& [name, bytes] : files) {
    std::filesystem::create_directories(std::filesystem::path(name).parent_path());
    std::ofstream(name, std::ios::binary) << bytes;
  }
  CHECK(files.size() == 2);
  (void)asked(session, playground::question_that_opens(options).line());
  CHECK(loss(session, R"({"ask": "look", "model": 0})") == loss(session, R"({"ask": "look", "model": 1})"));
  (void)asked(session, playground::question_that_opens({.run = "dape(kerple)"}).line());
  CHECK(loss(session, R"({"ask": "look", "model": 0})") > 0);
  CHECK(percent_of(R"({"ask": "errors", "model": 0, "sequences": 8})").empty());
  CHECK(has(error(session, playground::question_that_opens({.run = "none/here"}).line()), "no folder"));
}

TEST_CASE("playground: a page of a run on one's own questions has its files") {
  const Scratch scratch("own_questions");
  for (const char* name : {"lines", "test", "valid"})
    std::ofstream(scratch / name) << R"({"context": "a b", "question": "c", "answer": "d"})" << '\n';
  done("train jsonl --scheme none --dim 8 --layers 1 --heads 1 --steps 1 --quiet --data " + scratch / "lines" +
       " --test-data " + scratch / "test" + " --validation-data " + scratch / "valid" + " --out " + scratch / "run");
  const auto files = look::files_of({.run = scratch / "run"});
  for (const char* name : {"lines", "test", "valid"}) CHECK_MESSAGE(files.contains(scratch / name), name);
}

TEST_CASE("playground: a model or a page that is too large is refused before it takes memory") {
  Allocator& memory = memory_of(Device::cpu());
  playground::Session session;
  const std::size_t before = memory.statistics().live;
  memory.reset_peak();
  for (const char* question : {R"q({"ask": "begin", "model": 0, "scheme": "absolute(rows=20000000)"})q",
           R"q({"ask": "open", "model": 0, "run": "absolute(rows=20000000)"})q"})
    CHECK_MESSAGE(has(error(session, question), "4000000 at most"), question);
  CHECK(has(error(session, R"({"ask": "open", "model": 0, "run": "cope", "length": 2000000000})"), "0 to 1048576"));
  (void)asked(session, R"({"ask": "open", "model": 0, "run": "cope", "length": 20000})");
  CHECK(has(error(session, R"({"ask": "look", "model": 0})"), "20000 tokens"));
  CHECK(memory.statistics().peak - before < std::size_t{64} << 20);
}

TEST_CASE("playground: what cannot be is a sentence, and the session goes on") {
  playground::Session session;
  const std::string long_name(1 << 20, 'a');
  for (const auto& [question, part] : std::vector<std::pair<std::string, std::string>>{{"{", "question"},
           {R"({"ask": "fly", "model": 0})", "no model 0"},
           {R"q({"ask": "begin", "model": 0, "scheme": "cope(p_max=-1)"})q", "p_max is '-1'"},
           {R"({"ask": "begin", "model": 0, "scheme": ")" + long_name + R"("})", ""},
           {R"({"ask": "begin", "model": 0, "length": 100000})", "4 to 128"},
           {R"({"ask": "begin", "model": 0, "length": 31})", "even number"}})
    CHECK_MESSAGE((has(error(session, question), part) && error(session, question).size() < 1000), part);
  CHECK(asked(session, R"({"ask": "begin", "model": 0, "length": 8})").at("parameters").get<std::int64_t>() > 0);
  CHECK(has(error(session, R"({"ask": "fly", "model": 0})"), "'fly' asked"));
  CHECK(has(error(session, R"({"ask": "explain", "model": 0, "what": "gates"})"), "\"look\" first"));
  CHECK(has(error(session, R"({"ask": "look", "model": 0, "edits": ["gates = x"]})"), "NUMBER"));
  CHECK(loss(session, R"({"ask": "look", "model": 0})") > 0);
  CHECK(asked(session, R"({"ask": "errors", "model": 0, "sequences": 8})").at("percent").size() == 3);
  CHECK(asked(session, R"({"ask": "schemes"})").at("schemes").size() >= 38);
}
