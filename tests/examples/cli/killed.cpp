// A run that is killed, hung or interrupted, and then resumed, ends in the bytes of an undisturbed run.
#include <algorithm>
#include <functional>

#include "tests/support/programs.h"

using namespace whence::test;
namespace fs = std::filesystem;

namespace {

struct Progress {
  int steps = 0;  // in their newest checkpoints
  int lines = 0;  // of their logs
};

Progress progress(const std::string& folder) {
  Progress all;
  std::error_code gone;  // the folder changes during the walk
  for (auto entry = fs::recursive_directory_iterator(folder, gone); !gone && entry != fs::end(entry);
       entry.increment(gone)) {
    if (entry->path().filename() == "metrics.jsonl") all.lines += count(text_of(entry->path()), "\n");
    if (entry->path().filename() == "checkpoints") {
      const std::string newest = newest_checkpoint(entry->path().parent_path());
      if (!newest.empty()) all.steps += std::stoi(newest.substr(newest.rfind('-') + 1));
    }
  }
  return all;
}

// A fault for a run after this progress since its start, and its expected end.
struct Fault {
  Progress after;
  std::function<void(RunningProgram&)> act;
  std::vector<int> codes;
  std::string said;  // once, on standard error
};

auto sends(int signal) {
  return [signal](RunningProgram& program) { program.signal(signal); };
}

constexpr const char* saved = "saved; go on with --resume";

// Checks that result files are equal in both folders, logs up to their times.
void check_same_results(const std::string& folder, const std::string& whole) {
  int compared = 0;
  for (const auto& entry : fs::recursive_directory_iterator(whole)) {
    const std::string name = fs::relative(entry.path(), whole), file = entry.path().filename();
    if (has(name, "checkpoints") || !entry.is_regular_file()) continue;
    CAPTURE(name);
    const fs::path other = folder / fs::path(name);
    if (file == "metrics.jsonl")
      CHECK(log_without_times(other.parent_path()) == log_without_times(entry.path().parent_path()));
    else if (file.ends_with(".safetensors") || file == "results.jsonl" || file == "runs.csv" || file == "scores.csv")
      CHECK(text_of(other) == text_of(entry.path()));
    else
      continue;
    ++compared;
  }
  CHECK(compared >= 2);
}

// Runs the command undisturbed, and again with one fault after another, then to its end.
void goes_on_to_the_same(const std::string& command, const std::vector<Fault>& faults) {
  CAPTURE(command);
  const Scratch scratch("killed");
  const std::string whole = scratch / "whole", out = scratch / "out";
  (void)done(command + " --out " + whole);
  const auto goes_on = [&] { return command + " --out " + out + (newest_checkpoint(out).empty() ? "" : " --resume"); };
  std::vector<std::pair<std::string, fs::file_time_type>> kept;
  for (const Fault& fault : faults) {
    const Progress before = progress(out);
    RunningProgram program(goes_on());
    const bool came = soon([&] {
      const Progress now = progress(out);
      return now.steps >= before.steps + fault.after.steps && now.lines >= before.lines + fault.after.lines;
    });
    REQUIRE_MESSAGE((came && !program.has_ended()), program.err());
    fault.act(program);
    const Outcome ended = program.finish_within(60);
    CHECK_MESSAGE(std::ranges::find(fault.codes, ended.code) != fault.codes.end(), ended.code, " ", ended.err);
    CHECK_MESSAGE((fault.said.empty() || count(ended.err, fault.said) == 1), ended.err);
    const std::string newest = newest_checkpoint(out);
    if (!newest.empty()) kept.emplace_back(newest, fs::last_write_time(newest));
  }
  const Outcome end = ran(goes_on());
  REQUIRE_MESSAGE(end.code == 0, end.err);
  for (const auto& each : kept)  // it resumed there, not at the beginning
    CHECK_MESSAGE((fs::exists(each.first) && fs::last_write_time(each.first) == each.second), each.first);
  check_same_results(out, whole);
}

const std::string flip_flop =
    "train flip_flop --length 16 --dim 16 --layers 1 --heads 2 --batch 2 --test-sequences 8 --quiet "
    "--keep-checkpoints 0";

}  // namespace

TEST_CASE("train: a signal saves and ends it with 130, a second ends it at once; both go on to the same bits") {
  std::vector<Fault> faults;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const auto twice = [signal](RunningProgram& program) {
      program.signal(signal);
      CHECK(soon([&] { return has(program.err(), "once more to stop at once"); }));
      program.signal(signal);
    };
    faults.push_back({{.lines = 1}, sends(signal), {130}, saved});
    faults.push_back({{.lines = 1}, twice, {130, 128 + signal}, ""});  // 130: it had saved before
  }
  goes_on_to_the_same(flip_flop + " --steps 2000 --log-every 20 --save-every 100000 --threads 1", faults);
}
