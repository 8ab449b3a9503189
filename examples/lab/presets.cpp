// The table of mini presets.
#include "examples/lab/presets.h"

#include <algorithm>

#include "examples/tasks/chomsky.h"
#include "tensor/error.h"

namespace whence {

const std::vector<Preset>& mini_presets() {
  static const std::vector<Preset> presets{{"flip_flop", {"--length", "64", "--dim", "64", "--layers", "2", "--heads",
                                                             "4", "--steps", "1500", "--lr", "1e-3"}},
      {"selective_copy", {"--tokens", "16", "--blanks", "16", "--dim", "64", "--layers", "2", "--heads", "2", "--steps",
                             "3000", "--batch", "32", "--lr", "1e-3"}},
      {"counting", {"--operations", "32", "--block", "128", "--dim", "64", "--layers", "2", "--heads", "4", "--steps",
                       "3000", "--batch", "32", "--lr", "1e-3"}}};
  return presets;
}

// Trained on lengths up to 20, tested on some up to 100: the papers train up to 40 with 200 000 steps and test all from
// 41 to 500.
static std::vector<std::string> chomsky_options() {
  return {"--dim", "64", "--layers", "2", "--heads", "4", "--batch", "32", "--steps", "500", "--train-to", "20",
      "--test-from", "21", "--test-to", "100", "--test-every", "16", "--test-sequences", "128"};
}

std::vector<std::string> preset_options(const std::string& preset, const std::string& task) {
  if (preset == "paper") return {};
  const auto& problems = tasks::chomsky_problems();
  if (std::ranges::any_of(problems, [&](const auto& problem) { return problem.name == task; }))
    return chomsky_options();
  std::string known = "the Chomsky-hierarchy tasks";
  for (const Preset& each : mini_presets()) {
    if (each.task == task) return each.options;
    known += ", " + each.task;
  }
  throw InputError(to_text("--preset: mini given for ", task, "; mini presets exist for ", known,
      "; choose paper and make it smaller with --set"));
}

}  // namespace whence
