// Memory that ends: address space that is short from the start. What fails one allocation of a run: attack/allocations.py.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <filesystem>

#include "tests/support/programs.h"

using namespace whence;
using namespace whence::test;

namespace {

namespace fs = std::filesystem;

bool is_one_line(const std::string& text) { return !text.empty() && text.find('\n') == text.size() - 1; }

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
