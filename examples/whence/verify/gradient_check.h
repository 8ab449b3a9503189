// Gradient checks by name: of an op by its samples, of a scheme text on random operands.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autograd/check/gradcheck.h"
#include "autograd/check/samples.h"

namespace whence {

struct GradientCheckOptions {
  index_t length = 6;  // tokens, for schemes
  bool differences = true;
  bool twice = false;  // gradients as functions: second derivatives, by duals alone
  // Tensors of at most so many elements are checked along every element, larger ones along random directions.
  index_t one_by_one = 64;
  std::uint64_t seed = 1;  // of operands, parameters, cotangents and directions
  Device device = {};      // where everything runs
};

// One function that was checked: a sample of an op, or a scheme under one kind of mask.
struct GradientCase {
  std::string label;  // "interior", "causal", "bidirectional"
  GradcheckReport report;
};

struct GradientFigures {
  std::size_t inputs = 0, kinks = 0;  // with parameters
  double duals = 0, differences = 0;  // the largest relative errors by either
  void add(const GradientFigures& more);
};

struct GradientChecks {
  std::string name;
  std::vector<GradientCase> cases;
  std::string note = {};  // what about this one is not as usual

  [[nodiscard]] bool ok() const { return problems().empty(); }
  [[nodiscard]] std::vector<std::string> problems() const;  // "causal: ..."
  [[nodiscard]] GradientFigures figures() const;            // over all cases
};

// The samples of an op.
[[nodiscard]] GradientChecks check_gradients(const CheckedOp& op, const GradientCheckOptions& options);

// Output, logits where they mean something, and embedded tokens, by every input and every parameter at once.
// Causal, bidirectional where the schemes claim a meaning for it, and with one key head for all queries. Throws
// InputError when the text is wrong or the schemes refuse it.
[[nodiscard]] GradientChecks check_gradients(const std::string& text, const GradientCheckOptions& options);

[[nodiscard]] std::vector<std::string> op_names();  // of all that have samples

// What a user's NAME means: an op, else a scheme text. Throws InputError with the nearest name when it is neither.
struct Checkable {
  std::string name;               // a scheme's is canonical
  const CheckedOp* op = nullptr;  // nullptr: a scheme
};
[[nodiscard]] Checkable find_checkable(const std::string& name);
[[nodiscard]] GradientChecks check_gradients(const Checkable& what, const GradientCheckOptions& options);

}  // namespace whence
