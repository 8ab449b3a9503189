// All results of one pass: named quantities with values, gradients and the causes of zeros, and the paths by which the
// gradients of queries, keys, values and inputs arrived.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/inspect/explain.h"
#include "autograd/inspect/observers.h"
#include "autograd/inspect/zeros.h"
#include "examples/whence/look/quantity.h"
#include "examples/whence/look/subject.h"

namespace whence::look {

// Counts of a quantity's entries by the cause of their zero gradient, in one head (or in all, if it has no heads).
struct Shares {
  const Quantity* quantity;
  index_t head;                  // -1: no heads
  index_t count = 0;             // number of entries
  std::vector<index_t> entries;  // by cause
  index_t exact_zeros = 0;       // entries whose gradient is 0; others with a cause are close to 0
};

struct PathsTo {
  index_t layer;
  std::string name;  // "q"
  Tensor whole;      // autograd's gradient
  std::vector<GradientPath> paths;
  double difference = 0;  // largest |sum of the paths - whole|, relative to the largest |whole|
};

// Returns a line about the memory that an Inspection of the subject needs, and the free memory. Throws OutOfMemory if the
// pass alone needs more; the message names a length that fits.
[[nodiscard]] std::string require_memory(const Subject& subject);

// Sets up edits of values on the capture of a pass.
using Prepare = std::function<void(Capture&)>;

class Inspection {
 public:
  // Runs the subject forward and backward. `explains`: keeps the inputs and outputs of every op, which explain_value and
  // explain_gradient need. REQUIRES: `subject` outlives this
  explicit Inspection(const Subject& subject, bool explains = true, Prepare prepare = {});

  const Subject& subject() const { return subject_; }
  bool explains() const { return tape_ != nullptr; }
  const Prepare& prepare() const { return prepare_; }  // never empty
  double loss() const { return loss_value_; }
  const std::vector<std::optional<Prediction>>& predictions() const { return predictions_; }
  const std::vector<Quantity>& quantities() const { return quantities_; }
  const std::vector<Quantity>& parameters() const { return parameters_; }
  // Returns the quantity or parameter of that path. REQUIRES: there is one
  [[nodiscard]] const Quantity& at(const std::string& path) const;
  const std::vector<Cause>& causes() const { return causes_; }
  [[nodiscard]] Stop stop_of(const Quantity& quantity, std::size_t e) const { return causes_[quantity.causes[e]].stop; }
  [[nodiscard]] std::vector<Shares> shares() const;
  [[nodiscard]] std::map<Stop, index_t> by_stop(const Shares& shares) const;  // of stops that occur

  // Paths to x, q, k and v, layer by layer. The first call computes them.
  const std::vector<PathsTo>& paths() const;

  // The training step as a graph between named places and parameters.
  [[nodiscard]] std::vector<Passage> graph() const { return passages(loss_, {}, places_); }

  // Explains for example "blocks.0.attention.position.gates" at [0,3,41,17]. Throws Error if the graph has no such name.
  // REQUIRES: explains
  [[nodiscard]] Contribution explain_value(const std::string& path, const Shape& at) const;
  [[nodiscard]] ExplainedGradient explain_gradient(const std::string& path, const Shape& at) const;

  // Returns, by path, the changes of the next quantities when the quantity `path` changes by `tangent`.
  // REQUIRES: explains
  [[nodiscard]] std::map<std::string, std::vector<double>> moved(
      const std::string& path, const std::vector<double>& tangent) const;

 private:
  void find_causes();
  void hide_masked(Quantity& quantity);
  void find_paths(index_t layer) const;

  const Subject& subject_;
  Prepare prepare_;
  std::vector<SchemeSpec> specs_;
  std::unique_ptr<Tape> tape_;
  std::unique_ptr<Capture> capture_;
  Tensor loss_;
  double loss_value_ = 0;
  std::vector<std::optional<Prediction>> predictions_;
  std::vector<Place> places_;
  std::vector<Quantity> quantities_, parameters_;
  std::vector<Cause> causes_;
  mutable std::optional<std::vector<PathsTo>> paths_;
};

// "content", "position_logit > positions > gates": the steps, without those that all paths share.
[[nodiscard]] std::string name_of(const GradientPath& path);

}  // namespace whence::look
