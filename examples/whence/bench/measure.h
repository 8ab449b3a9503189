// What the benches share: the machine's ceilings, repeated measurements, and where results go.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "examples/whence/cli/command_line.h"
#include "examples/whence/cli/progress.h"
#include "examples/whence/cli/statistics.h"
#include "examples/whence/cli/words.h"
#include "examples/whence/report/report.h"
#include "nn/io/json.h"

namespace whence::bench {

[[nodiscard]] std::string text_of(const Median& figure);  // "38.2 ±1.1": three digits

// What no program on this machine can pass, measured by this one. 0 on another device than the CPU.
struct Ceilings {
  std::string vectors;          // "AVX-512", "AVX2", "baseline": the widest that this CPU has
  double fma_gflops_alone = 0;  // f32 multiply-adds of one thread, two operations each
  double fma_gflops = 0;        // of all threads
  double copy_gb_per_s = 0;     // memory to memory, bytes read and bytes written, all threads
  double read_gb_per_s = 0;     // from memory, all threads
  double load = 0;              // programs that wanted a core in the last minute: what else this machine does

  [[nodiscard]] double milliseconds_of(double operations) const { return operations / fma_gflops / 1e6; }
  [[nodiscard]] std::string text() const;
};
[[nodiscard]] Ceilings measure_ceilings();

// What every bench can be told.
struct Settings {
  int repetitions = 5, threads = 0;
  bool json = false;
  std::string device = "auto", peer, python = "python3";
  [[nodiscard]] bool with_peer() const { return !peer.empty(); }
};
void declare(CommandLine& line, Settings& settings);  // under the title "Measuring"
void declare_peer(CommandLine& line, Settings& settings);

// One bench under way: JSON lines as they are measured, or tables at the end. Ctrl-C ends it after the repetition that
// runs, with what was measured so far.
class Bench {
 public:
  // `steps`: how many calls of begin() there will be. `beside`: a peer's name and version, or nothing.
  Bench(std::string name, const Settings& settings, bool on_cpu, std::int64_t steps, const std::string& beside = "");

  const Ceilings& ceilings() const { return ceilings_; }
  // What is measured next, for people who wait. Throws Interrupted when asked to stop.
  void begin(const std::string& what);
  // Prints the record behind the name of the bench, as a line of JSON where that is asked for.
  void record(const Json& record) const;
  // `measure`, and then, whether it came to its end or not, `show` where tables are wanted.
  void run(const std::function<void()>& measure, const std::function<void()>& show);

 private:
  std::string name_;
  bool json_;
  Ceilings ceilings_;
  Progress progress_;
  std::int64_t begun_ = 0;
};

// Throws Interrupted when asked to stop.
void stop_if_asked();

// Plots below one another in one file, over powers of two.
struct Panel {
  std::string title, y_label;
  std::vector<report::Curve> curves;  // over x, a length
};
void write_panels(const std::string& path, const std::vector<Panel>& panels);

}  // namespace whence::bench
