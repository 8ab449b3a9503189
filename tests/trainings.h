// Trainings that tests start, stop and compare.
#pragma once

#include <regex>
#include <string>
#include <vector>

#include "nn/io/checkpoint.h"
#include "tests/program_run.h"

namespace whence::test {

using Arguments = std::vector<std::string>;
inline Arguments operator+(Arguments left, const Arguments& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

// The folder of a run's newest whole checkpoint; empty: there is none.
inline std::string newest_checkpoint(const std::string& folder) {
  return find_latest(folder + "/checkpoints").value_or("");
}

inline std::string log_without_times(const std::string& folder) {
  return std::regex_replace(text_of(folder + "/metrics.jsonl"), std::regex("\"seconds\":[^,}]*"), "\"seconds\":-");
}

}  // namespace whence::test
