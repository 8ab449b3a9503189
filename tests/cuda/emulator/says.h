// Shared by tests of the emulator.
#pragma once

#include "cuda/emulator/settings.h"
#include "cuda/vocabulary/launch_kernel.h"
#include "tests/support/programs.h"
#include "tests/support/tensors.h"

namespace whence::test {

// A kernel of the tests, called "planted".
template <int of_threads, class F> struct Planted {
  static constexpr const char* name = "planted";
  static constexpr int threads = of_threads;
  F f;
  void operator()(gpu::Thread& t) const { f(t); }
};
template <int threads, class F> Planted<threads, F> planted(const F& f) { return {f}; }

// Returns the emulator's report about a launch, in this order.
template <class Body> std::string report(const Body& body, gpu::Grid grid, std::uint64_t order) {
  const With chosen(gpu::emulator::settings().order, order);
  return error_text([&] { gpu::launch_kernel(body, grid); });
}

// Returns "reports.cpp:12" if line 12 of that file ends in the comment "line: MARK".
inline std::string line_of(const std::string& mark, const std::string& path) {
  std::ifstream file(source_folder() + "/tests/cuda/" + path);
  std::string text;
  for (int line = 1; std::getline(file, text); ++line)
    if (text.ends_with("// line: " + mark)) return to_text(path.substr(path.rfind('/') + 1), ":", line);
  fail("line_of", to_text("'", mark, "' given; no line of ", path, " has this mark"));
}

}  // namespace whence::test
