// The frame of every bench: options of time and machine, and its measurements as lines of JSON or tables.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "examples/whence/bench/ceilings.h"
#include "examples/whence/cli/fields.h"
#include "examples/whence/cli/json.h"
#include "examples/whence/cli/progress.h"
#include "examples/whence/report/table.h"
#include "nn/io/safetensors.h"
#include "nn/layers/module.h"
#include "tensor/device.h"
#include "tensor/tensor.h"

namespace whence {}

namespace whence::bench {

// Options that every bench has.
struct Settings {
  int repetitions = 5, threads = 0;
  bool json = false;
  std::string device = "auto";
};
// Declares them under the title "Measuring".
void declare(CommandLine& line, Settings& settings, bool repeats = true);
// True if the words request a page, which is printed. Otherwise reads the words, and sets the threads.
[[nodiscard]] bool shows_page(CommandLine& line, const Settings& settings);

[[nodiscard]] Tensor named(const NamedTensors& tensors, const std::string& name);  // undefined if there is none

// Draws the parameters that begin at zero, so that every gradient depends on them.
void draw_zeros(const Module& model, double deviation);

// The median of repetitions, because other programs disturb some of them.
struct Median {
  double value = 0;
  double spread = 0;  // half the distance between the quartiles
};
[[nodiscard]] Median median(std::vector<double> values);  // REQUIRES: at least one

// Milliseconds of one repetition; nan without backward.
struct Repetition {
  double forward = 0, backward = 0;
};
struct Times {
  std::vector<double> forward = {}, backward = {}, both = {};
  void add(const Repetition& one);
};

[[nodiscard]] std::string text_of(const Median& figure);  // "38.2 ±1.1": three digits
[[nodiscard]] std::string percent_of(double share);       // "38 %"

// One measurement. Each figure is a field in a line of JSON, a cell in a table's row, or both.
class Row {
 public:
  // Without `field`: not in JSON, nor if the value is nan; without `heading`: not in the table. `text` is the cell's
  // text, if it is not the value.
  Row& add(std::string field, Json value, std::string heading = {}, std::string text = {});
  Row& add(const Row& more);
  // Adds forward_ms, backward_ms, both_ms and the spread of both, under the headings; the last may be empty.
  Row& add(const Times& times, const std::string& backward = "backward ms", const std::string& both = "both ms");

 private:
  friend class Bench;
  using Cells = std::vector<std::pair<std::string, std::string>>;  // heading and text
  Json line_ = Json::Fields{};
  Cells cells_;
};

// A running bench. Its destructor prints the tables of the measurements so far: Ctrl-C, which ends the bench after the
// present repetition, loses none.
class Bench {
 public:
  // `steps`: the number of begin() calls. On the CPU ceilings are measured.
  Bench(std::string name, const Settings& settings, Device device, std::size_t steps);
  ~Bench();
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  const Settings& settings() const { return settings_; }
  const Ceilings& ceilings() const { return ceilings_; }
  Device device() const { return device_; }

  // Prints what is measured next, for people who wait. Throws Interrupted on request.
  void begin(const std::string& what);
  // Takes the settings' number of repetitions, after one to warm up.
  [[nodiscard]] Times repeated(const std::function<Repetition()>& once) const;
  // Prints the line of JSON if requested, or keeps the row for the table under this title.
  void keep(const Row& row, const std::string& title = "");
  // Adds a line after the tables, printed once even if added repeatedly.
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

// Throws Interrupted on request.
void stop_if_asked();

}  // namespace whence::bench
