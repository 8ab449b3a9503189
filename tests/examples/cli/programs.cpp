// The programs as a user meets them: exit codes, one-line errors, nothing half-written.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/json.h"
#include "tests/support/programs.h"

using namespace whence::test;
namespace fs = std::filesystem;

namespace {

std::vector<std::string> tiny(const fs::path& out, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments{"flip_flop", "--length", "16", "--dim", "16", "--layers", "1", "--heads", "2",
      "--batch", "4", "--test-sequences", "8", "--quiet", "--out", out.string()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

}  // namespace

TEST_CASE("programs: train waits for no pipe, writes through no link, and sweeps what a dead run left") {
  const Scratch scratch("programs-foreign");
  const fs::path out = scratch / "out", precious = out / "precious";
  fs::create_directories(out);
  const std::vector<std::string> sizes{"--scheme", "none", "--steps", "2", "--warm-up", "1"};
  REQUIRE(mkfifo((out / "metrics.jsonl").c_str(), 0600) == 0);
  for (const bool link : {false, true}) {
    if (link) {
      fs::remove(out / "metrics.jsonl");
      std::ofstream(precious) << "precious";
      fs::create_symlink("precious", out / "metrics.jsonl");
    }
    const Outcome refused = run("train", tiny(out, sizes));
    CHECK(refused.code == 4);
    CHECK_MESSAGE(has(refused.err, "metrics.jsonl: cannot write: not a regular file"), refused.err);
    CHECK(count(refused.err, "\n") == 1);
  }
  CHECK(text_of(precious) == "precious");
  fs::remove(out / "metrics.jsonl");
  const fs::path left = out / "best.safetensors.tmp-4194305-0";  // of a process that no system has
  std::ofstream(left) << "half of it";
  CHECK(run("train", tiny(out, sizes)).code == 0);
  CHECK_FALSE(fs::exists(left));
  CHECK(fs::exists(precious));
}

TEST_CASE("programs: the quickstart's smoke run writes its page and its table") {
  const Scratch scratch("programs-quickstart");
  const fs::path out = scratch / "out-smoke";
  const std::vector<std::string> words{"--smoke", "--quiet", "--out", scratch / "out"};
  const Outcome outcome = run("quickstart", words);
  CHECK_MESSAGE(outcome.code == 0, outcome.err);
  CHECK(has(outcome.out, "The paper has another order") != has(outcome.out, "The order of the three is the paper's"));
  CHECK(text_of(out / "report.html").find("Wrong bits after a read") != std::string::npos);
  const std::string page = text_of(out / "look.html");
  for (const char* text : {"position.gates", "position.positions", "pattern", "look-data"})
    CHECK_MESSAGE(has(page, text), text);
  CHECK(text_of(out / "comparison.csv").find("absolute") != std::string::npos);
  for (const char* scheme : {"cope", "rope", "absolute"}) {  // runs as any other
    const std::string folder = out / scheme, weights = text_of(folder + "/weights.safetensors");
    CHECK(has(done("look " + folder + " --length 9 --causes").out, "zero %"));
    CHECK(has(done("train --resume --quiet --out " + folder).out, "trained: 4 steps"));
    CHECK(text_of(folder + "/weights.safetensors") == weights);
  }
  const Outcome again = run("quickstart", words);  // trains nothing
  CHECK_MESSAGE(again.code == 0, again.err);
  CHECK(text_of(out / "look.html") == page);
  (void)done("train --resume --quiet --steps 5 --out " + (out / "cope").string());
  CHECK(has(run("quickstart", words).err, "has been trained for 5 since; at least that required"));
}

TEST_CASE("programs: --json prints results alone, a line of JSON each; what is for people goes to standard error") {
  const Scratch scratch("programs-json");
  const auto lines = [](const Outcome& outcome) {
    CHECK_MESSAGE(outcome.code == 0, outcome.err);
    CHECK(has(outcome.err, "written: ") != has(outcome.err, "wrong bits after a read"));
    return json_lines(outcome.out);
  };
  const auto trained = lines(run("train", tiny(scratch / "run", {"--json"})));
  CHECK(trained.size() == 3);
  CHECK(trained.at(0).at("token_error_percent").is_number());
  const auto rows = lines(run("quickstart", {"--smoke", "--json", "--out", scratch / "quickstart"}));
  CHECK(rows.size() == 4);
  CHECK((rows.at(0).at("scheme") == "cope" && rows.at(0).at("sparse %").is_number() &&
         rows.at(3).at("paper: sparse %").is_null()));
}

TEST_CASE("programs: looking inside prints paths and memory, and writes a graph, without training") {
  const Scratch scratch("programs-inside");
  const fs::path out = scratch / "out", graph = scratch / "graph.dot";
  const Outcome described = run("train", tiny(out, {"--scheme", "cope", "--describe", "--graph", graph.string()}));
  CHECK_MESSAGE(described.code == 0, described.err);
  for (const char* text : {"blocks.0.attention.position.table", "normal(0, 0.02)", "tiled_attention",
           "executor_tiled.cpp:", "kept for backward"})
    CHECK_MESSAGE(has(described.out, text), text);
  CHECK(text_of(graph).starts_with("digraph whence {"));
  CHECK_FALSE(fs::exists(out));
}
