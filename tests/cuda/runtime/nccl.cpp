// Ranks with a GPU each that exchange numbers between cards. nccl_stand_in/stand_in.cpp replaces NCCL, between processes
// that each emulate a GPU. Nothing here was run with a real NCCL.
#include <doctest/doctest.h>
#include <signal.h>
#include <cstdlib>

#include "tests/support/programs.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

namespace {

const std::string training =
    "train flip_flop --scheme rope --accumulate 2 --batch 1 --length 8 --dim 8 --heads 1 --layers 1 --threads 1 "
    "--test-sequences 4 --device cuda ";
const std::string over_nccl = training + "--processes 2 --communicator nccl ";

struct StandIn {
  StandIn() { ::setenv("WHENCE_NCCL_LIBRARY", WHENCE_NCCL_STAND_IN, 1); }
  ~StandIn() { ::unsetenv("WHENCE_NCCL_LIBRARY"); }
};

Outcome outcome_of(const std::string& line) {
  return RunningProgram(words(line), program_with_gpu()).finish_within(100);
}

}  // namespace

TEST_CASE("ranks over NCCL's stand-in: the weights of ranks whose sums go over the CPU") {
  const Scratch scratch("nccl");
  const StandIn nccl;
  const auto weights = [&](const std::string& out) { return text_of(scratch / out + "/weights.safetensors"); };
  const Outcome ranks = outcome_of(over_nccl + "--steps 2 --rank-limit 20 --out " + scratch / "ranks");
  REQUIRE_MESSAGE(ranks.code == 0, ranks.err);
  CHECK(ranks.out.find("over NCCL 2.27.3 and shared memory") != std::string::npos);
  const Outcome alone = outcome_of(training + "--steps 2 --out " + scratch / "alone");
  REQUIRE_MESSAGE(alone.code == 0, alone.err);
  CHECK(!weights("alone").empty());
  CHECK(weights("ranks") == weights("alone"));
}

TEST_CASE("ranks over NCCL's stand-in: a peer that dies ends the other, and one that hangs does at the limit") {
  const Scratch scratch("nccl-dies");
  const StandIn nccl;
  for (const int fault : {SIGKILL, SIGSTOP}) {
    const std::string out = scratch / to_text("out", fault);
    RunningProgram program(
        words(over_nccl + "--steps 100000 --log-every 1 --rank-limit 3 --out " + out), program_with_gpu());
    REQUIRE(soon([&] { return !text_of(out + "/metrics.jsonl").empty(); }));  // a step has been logged
    const pid_t second = program.children().at(1);
    ::kill(second, fault);
    CHECK(soon([&] { return program.err().find("rank 1") != std::string::npos; }));
    ::kill(second, SIGCONT);
    const Outcome ended = program.finish_within(90);
    CHECK(ended.code == 1);
  }
}
