// The frame of `whence bench`: the options of all benches, the way to measure, and measurements as lines of JSON or
// tables. The file of each bench has its cases.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "examples/whence/bench/ceilings.h"
#include "examples/whence/cli/json.h"
#include "examples/whence/cli/progress.h"
#include "examples/whence/machine/placement.h"
#include "nn/io/safetensors.h"
#include "nn/layers/module.h"
#include "tensor/random.h"
#include "tensor/tensor.h"

namespace whence::bench {

struct Options {
  std::string schemes = {}, executors = {}, lengths = {};  // empty: the bench's own
  std::string gates = "both", models = "all";
  std::int64_t heads = 12, head_dim = 64, batch = 0, tokens = 64;  // batch 0: the bench's own
  double scale = 0.125;
  bool recorded = false, profile = false, json = false;
  int repetitions = 5;
  MachineOptions machine = {};
};

// The benches. They print what they measure.
void attention(const Options& options, const Placement& placement);
void step(const Options& options, const Placement& placement);
void ops(const Options& options, const Placement& placement);
void decode(const Options& options, const Placement& placement);

// Draws tokens uniformly: no bench depends on what they are.
[[nodiscard]] Tensor drawn_tokens(const Shape& shape, index_t vocabulary, const Stream& stream);

// Draws the parameters that begin at zero, so that every gradient depends on them.
void draw_zeros(const Module& model, double deviation);

// The median of repetitions, because other programs disturb some of them.
struct Median {
  double value = 0;
  double spread = 0;  // half the distance between the quartiles
};
[[nodiscard]] Median median(std::vector<double> values);  // REQUIRES: at least one

// Milliseconds of one repetition (backward nan: none), and MiB of attention above its operands.
struct Repetition {
  double forward = 0, backward = 0;
  double kept = 0, peak = 0;  // kept: by forward for backward
};
struct Times {
  std::vector<double> forward = {}, backward = {}, both = {};
  double kept = 0, peak = 0;  // the last, the largest
};

[[nodiscard]] std::string text_of(const Median& figure);  // "38.2 ±1.1": three digits
[[nodiscard]] std::string percent_of(double share);       // "38 %"

// One measurement. Each figure is a field in a line of JSON, a cell in a table's row, or both.
class Row {
 public:
  // Without `field`: not in JSON, nor if the value is nan; without `heading`: not in the table. `text` is the cell's
  // text, if it is not the value.
  Row& add(std::string field, Json value, std::string heading = {}, std::string text = {});
  // Adds forward_ms, backward_ms, both_ms and the spread of both, under the headings; the last may be empty.
  Row& add(const Times& times, const std::string& backward = "backward ms", const std::string& both = "both ms");

 private:
  friend class Bench;
  using Cells = std::vector<std::pair<std::string, std::string>>;  // heading and text
  Json line_ = Json::Fields{};
  Cells cells_;
};

// One case. python/benches.cpp alternates it with other programs.
struct Measured {
  std::string name = {};                       // "cope, sparse gates, length 512"
  NamedTensors given = {};                     // the initial numbers
  std::function<Repetition()> run = {};        // peak: 0 if not counted
  std::function<NamedTensors()> results = {};  // of the last run; for a step: of its first batch
  std::int64_t heads = 0;                      // for a model
  std::function<Row(const Times&, const Ceilings& ceilings)> row = {};  // none for a step
};
[[nodiscard]] std::vector<Measured> measured_ops(double scale, DType dtype, Device device);
// `model`: a name in `bench step`. 0: its own batch or length.
struct StepSizes {
  std::string model, scheme, executor = "auto";
  std::int64_t batch = 0, length = 0;
};
[[nodiscard]] Measured measured_step(const StepSizes& sizes, const Placement& placement);
// Reads tokens after a prompt, one by one.
struct DecodeSizes {
  std::string scheme;
  std::int64_t prompt = 64, tokens = 64, kv_heads = 0;
};
[[nodiscard]] Measured measured_decode(const DecodeSizes& sizes, const std::string& precision, Device device);

// A running bench. Its destructor prints the tables of the measurements so far: Ctrl-C, which ends the bench after the
// present repetition, loses none.
class Bench {
 public:
  // `steps`: the number of begin() calls. On the CPU ceilings are measured.
  Bench(std::string name, const Options& options, Device device, std::size_t steps);
  ~Bench();
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  const Ceilings& ceilings() const { return ceilings_; }

  // Prints what is measured next, for people who wait. Throws Interrupted on request.
  void begin(const std::string& what);
  // Takes the options' number of repetitions of each, after one to warm up, and keeps its row if it has one. Runs
  // alternate, so that other load on the machine affects all.
  std::vector<Times> measure(const std::vector<Measured>& cases);
  // Prints the line of JSON if requested, or keeps the row for the table under this title.
  void keep(const Row& row, const std::string& title = "");
  // Adds a line after the tables, printed once even if added repeatedly.
  void note(const std::string& text);

 private:
  std::string name_;
  const Options& options_;
  Device device_;
  Ceilings ceilings_;
  Progress progress_;
  std::int64_t begun_ = 0;
  std::vector<std::pair<std::string, std::vector<Row::Cells>>> tables_;  // by title
  std::vector<std::string> notes_;
};

// Throws Interrupted on request.
void stop_if_asked();

}  // namespace whence::bench
