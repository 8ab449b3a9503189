// Runs out of memory: too little address space from the start. For failures of single allocations see tensor/device/allocator.cpp.
#include "tests/support/programs.h"

using namespace whence::test;

TEST_CASE("with little address space every program ends at once: done, or one line and code 5") {
  const Scratch scratch("memory-start");
  int refused = 0;
  // The second is a run with a product by OpenBLAS, the logits, because it has few columns.
  for (const std::string& arguments : {std::string("tasks"),
           "train flip_flop --length 16 --dim 256 --heads 2 --layers 1 --batch 1 --test-sequences 2 --steps 1 --quiet "
           "--out " +
               scratch / "run",
           std::string("conformance rope --quiet"), std::string("gradcheck cope")}) {
    for (const int mebibytes : {60, 120, 160, 200, 240, 280, 310, 320, 340, 400, 460}) {
      std::filesystem::remove_all(scratch / "run");
      const std::string script =
          "ulimit -v " + std::to_string(mebibytes << 10) + "; exec " + program_folder() + "/whence " + arguments;
      const Outcome ended = RunningProgram({"-c", script}, "/bin/bash").finish_within(20);
      // An unoptimised program is so large that the loader finds no room for its libraries: nothing of it has run.
      if (ended.code == 127 && has(ended.err, "while loading shared libraries")) continue;
      const bool said = count(ended.err, "\n") == 1 && ended.err.back() == '\n';
      CHECK_MESSAGE((ended.code == 0 || (ended.code == 5 && said)), script, ": ", ended.err);
      refused += ended.code == 5;
    }
  }
  CHECK(refused >= 3);
}
