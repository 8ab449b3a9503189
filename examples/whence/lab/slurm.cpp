#include "examples/whence/lab/slurm.h"

#include <algorithm>
#include <cctype>
#include <iostream>
#include <set>

#include "examples/whence/cli/child.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/run/run_files.h"
#include "nn/io/files.h"
#include "tensor/error.h"

namespace whence {

namespace fs = std::filesystem;

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

namespace {

std::string script_of(const SlurmJob& job, const std::string& name, std::size_t cells,
    const std::vector<std::string>& worker, const fs::path& folder) {
  std::string options, logs;
  for (const char c : folder.string()) logs += c == '%' ? "%%" : std::string(1, c);  // sbatch fills in %A, %a, ...
  for (const auto& [key, value] : job.options) options += to_text("#SBATCH --", key, "=", shell_command({value}), '\n');
  return to_text("#!/bin/bash\n# ", one_line(name),
      ": a task for each of its cells. Written by `whence lab --slurm`.\n",
      "#SBATCH --job-name=whence-lab\n#SBATCH --array=0-", cells - 1, job.at_once > 0 ? to_text("%", job.at_once) : "",
      "\n#SBATCH --requeue\n#SBATCH --open-mode=append\n#SBATCH --signal=B:USR1@120\n#SBATCH --output=",
      shell_command({logs + "/slurm-%A_%a.log"}), '\n', options, "\ncd ", shell_command({fs::current_path().string()}),
      " || exit 4\n", shell_command(worker), " --cell \"$SLURM_ARRAY_TASK_ID\" &\nworker=$!\ntime_is_up=\n",
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

}  // namespace

void write_slurm_job(const std::string& wanted, const std::vector<Grid>& grids, const fs::path& folder,
    const std::vector<std::string>& typed, bool submit) {
  const SlurmJob job = parse_slurm(wanted);
  std::vector<std::string> worker{fs::read_symlink("/proc/self/exe").string(), "lab"};
  for (std::size_t k = 1; k < typed.size(); ++k)
    if (typed[k] == "--slurm")
      ++k;
    else if (!typed[k].starts_with("--slurm=") && typed[k] != "--submit")
      worker.push_back(typed[k]);
  std::size_t cells = 0;
  for (const Grid& grid : grids) cells += grid.cells.size();
  ensure_output_folder(folder);
  const fs::path script = fs::absolute(folder) / "lab.sbatch";
  write_file(script.string(), script_of(job, "whence lab " + grids[0].task, cells, worker, fs::absolute(folder)));
  std::cout << "written: " << one_line(script.string()) << ", " << cells
            << " tasks; when they are done, or before: the same command with --collect\n";
  if (!submit) return;
  if (const int code = wait_for_child(start_child({"sbatch", script.string()}, "", Errors::as_ours)); code != 0)
    throw SystemError("--submit: sbatch ended with ", code, "; the script stays: ", script.string());
}

}  // namespace whence
