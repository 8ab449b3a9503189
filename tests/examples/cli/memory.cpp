// Memory that ends: allocations that fail one by one in a whole run (tests/attack/memory_preload.cpp), address space
// that is short from the start, and an engine that goes on after what it caught.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "tests/support/programs.h"

using namespace whence;
using namespace whence::test;

namespace {

namespace fs = std::filesystem;

// A run of four steps on one thread, whose allocations come in one order. `environment`: "NAME=value", for it alone.
Outcome run_in(const fs::path& out, std::vector<std::string> more, const std::vector<std::string>& environment = {}) {
  std::vector<std::string> arguments{"flip_flop", "--length", "8", "--dim", "8", "--heads", "2", "--layers", "1",
      "--batch", "2", "--test-sequences", "4", "--steps", "4", "--save-every", "1", "--quiet", "--threads", "1",
      "--out", out.string()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  for (const std::string& setting : environment)
    setenv(setting.substr(0, setting.find('=')).c_str(), setting.substr(setting.find('=') + 1).c_str(), 1);
  const RunningProgram program("train", arguments, out.string() + ".log");
  for (const std::string& setting : environment) unsetenv(setting.substr(0, setting.find('=')).c_str());
  return program.finish();
}

bool is_one_line(const std::string& text) { return !text.empty() && text.find('\n') == text.size() - 1; }

std::string weights_in(const fs::path& out) { return text_of((out / "weights.safetensors").string()); }

bool has_checkpoint(const fs::path& out) {
  if (!fs::exists(out / "checkpoints")) return false;
  for (const auto& entry : fs::directory_iterator(out / "checkpoints"))
    if (fs::exists(entry.path() / "weights.safetensors") && entry.path().extension().empty()) return true;
  return false;
}

// Address space for the programs of this block.
class AddressSpace {
 public:
  explicit AddressSpace(std::size_t bytes) {
    getrlimit(RLIMIT_AS, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_AS, &limit);
  }
  ~AddressSpace() { setrlimit(RLIMIT_AS, &before_); }
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;

 private:
  rlimit before_{};
};

}  // namespace

TEST_CASE("an allocation that fails ends a run with a line and code 5, and the next run goes on to the same bits") {
  const Scratch scratch("memory-fails");
  const std::string preload = std::string("LD_PRELOAD=") + WHENCE_MEMORY_PRELOAD;
  const fs::path undisturbed = scratch.folder / "undisturbed", count_file = scratch.folder / "count";
  REQUIRE(run_in(undisturbed, {}, {preload, "WHENCE_COUNT_ALLOCATIONS=" + count_file.string()}).code == 0);
  const long all = std::stol(text_of(count_file.string()));
  REQUIRE(all > 10'000);
  // WHENCE_FAIL_EVERY=1: each of them, which takes a few minutes
  const char* const given = std::getenv("WHENCE_FAIL_EVERY");
  const long step = given ? std::stol(given) : all / 40;
  std::mt19937 random(20);
  long ended = 0;
  for (long n = 1 + static_cast<long>(random() % static_cast<unsigned long>(step)); n <= all; n += step) {
    const fs::path out = scratch.folder / "failed";
    fs::remove_all(out);
    const Outcome outcome = run_in(out, {}, {preload, "WHENCE_FAIL_ALLOCATION=" + std::to_string(n)});
    CAPTURE(n);
    CAPTURE(outcome.err);
    CHECK((outcome.code == 0 || (outcome.code == 5 && is_one_line(outcome.err))));
    ended += outcome.code != 0;
    if (outcome.code != 0)
      CHECK(run_in(out, has_checkpoint(out) ? std::vector<std::string>{"--resume"} : std::vector<std::string>{}).code ==
            0);
    CHECK(weights_in(out) == weights_in(undisturbed));
  }
  CHECK(ended > 0);
}

TEST_CASE("with little address space every program ends at once: done, or one line and code 5") {
  const Scratch scratch("memory-start");
  // The second is a run with a product that is OpenBLAS's, for it has few columns: the logits.
  const std::vector<std::pair<std::string, std::vector<std::string>>> programs{{"tasks", {}},
      {"train", {"flip_flop", "--length", "16", "--dim", "256", "--heads", "2", "--layers", "1", "--batch", "1",
                    "--test-sequences", "2", "--steps", "1", "--quiet", "--out", scratch / "run"}}};
  for (const auto& program : programs) {
    for (const unsigned mebibytes : {60U, 120U, 160U, 200U, 240U, 280U, 310U, 320U, 340U, 400U, 460U}) {
      fs::remove_all(scratch / "run");
      const AddressSpace limit(std::size_t{mebibytes} << 20);
      const Outcome outcome = RunningProgram(program.first, program.second, scratch / "log").finish_within(20);
      const std::string what = program.first + " in " + std::to_string(mebibytes) + " MiB: " + outcome.err;
      // An unoptimised program is so large that the loader finds no room for its libraries: nothing of it has run.
      if (outcome.code == 127 && outcome.err.find("while loading shared libraries") != std::string::npos) continue;
      CHECK_MESSAGE((outcome.code == 0 || (outcome.code == 5 && is_one_line(outcome.err))), what);
    }
  }
}
