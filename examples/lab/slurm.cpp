#include "examples/lab/slurm.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "examples/app/text.h"
#include "examples/lab/grid.h"
#include "tensor/error.h"

namespace whence {

SlurmJob parse_slurm(const std::string& text) {
  static const std::set<std::string> own{
      "array", "requeue", "no-requeue", "signal", "output", "error", "open-mode", "wrap"};
  SlurmJob job;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    if (std::ranges::any_of(part, [](char c) { return std::iscntrl(static_cast<unsigned char>(c)) != 0; }))
      throw InputError("--slurm: a control character given; one line required");
    begin = end + 1;
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos && !part.empty() && !job.options.empty()) {  // "exclude=a,b"
      job.options.back().second += "," + part;
      continue;
    }
    const std::string key = part.substr(0, equals);
    const bool named =
        !key.empty() && std::ranges::all_of(key, [](char c) { return (c >= 'a' && c <= 'z') || c == '-'; });
    if (equals == std::string::npos || equals + 1 == part.size() || !named)
      throw InputError("--slurm: ", in_quotes(part),
          " given; options of sbatch as key=value, separated by commas, required, "
          "e.g. \"partition=gpu,time=2:00:00\"");
    const std::string value = part.substr(equals + 1);
    if (own.contains(key)) throw InputError("--slurm: ", key, " given; the script sets it itself; leave it out");
    if (key != "at-once") {
      job.options.emplace_back(key, value);
      continue;
    }
    const auto count = parse_number<int>(value);
    if (!count || *count < 1)
      throw InputError("--slurm: at-once=", value, " given; a whole number of 1 or more required");
    job.at_once = *count;
  }
  return job;
}

std::string slurm_script(const SlurmJob& job, const std::string& name, std::size_t cells,
    const std::vector<std::string>& worker, const std::filesystem::path& folder) {
  std::string options;
  for (const auto& [key, value] : job.options) options += to_text("#SBATCH --", key, "=", shell_command({value}), '\n');
  return to_text("#!/bin/bash\n# ", one_line(name),
      ": a task for each of its cells. Written by `whence lab --slurm`.\n",
      "#SBATCH --job-name=whence-lab\n#SBATCH --array=0-", cells - 1, job.at_once > 0 ? to_text("%", job.at_once) : "",
      "\n#SBATCH --requeue\n#SBATCH --open-mode=append\n#SBATCH --signal=B:USR1@120\n#SBATCH --output=",
      shell_command({(folder / "slurm-%A_%a.log").string()}), '\n', options, "\ncd ",
      shell_command({std::filesystem::current_path().string()}), " || exit 4\n", shell_command(worker),
      " --cell \"$SLURM_ARRAY_TASK_ID\" &\nworker=$!\ntime_is_up=\n",
      "trap 'time_is_up=1; kill -USR1 \"$worker\"' USR1\n",
      "trap 'kill -USR1 \"$worker\"' TERM  # it may have come to the worker too, and a second one would end it at "
      "once\n",
      "while :; do  # a signal ends `wait`, not the worker\n"
      "  wait \"$worker\"\n"
      "  code=$?\n"
      "  kill -0 \"$worker\" 2>/dev/null || break\n"
      "done\n"
      "# scancel sends TERM alone and means it; what preempts a job puts it back itself.\n"
      "if [[ $code == 130 && -n $time_is_up ]]; then\n"
      "  scontrol requeue \"${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}\"\n"
      "fi\n"
      "exit \"$code\"\n");
}

}  // namespace whence
