// One laboratory's runs by other engines: lines for a shell, an array of SLURM with a stand-in for SLURM, tables of what is
// there; and one laboratory a folder.
#include <doctest/doctest.h>
#include <algorithm>
#include <filesystem>
#include <sstream>

#include "examples/whence/cli/text.h"
#include "examples/whence/lab/run.h"
#include "tensor/error.h"
#include "tests/support/programs.h"

using namespace whence;
using namespace whence::test;
namespace fs = std::filesystem;

namespace {

const std::vector<std::string> grid{"flip_flop", "--schemes", "cope(p_max=8),rope,none", "--seeds", "2", "--jobs", "1",
    "--quiet", "--set", "length=8 dim=8 layers=1 heads=2 steps=400 batch=4 test-sequences=20 save-every=20"};

// What one `lab` made; once for all cases.
const std::string& undisturbed() {
  static const Scratch scratch("lab-one");
  static const std::string folder = [] {
    const Outcome one = lab(grid, scratch / "one");
    REQUIRE_MESSAGE(one.code == 0, one.err);
    return scratch / "one";
  }();
  return folder;
}

// The tables and the page of a folder, and what was trained, are those of one `lab`, byte for byte.
void check_same(const std::string& folder) {
  for (const char* file : {"scores.csv", "runs.csv", "differences.csv", "curves.csv", "report.html",
           "cope-p_max=8.0/weights.safetensors", "none.1/results.jsonl"})
    CHECK_MESSAGE(text_of(folder + "/" + file) == text_of(undisturbed() + "/" + file), file);
}

}  // namespace

TEST_CASE("lab: --plan prints a line a run, a shell makes the runs of them, --collect the tables that one lab makes") {
  const Scratch scratch("lab-plan");
  const std::string out = scratch / "it's a plan";
  const Outcome plan = lab(grid + Arguments{"--plan"}, out);
  REQUIRE_MESSAGE(plan.code == 0, plan.err);
  CHECK_FALSE(fs::exists(out));
  const auto commands = lines_of(plan.out);
  REQUIRE(commands.size() == 6);
  for (int k = 0; k < 4; ++k) CHECK(shell(commands[static_cast<std::size_t>(k)] + " > /dev/null").code == 0);
  const Outcome some = lab(grid + Arguments{"--collect"}, out);
  CHECK_MESSAGE(some.code == 0, some.err);
  CHECK_MESSAGE(has(some.out, "6 runs, 2 missing"), some.out);
  CHECK_MESSAGE(has(some.err, "rope.1: not begun"), some.err);
  const Outcome rest = lab(grid + Arguments{"--plan"}, out);
  CHECK(rest.out == commands[4] + "\n" + commands[5] + "\n");
  CHECK(shell("(" + commands[4] + " & " + commands[5] + " & wait) > /dev/null").code == 0);
  CHECK(lab(grid + Arguments{"--plan"}, out).out.empty());
  CHECK(lab(grid + Arguments{"--collect"}, out).err.empty());
  check_same(out);
}

TEST_CASE("lab: an array of SLURM has a task for each run, which saves when it is told that its time is up") {
  const Scratch scratch("lab-slurm");
  const std::string out = scratch / "50% of it", script = scratch / "lab.sbatch";
  const auto write_script = [&] {
    return lab(grid + Arguments{"--slurm", script, "--sbatch", "partition=gpu,time=0:10:00,comment=it's mine"}, out);
  };
  const Outcome written = write_script();
  REQUIRE_MESSAGE(written.code == 0, written.err);
  for (const char* line : {"#SBATCH --array=1-6\n", "#SBATCH --signal=B:USR1@120\n", "#SBATCH --partition=gpu\n",
           "#SBATCH --comment='it'\\''s mine'\n"})
    CHECK_MESSAGE(has(text_of(script), line), line);
  const auto task = [&](int number) {
    return "SLURM_ARRAY_TASK_ID=" + std::to_string(number) + " bash " + shell_command({script}) + " > /dev/null 2>&1";
  };
  const std::string saved = shell_command({out + "/cope-p_max=8.0/checkpoints"}) + "/step-*";
  CHECK(shell(task(1) + " & job=$!; until ls " + saved + " > /dev/null 2>&1; do sleep 0.01; done; kill -USR1 $job; " +
              "wait $job")
            .code == 130);
  for (int number = 2; number <= 6; ++number) CHECK(shell(task(number)).code == 0);
  CHECK(has(write_script().out, ", 1 runs;"));
  CHECK(has(text_of(script), "--resume"));
  CHECK(shell(task(1)).code == 0);
  CHECK(lab(grid + Arguments{"--collect"}, out).code == 0);
  check_same(out);
  for (const char* bad : {"gpu", "Partition=x", "time=", "array=0-3", "time=1\n#SBATCH --wrap=ls", "a b=c"})
    CHECK_THROWS_AS((void)slurm_script({"true"}, bad), InputError);
}

TEST_CASE("lab: a second one on a folder says who holds it and ends; --collect does not mind") {
  const Scratch scratch("lab-second");
  const std::string out = scratch / "out", lock = out + "/lab.lock";
  std::vector<std::string> words = grid + Arguments{"--out", out};
  std::string& sizes = *(std::ranges::find(words, "--set") + 1);
  sizes.replace(sizes.find("steps=400"), 9, "steps=1000000");
  RunningProgram first(Arguments{"lab"} + words);
  CHECK(soon([&] { return !text_of(lock).empty(); }));
  const Outcome second = run("lab", words);
  CHECK(second.code == 4);
  CHECK_MESSAGE(has(second.err, "another laboratory runs in " + out + ": process "), second.err);
  CHECK_MESSAGE(has(second.err, ", since 20"), second.err);
  CHECK(run("lab", words + Arguments{"--collect"}).code == 0);
  first.signal(SIGINT);
  CHECK(first.finish_within(60).code == 130);
}
