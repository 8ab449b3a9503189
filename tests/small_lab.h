// A laboratory of four short runs, as one types it.
#pragma once

#include <string>
#include <vector>

#include "tests/program_run.h"

namespace whence::test {

inline const std::vector<std::string> small_grid{"flip_flop", "--schemes", "cope(p_max=8),rope", "--seeds", "2",
    "--jobs", "2", "--quiet", "--set",
    "length=8 dim=8 layers=1 heads=2 steps=60 batch=4 test-sequences=20 save-every=5"};

inline Outcome lab(std::vector<std::string> arguments, const std::string& folder) {
  arguments.push_back("--out");
  arguments.push_back(folder);
  return RunningProgram("lab", arguments, folder + "_log").finish();
}

}  // namespace whence::test
