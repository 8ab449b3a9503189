// Several workers of one laboratory: each cell is one's at a time, dead ones are replaced, and what comes out is what
// one worker makes. Lines for a shell, tables of what is there, and SLURM's arrays with a stand-in for SLURM.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "examples/whence/lab/claim.h"
#include "examples/whence/lab/grid.h"
#include "examples/whence/lab/slurm.h"
#include "tensor/error.h"
#include "tests/scratch.h"
#include "tests/small_lab.h"

using namespace whence;
using namespace whence::test;
namespace fs = std::filesystem;

namespace {

const std::vector<std::string> grid{"flip_flop", "--schemes", "cope(p_max=8),rope,none", "--seeds", "2", "--jobs", "1",
    "--quiet", "--dead-after", "5", "--set",
    "length=8 dim=8 layers=1 heads=2 steps=400 batch=4 test-sequences=20 save-every=20"};
const std::vector<std::string> cells{"cope-p_max=8.0", "rope.0", "none.0", "cope-p_max=8.1", "rope.1", "none.1"};

std::vector<std::string> with(std::vector<std::string> left, const std::vector<std::string>& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

void check_same_runs(const std::string& found, const std::string& wanted) {
  for (const std::string& cell : cells)
    for (const char* file : {"weights.safetensors", "results.jsonl"}) {
      REQUIRE(fs::exists(wanted + "/" + cell + "/" + file));
      CHECK_MESSAGE(
          text_of(found + "/" + cell + "/" + file) == text_of(wanted + "/" + cell + "/" + file), cell, " ", file);
    }
}

// What one worker made; once for all cases.
const std::string& undisturbed() {
  static const Scratch scratch("lab-one");
  static const std::string folder = [] {
    const Outcome one = lab(grid, scratch / "one");
    REQUIRE_MESSAGE(one.code == 0, one.err);
    return scratch / "one";
  }();
  return folder;
}

}  // namespace

TEST_CASE("lab: of many that claim a cell one has it; a dead owner's goes to one, a living one's to nobody") {
  const Scratch scratch("claims");
  const auto claimed_by = [&](const Claim::Standing& seen) {
    std::vector<std::thread> workers;
    std::atomic<int> have = 0;
    for (int k = 0; k < 8; ++k)
      workers.emplace_back([&] { have += Claim::take(scratch.folder, seen).has_value() ? 1 : 0; });
    for (std::thread& worker : workers) worker.join();
    return have.load();
  };
  CHECK(Claim::standing(scratch.folder).number == 0);
  CHECK(claimed_by({}) == 1);
  Claim::Standing standing = Claim::standing(scratch.folder);
  CHECK(standing.number == 1);
  CHECK(standing.state == "held");
  CHECK_FALSE(standing.ended);  // this very process
  ClaimWatch patient(3600), hasty(0);
  CHECK_FALSE(patient.abandoned(scratch.folder, standing));
  // Whatever its time stamp says: a clock that is hours off changes nothing.
  fs::last_write_time(scratch / "claim-1", fs::file_time_type::clock::now() - std::chrono::hours(50));
  CHECK_FALSE(patient.abandoned(scratch.folder, Claim::standing(scratch.folder)));
  CHECK_FALSE(hasty.abandoned(scratch.folder, standing));  // seen once says nothing
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  CHECK(hasty.abandoned(scratch.folder, standing));
  CHECK(claimed_by(standing) == 1);
  // An owner of this machine that is no more is seen at once.
  const pid_t child = fork();
  if (child == 0) {
    (void)Claim::take(scratch.folder, Claim::standing(scratch.folder));
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  standing = Claim::standing(scratch.folder);
  CHECK(standing.number == 3);
  CHECK(standing.ended);
  CHECK(patient.abandoned(scratch.folder, standing));
}

TEST_CASE("lab: an owner that was frozen learns that its cell is another's; one whose folder is gone says so") {
  const Scratch scratch("claims-lost");
  auto first = Claim::take(scratch.folder, {});
  REQUIRE(first);
  CHECK(first->beat());
  const std::string text = Claim::standing(scratch.folder).text;
  CHECK(first->beat());
  CHECK(Claim::standing(scratch.folder).text != text);
  auto second = Claim::take(scratch.folder, Claim::standing(scratch.folder));
  REQUIRE(second);
  CHECK_FALSE(first->beat());
  first->give_back("too late to say");
  CHECK(Claim::standing(scratch.folder).state == "held");
  second->give_back("no memory");
  CHECK(Claim::standing(scratch.folder).state == "failed: no memory");
  Claim::remove_all(scratch.folder);  // the run is done
  CHECK_FALSE(second->beat());
  second->give_back("nobody asks any more");
  CHECK(Claim::standing(scratch.folder).number == 0);
  auto third = Claim::take(scratch.folder, {});
  fs::remove_all(scratch.folder);
  CHECK_THROWS_AS((void)third->beat(), SystemError);
}

TEST_CASE("lab: four workers with two killed make what one makes, each cell once") {
  const Scratch scratch("lab-workers");
  const std::string& one = undisturbed();
  const std::string out = scratch / "four";
  std::vector<RunningProgram> workers;
  for (int k = 0; k < 4; ++k) workers.emplace_back("lab", with(grid, {"--out", out}), scratch / to_text("worker-", k));
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  workers[0].signal(SIGKILL);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  workers[2].signal(SIGKILL);
  for (std::size_t k = 0; k < 4; ++k) {
    const Outcome ended = workers[k].finish_within(120);
    if (k % 2 == 1) CHECK_MESSAGE(ended.code == 0, ended.err);
  }
  check_same_runs(out, one);
  for (const std::string& cell : cells) CHECK_FALSE(fs::exists(out + "/" + cell + "/claim-1"));
  const Outcome again = lab(grid, out);  // nothing is left to do
  CHECK_MESSAGE(again.code == 0, again.err);
}

TEST_CASE("lab: a worker that is frozen while its run ends finds it another's, and leaves what that one wrote") {
  const Scratch scratch("lab-frozen");
  const std::string& one = undisturbed();
  const std::string out = scratch / "run", mark = out + "/" + cells[0] + "/lab_cell.json";
  std::vector<std::string> words = with(grid, {"--out", out});
  std::erase(words, "--quiet");
  const RunningProgram frozen("lab", words, scratch / "frozen");
  for (int k = 0; k < 3000 && !fs::exists(out + "/" + cells[0] + "/checkpoints"); ++k)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  frozen.signal(SIGSTOP);  // its run is another process, and ends by itself
  const Outcome other = RunningProgram("lab", with(grid, {"--out", out}), scratch / "other").finish_within(120);
  CHECK_MESSAGE(other.code == 0, other.err);
  const std::string written = text_of(mark);
  CHECK(!written.empty());
  frozen.signal(SIGCONT);
  const Outcome woken = frozen.finish_within(60);
  CHECK_MESSAGE(woken.code == 0, woken.err);
  CHECK_MESSAGE(woken.err.find("another worker took it over") != std::string::npos, woken.err);
  CHECK(text_of(mark) == written);
  check_same_runs(out, one);
}

TEST_CASE("lab: a worker whose folder disappears ends with 4, and goes on where it was when it is back") {
  const Scratch scratch("lab-gone");
  const std::string& one = undisturbed();
  const std::string out = scratch / "run", away = scratch / "away";
  const RunningProgram worker("lab", with(grid, {"--out", out}), scratch / "log");
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  fs::rename(out, away);
  const Outcome ended = worker.finish_within(60);
  CHECK_MESSAGE(ended.code == 4, ended.err);
  CHECK_MESSAGE(ended.err.find("scratch-lab-gone/run") != std::string::npos, ended.err);
  CHECK_FALSE(fs::exists(out));
  fs::rename(away, out);
  const Outcome again = lab(grid, out);
  CHECK_MESSAGE(again.code == 0, again.err);
  check_same_runs(out, one);
}

TEST_CASE("lab: --plan prints a line a cell, --collect makes tables of what they left, lab takes it from there") {
  const Scratch scratch("lab-plan");
  const std::string& one = undisturbed();
  const std::string out = scratch / "it's a plan";
  const Outcome plan = lab(with(grid, {"--plan"}), out);
  REQUIRE_MESSAGE(plan.code == 0, plan.err);
  CHECK(std::ranges::count(plan.out, '\n') == 6);
  std::ofstream(scratch / "lines.sh") << "set -e\nPATH='" << program_folder() << "':$PATH\n"
                                      << [&] {
                                           std::istringstream lines(plan.out);
                                           std::string four, line;
                                           for (int k = 0; k < 4 && std::getline(lines, line); ++k)
                                             four += line + " --quiet > /dev/null\n";
                                           return four;
                                         }();
  REQUIRE(std::system(("bash '" + (scratch / "lines.sh") + "'").c_str()) == 0);
  const Outcome some = lab(with(grid, {"--collect"}), out);
  CHECK_MESSAGE(some.code == 0, some.err);
  CHECK_MESSAGE(some.out.find("6 runs, 2 missing") != std::string::npos, some.out);
  CHECK_MESSAGE(some.err.find("rope.1: not begun") != std::string::npos, some.err);
  CHECK_MESSAGE(some.err.find("4 runs were not ended by a laboratory") != std::string::npos, some.err);
  const Outcome rest = lab(with(grid, {"--plan"}), out);
  CHECK(rest.out.find("--resume") != std::string::npos);
  const Outcome all = lab(grid, out);
  CHECK_MESSAGE(all.code == 0, all.err);
  check_same_runs(out, one);
  CHECK(lab(with(grid, {"--plan"}), out).out.empty());
  const Outcome none = lab(with(grid, {"--collect"}), scratch / "nowhere");
  CHECK(none.code == 2);
}

TEST_CASE(
    "lab: an array of SLURM: time that is up saves and puts the task back, scancel does not; all cells come out") {
  const Scratch scratch("lab-slurm");
  const std::string& one = undisturbed();
  const std::string out = scratch / "50% of it", script = out + "/lab.sbatch";
  const Outcome written = lab(with(grid, {"--slurm", "partition=gpu,time=0:10:00,comment=it's mine,at-once=2"}), out);
  REQUIRE_MESSAGE(written.code == 0, written.err);
  const std::string text = text_of(script);
  for (const char* line : {"#SBATCH --array=0-5%2\n", "#SBATCH --requeue\n", "#SBATCH --signal=B:USR1@120\n",
           "#SBATCH --partition=gpu\n", "#SBATCH --comment='it'\\''s mine'\n", "/50%% of it/slurm-%A_%a.log'\n"})
    CHECK_MESSAGE(text.find(line) != std::string::npos, line);
  // A stand-in: `scontrol requeue JOB_TASK` writes down what it was asked.
  fs::create_directories(scratch / "bin");
  std::ofstream(scratch / "bin/scontrol") << "#!/bin/sh\necho \"$@\" >> '" << (scratch / "asked") << "'\n";
  fs::permissions(scratch / "bin/scontrol", fs::perms::owner_all);
  const auto task = [&](int number, const std::string& signal) {
    std::ofstream(scratch / "task.sh") << to_text("PATH='", scratch / "bin",
        "':$PATH SLURM_ARRAY_JOB_ID=77 SLURM_ARRAY_TASK_ID=", number, " bash '", script,
        "' > /dev/null 2>&1 & job=$!; ",
        signal.empty()
            ? ""
            : to_text("for k in $(seq 500); do ls '", out, "/", cells[static_cast<std::size_t>(number)],
                  "/checkpoints'/step-* > /dev/null 2>&1 && break; sleep 0.01; done; kill -", signal, " $job; "),
        "wait $job\n");
    const int status = std::system(("bash '" + (scratch / "task.sh") + "'").c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  CHECK(task(0, "USR1") == 130);
  CHECK(text_of(scratch / "asked") == "requeue 77_0\n");
  CHECK(task(1, "TERM") == 130);
  CHECK(text_of(scratch / "asked") == "requeue 77_0\n");
  for (int number = 0; number < 6; ++number) CHECK(task(number, "") == 0);
  check_same_runs(out, one);
  const Outcome tables = lab(with(grid, {"--collect"}), out);
  CHECK_MESSAGE((tables.code == 0 && tables.out.find("missing") == std::string::npos), tables.err);
  CHECK(parse_slurm("exclude=a,b,time=1:00").options[0].second == "a,b");
  for (const char* bad :
      {"gpu", "Partition=x", "time=", "array=0-3", "time=1\n#SBATCH --wrap=ls", "at-once=0", "a b=c"})
    CHECK_THROWS_AS((void)parse_slurm(bad), InputError);
  CHECK(lab(with(grid, {"--plan", "--collect"}), out).code == 2);
  CHECK(lab(with(grid, {"--cell", "6"}), out).code == 2);
  CHECK(lab(with(grid, {"--submit"}), out).code == 2);
}
