// Sizes at which a grid of the laboratory fits a laptop, chosen so that what the papers found can show; and the papers'
// own.
#pragma once

#include <string>
#include <vector>

namespace whence {

struct Preset {
  std::string task;
  std::vector<std::string> options;  // of train
};

// The options of `train` for a preset: "paper" has none, as the tasks' defaults are the papers' sizes. Throws
// InputError where a task has no mini preset.
[[nodiscard]] std::vector<std::string> preset_options(const std::string& preset, const std::string& task);
[[nodiscard]] const std::vector<Preset>& mini_presets();

}  // namespace whence
