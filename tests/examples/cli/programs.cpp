// The programs as a user meets them: exit codes, one-line errors, nothing half-written.
#include <sys/stat.h>
#include <algorithm>

#include "tests/support/json.h"

using namespace whence::test;
namespace fs = std::filesystem;

namespace {

const std::string tiny =
    "train flip_flop --length 16 --dim 16 --layers 1 --heads 2 --batch 4 --test-sequences 8 --quiet --out ";

}  // namespace

TEST_CASE("programs: train waits for no pipe, and sweeps what a dead run left") {
  const Scratch scratch("programs-foreign");
  const fs::path out = scratch / "out";
  fs::create_directories(out);
  const std::string train = tiny + out.string() + " --scheme none --steps 2 --warm-up 1";
  REQUIRE(mkfifo((out / "metrics.jsonl").c_str(), 0600) == 0);
  CHECK(ran(train).code == 4);
  fs::remove(out / "metrics.jsonl");
  const fs::path left = out / "best.safetensors.tmp-4194305-0";  // of a process that no system has
  std::ofstream(left) << "half of it";
  CHECK(ran(train).code == 0);
  CHECK_FALSE(fs::exists(left));
}

TEST_CASE("programs: --json prints results alone, a line of JSON each; what is for people goes to standard error") {
  const Scratch scratch("programs-json");
  const auto lines = [](const Outcome& outcome) {
    CHECK_MESSAGE(outcome.code == 0, outcome.err);
    CHECK(has(outcome.err, "written: "));
    return json_lines(outcome.out);
  };
  const auto trained = lines(ran(tiny + scratch / "run" + " --json"));
  CHECK(trained.size() == 3);
  CHECK(trained.at(0).at("token_error_percent").is_number());
  const Outcome row = done("conformance rope --check causality --json");
  CHECK((json_lines(row.out).size() == 1 && has(row.err, "1 checks run")));
}

TEST_CASE("programs: looking inside prints paths and memory, and writes a graph, without training") {
  const Scratch scratch("programs-inside");
  const fs::path out = scratch / "out", graph = scratch / "graph.dot";
  const Outcome described = done(tiny + out.string() + " --scheme cope --describe --graph " + graph.string());
  says(described.out, {"blocks.0.attention.position.table", "normal(0, 0.02)", "tiled_attention",
                          "executor_tiled.cpp:", "kept for backward"});
  CHECK(text_of(graph).starts_with("digraph whence {"));
  CHECK_FALSE(fs::exists(out));
}

TEST_CASE("doctor: facts by name, and too many threads are named without a failure") {
  const Outcome fitting = done("doctor");
  for (const char* name : {"build", "processor", "threads", "memory", "blas", "products", "gpu"})
    CHECK_MESSAGE(has(fitting.out, '\n' + std::string(name) + ' '), name);
  RunningProgram crowded({"OMP_NUM_THREADS=200", program_folder() + "/whence", "doctor"}, "/usr/bin/env");
  const Outcome outcome = crowded.finish();
  CHECK(outcome.code == 0);
  CHECK(has(outcome.out, "OMP_NUM_THREADS 200"));
  CHECK(has(outcome.out, "\nthreads: 200 on "));
}
