// Runs as an array of SLURM.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>

#include "examples/whence/cli/text.h"
#include "examples/whence/cli/words.h"
#include "examples/whence/lab/run.h"
#include "tensor/error.h"

namespace whence {

std::string slurm_script(const std::vector<std::string>& lines, const std::string& options) {
  static const std::set<std::string> own{"array", "requeue", "no-requeue", "signal", "wrap"};
  // Two minutes before the time is up a run is told so, saves and ends.
  std::string script = to_text("#!/bin/bash\n#SBATCH --job-name=whence-lab\n#SBATCH --array=1-", lines.size(),
      "\n#SBATCH --no-requeue\n#SBATCH --signal=B:USR1@120\n");
  for (const std::string& part : list_of(options)) {
    const std::size_t equals = part.find('=');
    const std::string key = part.substr(0, equals);
    const bool named = std::ranges::all_of(key, [](char c) { return (c >= 'a' && c <= 'z') || c == '-'; });
    const bool plain = std::ranges::none_of(part, [](char c) { return std::iscntrl(static_cast<unsigned char>(c)); });
    if (key.empty() || !named || !plain || equals == std::string::npos || equals + 1 == part.size())
      throw InputError("--sbatch: ", in_quotes(part),
          " given; options of sbatch as key=value, separated by commas, required, as in partition=gpu,time=2:00:00");
    if (own.contains(key)) throw InputError("--sbatch: ", key, " given; the script sets it itself; leave it out");
    script += to_text("#SBATCH --", key, "=", shell_command({part.substr(equals + 1)}), '\n');
  }
  script += to_text(
      "cd ", shell_command({std::filesystem::current_path().string()}), " || exit 4\ncase $SLURM_ARRAY_TASK_ID in\n");
  for (std::size_t k = 0; k < lines.size(); ++k) script += to_text("  ", k + 1, ") exec ", lines[k], " ;;\n");
  return script + "esac\n";
}

}  // namespace whence
