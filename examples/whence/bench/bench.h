// The frame of every bench: options of time and machine, and what was measured: a line of JSON each, or tables.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "examples/whence/bench/ceilings.h"
#include "examples/whence/cli/command_line.h"
#include "examples/whence/cli/json.h"
#include "examples/whence/cli/progress.h"
#include "examples/whence/report/table.h"
#include "nn/io/safetensors.h"
#include "nn/layers/module.h"
#include "tensor/device.h"
#include "tensor/tensor.h"

namespace whence {
class Communicator;
}

namespace whence::bench {

// What every bench can be told.
struct Settings {
  int repetitions = 5, threads = 0;
  bool json = false;
  std::string device = "auto";
};
// Under the title "Measuring".
void declare(CommandLine& line, Settings& settings);
// True where the words ask for a page, which is printed. Else reads them, and sets the threads.
[[nodiscard]] bool shows_page(CommandLine& line, const Settings& settings);

[[nodiscard]] Tensor named(const NamedTensors& tensors, const std::string& name);  // undefined where there is none

// Draws the numbers of parameters that begin at zero, so that every gradient tells something.
void draw_zeros(const Module& model, double deviation);

// The middle of repetitions, as other programs disturb some of them.
struct Median {
  double value = 0;
  double spread = 0;  // half of what lies between the quartiles
};
[[nodiscard]] Median median(std::vector<double> values);  // REQUIRES: at least one

// Milliseconds of one repetition; no backward: nan.
struct Repetition {
  double forward = 0, backward = 0;
};
struct Times {
  std::vector<double> forward = {}, backward = {}, both = {};
  void add(const Repetition& one);
};

[[nodiscard]] std::string text_of(const Median& figure);  // "38.2 ±1.1": three digits
[[nodiscard]] std::string percent_of(double share);       // "38 %"

// One measurement. Each figure is a field of its line of JSON, a cell of its row in a table, or both.
class Row {
 public:
  // Without `field` not in JSON, nor where the value is nan; without `heading` not in the table. `text`: of the cell,
  // where it is not the value itself.
  Row& add(std::string field, Json value, std::string heading = {}, std::string text = {});
  Row& add(const Row& more);
  // forward_ms, backward_ms, both_ms and the spread of both. Under the headings; the last one may be none.
  Row& add(const Times& times, const std::string& backward = "backward ms", const std::string& both = "both ms");

 private:
  friend class Bench;
  using Cells = std::vector<std::pair<std::string, std::string>>;  // heading and text
  Json line_ = Json::Fields{};
  Cells cells_;
};

// One bench under way. When it goes, it prints the tables of what was measured until then: Ctrl-C, which ends it after
// the repetition that runs, loses none.
class Bench {
 public:
  // `steps`: how many calls of begin() there will be. On the CPU ceilings are measured, if not by one of several ranks,
  // of which the first alone says anything.
  Bench(std::string name, const Settings& settings, Device device, std::size_t steps,
      const Communicator* ranks = nullptr);
  ~Bench();
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  const Settings& settings() const { return settings_; }
  const Ceilings& ceilings() const { return ceilings_; }
  Device device() const { return device_; }

  // Says what is measured next, for people who wait. Throws Interrupted when asked to stop.
  void begin(const std::string& what);
  // Of as many repetitions as the settings say, after one to warm up.
  [[nodiscard]] Times repeated(const std::function<Repetition()>& once) const;
  // Prints the line of JSON, where that is asked for, or keeps the row for the table under this title.
  void keep(const Row& row, const std::string& title = "");
  // A line behind the tables, printed once however often it is told.
  void note(const std::string& text);

 private:
  using Cells = Row::Cells;
  static Table table_of(const std::vector<Cells>& rows);

  std::string name_;
  const Settings& settings_;
  Device device_;
  Ceilings ceilings_;
  Progress progress_;
  std::int64_t begun_ = 0;
  std::vector<std::pair<std::string, std::vector<Cells>>> tables_;  // by title
  std::vector<std::string> notes_;
};

// Throws Interrupted when asked to stop.
void stop_if_asked();

}  // namespace whence::bench
