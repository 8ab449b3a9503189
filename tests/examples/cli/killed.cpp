// A run that is interrupted, and then resumed, ends in the bytes of an undisturbed run.
#include "tests/support/programs.h"

using namespace whence::test;
namespace fs = std::filesystem;

TEST_CASE("train: a signal saves and ends it with 130, a second ends it at once; both go on to the same bits") {
  const Scratch scratch("killed");
  const std::string
      whole = scratch / "whole",
      out = scratch / "out", log = out + "/metrics.jsonl",
      command =
          "train flip_flop --length 16 --dim 16 --layers 1 --heads 2 --batch 2 --test-sequences 8 --quiet "
          "--keep-checkpoints 0 --steps 2000 --log-every 20 --save-every 100000 --threads 1 --out ";
  (void)done(command + whole);
  const auto go_on = [&] { return command + out + (newest_checkpoint(out).empty() ? "" : " --resume"); };
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    for (const bool twice : {false, true}) {
      INFO(signal, ", twice ", twice);
      const int lines = count(text_of(log), "\n");
      RunningProgram program(go_on());
      REQUIRE(soon([&] { return count(text_of(log), "\n") > lines || program.has_ended(); }));
      REQUIRE_MESSAGE(!program.has_ended(), program.err());
      program.signal(signal);
      if (twice) {
        CHECK(soon([&] { return has(program.err(), "once more"); }));
        program.signal(signal);
      }
      const Outcome ended = program.finish_within(60);
      CHECK_MESSAGE((ended.code == 130 || (twice && ended.code == 128 + signal)), ended.code);  // 130: it had saved
      if (!twice) CHECK_MESSAGE(count(ended.err, "--resume") == 1, ended.err);
      REQUIRE_FALSE(newest_checkpoint(out).empty());
    }
  }
  const auto saved = newest_checkpoint(out);
  const auto time = fs::last_write_time(saved);
  (void)done(go_on());
  CHECK((fs::exists(saved) && fs::last_write_time(saved) == time));  // it resumed there, not at the beginning
  CHECK(log_without_times(out) == log_without_times(whole));
  for (const char* name : {"/weights.safetensors", "/results.jsonl"})
    CHECK(text_of(out + name) == text_of(whole + name));
}
