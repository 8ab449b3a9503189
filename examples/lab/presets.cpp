// The table of mini presets.
#include "examples/lab/presets.h"

#include "tensor/error.h"

namespace whence {

const std::vector<Preset>& mini_presets() {
  static const std::vector<Preset> presets{
      {"flip_flop", {"--length", "64", "--dim", "64", "--layers", "2", "--heads", "4", "--steps", "1500", "--lr", "1e-3"}},
      {"selective_copy",
       {"--tokens", "16", "--blanks", "16", "--dim", "64", "--layers", "2", "--heads", "2", "--steps", "3000", "--batch", "32", "--lr",
        "1e-3"}},
      {"counting",
       {"--operations", "32", "--block", "128", "--dim", "64", "--layers", "2", "--heads", "4", "--steps", "3000", "--batch", "32", "--lr",
        "1e-3"}}};
  return presets;
}

std::vector<std::string> preset_options(const std::string& preset, const std::string& task) {
  if (preset == "paper") return {};
  std::string known;
  for (const Preset& each : mini_presets()) {
    if (each.task == task) return each.options;
    known += (known.empty() ? "" : ", ") + each.task;
  }
  throw InputError(
      concat("--preset: mini given for ", task, "; mini presets exist for ", known, "; choose paper and make it smaller with --set"));
}

}  // namespace whence
