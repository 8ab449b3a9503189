// Trainings that tests start, stop and compare.
#pragma once

#include <algorithm>
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "tests/program_run.h"

namespace whence::test {

using Arguments = std::vector<std::string>;
inline Arguments operator+(Arguments left, const Arguments& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

// The name of a run's newest whole checkpoint; empty: there is none.
inline std::string newest_checkpoint(const std::string& folder) {
  std::string newest;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder + "/checkpoints", ignored))
    if (const std::string name = entry.path().filename().string(); name.size() == std::string("step-000005").size())
      newest = std::max(newest, name);
  return newest;
}

inline std::string log_without_times(const std::string& folder) {
  return std::regex_replace(text_of(folder + "/metrics.jsonl"), std::regex("\"seconds\":[^,}]*"), "\"seconds\":-");
}

}  // namespace whence::test
