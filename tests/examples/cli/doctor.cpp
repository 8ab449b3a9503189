// doctor: what it prints of this machine, and a fault that it names.

#include "tests/support/programs.h"

using namespace whence::test;

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
